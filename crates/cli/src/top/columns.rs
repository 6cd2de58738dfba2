//! Which figures stand in which column, on the screen as in the plain table. Pure.

use std::time::Duration;

use super::model::{EngineRow, Row};
use crate::output::human_time;
use crate::size;

/// A column of rows `R`.
pub(crate) struct Column<R> {
    pub(crate) title: &'static str,
    /// Least width, in cells.
    pub(crate) width: u16,
    pub(crate) align: Align,
    /// Share of the room that is left.
    grows: u16,
    /// Columns with a higher number are left out first where there is no room; 0 always stays.
    spare: u8,
    pub(crate) cell: fn(&R) -> String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Figures.
    Right,
}

/// Of transfers.
pub(crate) const TRANSFERS: &[Column<Row>] = &[
    Column {
        title: "engine",
        width: 12,
        align: Align::Left,
        grows: 1,
        spare: 3,
        cell: |row| row.engine.clone(),
    },
    Column { title: "peer", width: 15, align: Align::Left, grows: 2, spare: 0, cell: |row| row.peer.clone() },
    Column {
        title: "path",
        width: 4,
        align: Align::Left,
        grows: 0,
        spare: 4,
        cell: |row| text(row.path.as_deref()),
    },
    Column {
        title: "op",
        width: 5,
        align: Align::Left,
        grows: 0,
        spare: 1,
        cell: |row| text(row.op.as_deref()),
    },
    Column {
        title: "bytes/s",
        width: 12,
        align: Align::Right,
        grows: 0,
        spare: 0,
        cell: |row| rate(row.bytes_per_second),
    },
    Column {
        title: "calls/s",
        width: 8,
        align: Align::Right,
        grows: 0,
        spare: 2,
        cell: |row| count(row.transfers_per_second),
    },
    Column {
        title: "p50",
        width: 8,
        align: Align::Right,
        grows: 0,
        spare: 6,
        cell: |row| micros(row.p50_us),
    },
    Column {
        title: "p99",
        width: 8,
        align: Align::Right,
        grows: 0,
        spare: 3,
        cell: |row| micros(row.p99_us),
    },
    Column {
        title: "failures",
        width: 8,
        align: Align::Right,
        grows: 0,
        spare: 2,
        cell: |row| row.failures.to_string(),
    },
    Column {
        title: "lanes",
        width: 5,
        align: Align::Right,
        grows: 0,
        spare: 7,
        cell: |row| row.lanes.to_string(),
    },
    Column {
        title: "queue",
        width: 10,
        align: Align::Right,
        grows: 0,
        spare: 5,
        cell: |row| size::human(row.queued_bytes),
    },
    Column {
        title: "retries",
        width: 7,
        align: Align::Right,
        grows: 0,
        spare: 7,
        cell: |row| row.retries.to_string(),
    },
];

/// Of engines.
pub(crate) const ENGINES: &[Column<EngineRow>] = &[
    Column {
        title: "engine",
        width: 15,
        align: Align::Left,
        grows: 1,
        spare: 0,
        cell: |row| row.name.clone(),
    },
    Column {
        title: "release",
        width: 14,
        align: Align::Left,
        grows: 0,
        spare: 5,
        cell: |row| text(row.release.as_deref()),
    },
    Column { title: "state", width: 16, align: Align::Left, grows: 3, spare: 0, cell: state },
    Column {
        title: "moves",
        width: 12,
        align: Align::Right,
        grows: 0,
        spare: 1,
        cell: |row| rate(row.moved),
    },
    Column {
        title: "served in",
        width: 12,
        align: Align::Right,
        grows: 0,
        spare: 2,
        cell: |row| rate(row.served_in),
    },
    Column {
        title: "served out",
        width: 12,
        align: Align::Right,
        grows: 0,
        spare: 2,
        cell: |row| rate(row.served_out),
    },
    Column {
        title: "refused",
        width: 7,
        align: Align::Right,
        grows: 0,
        spare: 4,
        cell: |row| row.refused.to_string(),
    },
    Column {
        title: "registered",
        width: 10,
        align: Align::Right,
        grows: 0,
        spare: 3,
        cell: |row| size::human(row.registered_bytes),
    },
];

