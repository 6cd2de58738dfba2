//! What of the transfers is shown, and in which order. Pure.

use std::cmp::Ordering;

use super::model::Row;

/// What rows are ordered by; the largest first, names from a to z.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sort {
    /// Bytes a second
    #[default]
    Bytes,
    /// Transfers a second
    Calls,
    /// Latency, 99th percentile
    Latency,
    /// Failures
    Failures,
    /// Bytes that wait
    Queue,
    /// Retries
    Retries,
    /// Engine, then peer
    Name,
}

impl Sort {
    const ALL: [Sort; 7] =
        [Sort::Bytes, Sort::Calls, Sort::Latency, Sort::Failures, Sort::Queue, Sort::Retries, Sort::Name];

    /// The next one, round in a circle.
    pub(crate) fn next(self) -> Self {
        let place = Self::ALL.iter().position(|sort| *sort == self).unwrap_or_default();
        Self::ALL[(place + 1) % Self::ALL.len()]
    }

    /// The one whose key was pressed.
    pub(crate) fn of_key(key: char) -> Option<Self> {
        Some(match key {
            'b' => Sort::Bytes,
            'c' => Sort::Calls,
            'l' => Sort::Latency,
            'f' => Sort::Failures,
            'u' => Sort::Queue,
            't' => Sort::Retries,
            'n' => Sort::Name,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Sort::Bytes => "bytes/s",
            Sort::Calls => "calls/s",
            Sort::Latency => "p99",
            Sort::Failures => "failures",
            Sort::Queue => "queue",
            Sort::Retries => "retries",
            Sort::Name => "name",
        }
    }
}

/// Which rows, in which order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    pub(crate) sort: Sort,
    pub(crate) reversed: bool,
    /// Part of an engine's, peer's, path's or op's name, in any case.
    pub(crate) filter: String,
}

impl Choice {
    pub(crate) fn apply(&self, mut rows: Vec<Row>) -> Vec<Row> {
        let wanted = self.filter.to_lowercase();
        rows.retain(|row| self.filter.is_empty() || matches(row, &wanted));
        rows.sort_by(|a, b| {
            let order = self.order(a, b);
            let order = if self.reversed { order.reverse() } else { order };
            order.then_with(|| names(a).cmp(&names(b)))
        });
        rows
    }

    fn order(&self, a: &Row, b: &Row) -> Ordering {
        let number = |of: fn(&Row) -> f64| of(b).total_cmp(&of(a));
        match self.sort {
            Sort::Bytes => number(|row| row.bytes_per_second.unwrap_or(-1.0)),
            Sort::Calls => number(|row| row.transfers_per_second.unwrap_or(-1.0)),
            Sort::Latency => number(|row| row.p99_us.unwrap_or(-1.0)),
            Sort::Failures => b.failures.cmp(&a.failures),
            Sort::Queue => b.queued_bytes.cmp(&a.queued_bytes),
            Sort::Retries => b.retries.cmp(&a.retries),
            Sort::Name => names(a).cmp(&names(b)),
        }
    }
}

fn names(row: &Row) -> (&str, &str, Option<&str>, Option<&str>) {
    (&row.engine, &row.peer, row.path.as_deref(), row.op.as_deref())
}

fn matches(row: &Row, wanted: &str) -> bool {
    let (engine, peer, path, op) = names(row);
    [Some(engine), Some(peer), path, op]
        .into_iter()
        .flatten()
        .any(|name| name.to_lowercase().contains(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(peer: &str, rate: Option<f64>, failures: u64) -> Row {
        Row {
            engine: "Near".to_owned(),
            peer: peer.to_owned(),
            path: Some("tcp".to_owned()),
            op: None,
            bytes_per_second: rate,
            transfers_per_second: None,
            p50_us: None,
            p99_us: None,
            transfers: 0,
            bytes: 0,
            failures,
            lanes: 0,
            queued_bytes: 0,
            retries: 0,
        }
    }

    fn peers(choice: &Choice) -> Vec<String> {
        let rows = vec![row("b", None, 0), row("a", Some(1.0), 2), row("c", Some(5.0), 1)];
        choice.apply(rows).into_iter().map(|row| row.peer).collect()
    }

    #[test]
    fn each_order_puts_the_largest_first_and_names_from_a_to_z() {
        for (sort, order) in
            [(Sort::Bytes, ["c", "a", "b"]), (Sort::Failures, ["a", "c", "b"]), (Sort::Name, ["a", "b", "c"])]
        {
            assert_eq!(peers(&Choice { sort, ..Choice::default() }), order, "{sort:?}");
        }
        let choice = Choice { reversed: true, ..Choice::default() };
        assert_eq!(peers(&choice), ["b", "a", "c"]);
    }

    #[test]
    fn a_filter_is_part_of_any_name_in_any_case() {
        let filtered = |filter: &str| peers(&Choice { filter: filter.to_owned(), ..Choice::default() }).len();
        assert_eq!((filtered("NEAR"), filtered("Tcp"), filtered("c"), filtered("x")), (3, 3, 3, 0));
        assert_eq!(filtered("b"), 1);
    }

    #[test]
    fn one_key_goes_through_all_orders() {
        let mut sort = Sort::default();
        for _ in 0..Sort::ALL.len() {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::default());
    }
}
