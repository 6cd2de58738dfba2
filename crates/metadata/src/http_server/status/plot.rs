//! Rates over the last minutes as SVG. Colours stand for roles; the style sheet turns them into those of the theme.

use plotters::coord::Shift;
use plotters::prelude::*;

/// Of the first line, of the second, and of what only helps to read.
const COLOURS: [RGBColor; 2] = [RGBColor(1, 1, 1), RGBColor(2, 2, 2)];
const AXIS: RGBColor = RGBColor(3, 3, 3);
const GRID: RGBColor = RGBColor(4, 4, 4);

const CHART: (u32, u32) = (640, 190);
const SPARK: (u32, u32) = (96, 22);

/// Points further apart than this, in seconds, are not joined: nobody was looking.
const GAP: f64 = 15.0;

/// Points as (seconds ago, value), the oldest first.
pub(super) type Line = Vec<(f64, f64)>;

/// One or two lines over `seconds` up to now, with axes. `unit` is what values are told in, given the highest one: how
/// much it is, and its name.
pub(super) fn chart(lines: &[Line], seconds: f64, unit: fn(f64) -> (f64, &'static str)) -> String {
    draw(CHART, |area| {
        let top = top_of(lines);
        // Steps between labels are round in the unit, and not in bytes; so they are in minutes.
        let (one, name) = unit(top);
        let (tick, word) = if seconds > 120.0 { (60.0, "min") } else { (1.0, "s") };
        let mut chart = ChartBuilder::on(&area)
            .margin(6)
            .margin_right(12)
            .x_label_area_size(22)
            .y_label_area_size(72)
            .build_cartesian_2d(-seconds / tick..0.0, 0.0..top / one)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .label_style(("sans-serif", 13).into_font().color(&AXIS))
            .x_labels(6)
            .y_labels(5)
            .x_label_formatter(&|x| {
                if *x > -0.5 { "now".to_owned() } else { format!("{:.0} {word} ago", -x) }
            })
            .y_label_formatter(&|y| {
                if top / one < 3.0 { format!("{y:.1} {name}") } else { format!("{y:.0} {name}") }
            })
            .draw()?;
        for (line, colour) in lines.iter().zip(COLOURS) {
            for piece in pieces(line) {
                let scaled = piece.into_iter().map(|(x, y)| (x / tick, y / one));
                chart.draw_series(LineSeries::new(scaled, colour.stroke_width(2)))?;
            }
        }
        Ok(())
    })
}

/// One line without axes, for a cell of a table.
pub(super) fn spark(line: &Line, seconds: f64) -> String {
    draw(SPARK, |area| {
        let mut chart = ChartBuilder::on(&area)
            .margin(2)
            .build_cartesian_2d(-seconds..0.0, 0.0..top_of(std::slice::from_ref(line)))?;
        for piece in pieces(line) {
            chart.draw_series(LineSeries::new(piece, COLOURS[0].stroke_width(2)))?;
        }
        Ok(())
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Empty where it cannot be drawn, which only happens to what cannot be written.
fn draw(size: (u32, u32), onto: impl FnOnce(Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    let drawn = onto(SVGBackend::with_string(&mut svg, size).into_drawing_area());
    if let Err(error) = drawn {
        tracing::debug!(%error, "a plot could not be drawn");
        return String::new();
    }
    svg
}

/// The upper end of the axis: above everything that is finite, and never nothing.
fn top_of(lines: &[Line]) -> f64 {
    let values = lines.iter().flatten().map(|(_, value)| *value).filter(|value| value.is_finite());
    let highest = values.fold(0.0, f64::max);
    if highest > 0.0 { highest * 1.1 } else { 1.0 }
}

/// The line, cut where points lie too far apart; as (negative seconds, value).
fn pieces(line: &Line) -> Vec<Line> {
    let mut pieces: Vec<Line> = Vec::new();
    let mut last: Option<f64> = None;
    for &(ago, value) in line.iter().filter(|(ago, value)| ago.is_finite() && value.is_finite()) {
        if last.is_none_or(|last| last - ago > GAP) {
            pieces.push(Vec::new());
        }
        last = Some(ago);
        if let Some(piece) = pieces.last_mut() {
            piece.push((-ago, value));
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_its_lines_and_its_labels() {
        let read: Line = vec![(100.0, 1.0), (99.0, 5.0), (10.0, 2.0), (9.0, 3.0)];
        let svg = chart(&[read, vec![(3.0, 4.0), (1.0, 4.0)]], 300.0, |_| (1.0, "B/s"));
        assert_eq!(
            svg.matches("stroke=\"#010101\"").count(),
            2,
            "two pieces, as nobody looked in between: {svg}"
        );
        assert_eq!(svg.matches("stroke=\"#020202\"").count(), 1);
        assert!(svg.contains("now") && svg.contains("B/s") && !svg.contains("style="), "{svg}");
    }

    #[test]
    fn nothing_and_nonsense_can_be_drawn() {
        for line in [vec![], vec![(1.0, 0.0)], vec![(f64::NAN, 1.0), (2.0, f64::INFINITY), (1.0, -7.0)]] {
            assert!(chart(std::slice::from_ref(&line), 300.0, |_| (1.0, "")).ends_with("</svg>\n"));
            assert!(spark(&line, 300.0).contains("<svg"));
        }
    }
}