/// The columns that fit side by side into `width` cells, with one between them.
pub(crate) fn fitting<R>(columns: &'static [Column<R>], width: u16) -> Vec<&'static Column<R>> {
    let mut chosen: Vec<&Column<R>> = columns.iter().collect();
    loop {
        let needed: u16 = chosen.iter().map(|column| column.width + 1).sum();
        let last = chosen.iter().map(|column| column.spare).max().unwrap_or(0);
        if needed <= width.saturating_add(1) || last == 0 {
            return chosen;
        }
        chosen.retain(|column| column.spare < last);
    }
}

/// How wide these columns are where they have `width` cells together.
pub(crate) fn widths<R>(columns: &[&Column<R>], width: u16) -> Vec<u16> {
    let needed: u16 = columns.iter().map(|column| column.width + 1).sum();
    let left = (width + 1).saturating_sub(needed);
    let shares: u16 = columns.iter().map(|column| column.grows).sum();
    columns.iter().map(|column| column.width + left / shares.max(1) * column.grows).collect()
}

fn state(row: &EngineRow) -> String {
    if let Some(why) = &row.unreachable {
        let since = row.unreachable_seconds.map_or(0, |seconds| seconds);
        return format!("unreachable for {since} s: {why}");
    }
    let Some(up) = row.uptime_seconds else { return "asking".to_owned() };
    let again = if row.restarts > 0 { format!(", restarted {}x", row.restarts) } else { String::new() };
    format!("up {}{again}", span(up))
}

/// A long time: `12 s`, `3 min`, `5.2 h`, `8.0 d`.
pub(crate) fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

pub(crate) fn rate(bytes: Option<f64>) -> String {
    bytes.map_or_else(unknown, |bytes| format!("{}/s", size::human(bytes as u64)))
}

fn count(calls: Option<f64>) -> String {
    match calls {
        None => unknown(),
        Some(calls) if calls > 0.0 && calls < 10.0 => format!("{calls:.1}"),
        Some(calls) => format!("{calls:.0}"),
    }
}

fn micros(micros: Option<f64>) -> String {
    let time = micros.and_then(|micros| Duration::try_from_secs_f64(micros / 1e6).ok());
    time.map_or_else(unknown, human_time)
}

fn text(text: Option<&str>) -> String {
    text.map_or_else(unknown, str::to_owned)
}

fn unknown() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_wide_screen_has_every_column_and_a_narrow_one_the_most_important() {
        let titles = |width| fitting(TRANSFERS, width).iter().map(|column| column.title).collect::<Vec<_>>();
        assert_eq!(titles(200).len(), TRANSFERS.len());
        assert_eq!(titles(40), ["peer", "op", "bytes/s"]);
        assert_eq!(titles(1), ["peer", "bytes/s"]);
    }

    #[test]
    fn figures_read_well() {
        assert_eq!((rate(None), rate(Some(1536.0))), ("-".to_owned(), "1.50 KiB/s".to_owned()));
        assert_eq!(
            (count(Some(0.25)), count(Some(0.0)), count(Some(12.6))),
            ("0.2".into(), "0".into(), "13".into())
        );
        assert_eq!((micros(Some(-1.0)), micros(Some(80.0))), ("-".to_owned(), "80 us".to_owned()));
        assert_eq!((span(5.0), span(600.0), span(1e6)), ("5 s".into(), "10 min".into(), "11.6 d".into()));
    }

    proptest! {
        #[test]
        fn what_is_chosen_fits_or_cannot_be_less(width in 0_u16..300) {
            let chosen = fitting(TRANSFERS, width);
            let needed: u16 = chosen.iter().map(|column| column.width + 1).sum();
            prop_assert!(needed <= width + 1 || chosen.len() == 2);
            let wide: u16 = widths(&chosen, width).iter().map(|width| width + 1).sum();
            prop_assert!(wide >= needed && wide <= needed.max(width + 1));
        }
    }
}
