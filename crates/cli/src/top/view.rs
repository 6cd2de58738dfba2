//! Drawing: a pure function from what is known to a screen of any size.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};

use super::choice::Choice;
use super::columns::{Align, Column, ENGINES, TRANSFERS, fitting, rate, span, widths};
use super::model::{EngineRow, FailureRow, Row};

/// Most lines of failures.
const FAILURES: usize = 8;

/// What is to be drawn.
pub(crate) struct Scene<'a> {
    pub(crate) engines: &'a [EngineRow],
    /// Chosen and in order.
    pub(crate) rows: &'a [Row],
    /// Newest first.
    pub(crate) failures: &'a [FailureRow],
    pub(crate) trouble: Option<&'a str>,
    pub(crate) choice: &'a Choice,
    pub(crate) paused: bool,
    /// The filter is being typed.
    pub(crate) typing: bool,
    /// Transfers above the first that is shown.
    pub(crate) scroll: usize,
    pub(crate) interval: Duration,
    pub(crate) colours: bool,
}

impl Scene<'_> {
    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let [title, engines, transfers, failures, keys] = self.areas(area);
        frame.render_widget(self.title(), title);
        let row = |row: &EngineRow| {
            if row.unreachable.is_some() { self.bad() } else { Style::default() }
        };
        table(frame, engines, ENGINES, self.engines, row);
        let from = self.scroll.min(self.rows.len().saturating_sub(1));
        table(frame, transfers, TRANSFERS, self.rows.get(from..).unwrap_or_default(), |_| Style::default());
        self.draw_failures(frame, failures);
        frame.render_widget(self.keys(), keys);
    }

    /// Title, engines, transfers, failures, keys. The transfers keep a third where there is not room for all.
    fn areas(&self, area: Rect) -> [Rect; 5] {
        let inner = area.height.saturating_sub(2);
        let lines = |count: usize| u16::try_from(count + 2).unwrap_or(u16::MAX);
        let engines = lines(self.engines.len()).min(inner / 3);
        let failures = match self.failures.len().min(FAILURES) {
            0 => 0,
            count => lines(count).saturating_sub(1).min(inner / 3),
        };
        Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(engines),
            Constraint::Min(0),
            Constraint::Length(failures),
            Constraint::Length(1),
        ])
        .areas(area)
    }

    fn title(&self) -> Line<'_> {
        let reachable = self.engines.iter().filter(|row| row.unreachable.is_none()).count();
        let moved: Vec<f64> = self.engines.iter().filter_map(|row| row.moved).collect();
        let moved = (!moved.is_empty()).then(|| moved.iter().sum());
        let mut parts = vec![
            Span::styled("moonrail top", Modifier::BOLD),
            Span::raw(format!("  {reachable} of {} engines  {}", self.engines.len(), rate(moved))),
        ];
        if self.paused {
            parts.push(Span::styled("  PAUSED", Modifier::REVERSED));
        }
        let filter = &self.choice.filter;
        if self.typing || !filter.is_empty() {
            let cursor = if self.typing { "_" } else { "" };
            parts.push(Span::raw(format!("  filter: {filter}{cursor}")));
        }
        if let Some(why) = self.trouble {
            parts.push(Span::styled(format!("  segments: {why}"), self.bad()));
        }
        Line::from(parts)
    }

    fn draw_failures(&self, frame: &mut Frame<'_>, area: Rect) {
        if area.height == 0 {
            return;
        }
        let mut lines = vec![Line::styled("newest failures", Modifier::BOLD)];
        for failure in self.failures.iter().take(usize::from(area.height) - 1) {
            let peer = failure.peer.as_deref().unwrap_or("-");
            lines.push(Line::from(vec![
                Span::raw(format!("{:>7} ago  ", span(failure.seconds_ago as f64))),
                Span::styled(failure.code.clone(), self.bad()),
                Span::raw(format!("  {} to {peer}, {}  {}", failure.engine, failure.stage, failure.explain)),
            ]));
        }
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn keys(&self) -> Line<'_> {
        let text = if self.typing {
            "type a part of a name   Enter keeps it   Esc drops it".to_owned()
        } else {
            let (way, every) =
                (if self.choice.reversed { "smallest" } else { "largest" }, self.interval.as_secs_f64());
            let sort = self.choice.sort.name();
            format!(
                "q quit  space pause  / filter  s sort ({sort}, {way} first)  r reverse  arrows scroll  every {every} s"
            )
        };
        Line::styled(text, Modifier::DIM)
    }

    fn bad(&self) -> Style {
        if self.colours { Style::from(Color::Red) } else { Style::from(Modifier::BOLD) }
    }
}

/// A heading, and as many rows as there is room for; nothing where there is none.
fn table<R>(
    frame: &mut Frame<'_>,
    area: Rect,
    columns: &'static [Column<R>],
    rows: &[R],
    style: impl Fn(&R) -> Style,
) {
    if area.height < 2 {
        return;
    }
    let shown = fitting(columns, area.width);
    let cell = |column: &Column<R>, text: String| {
        let right = column.align == Align::Right;
        Cell::from(Text::from(text).alignment(if right { Alignment::Right } else { Alignment::Left }))
    };
    let heading = shown.iter().map(|column| cell(column, column.title.to_owned()));
    let visible = rows.iter().take(usize::from(area.height) - 1);
    let lines = visible.map(|row| {
        TableRow::new(shown.iter().map(|column| cell(column, (column.cell)(row)))).style(style(row))
    });
    let widths = widths(&shown, area.width).into_iter().map(Constraint::Length);
    let table =
        Table::new(lines, widths).header(TableRow::new(heading).style(Modifier::BOLD)).column_spacing(1);
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests;
