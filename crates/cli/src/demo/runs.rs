//! From page lists to the entries of a batch, as SGLang makes them.

use moonrail::Entry;

use crate::demo::layout::Layout;

/// Pages that follow one another on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    from: u32,
    to: u32,
    pages: u32,
}

/// Joins neighbours: page `i` of `from` goes to page `i` of `to`.
pub(super) fn join(from: &[u32], to: &[u32]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (&from, &to) in from.iter().zip(to) {
        match runs.last_mut() {
            Some(run) if run.from + run.pages == from && run.to + run.pages == to => run.pages += 1,
            _ => runs.push(Run { from, to, pages: 1 }),
        }
    }
    runs
}

/// One entry for each run in each buffer, buffer by buffer and so layer by layer.
pub(super) fn entries(runs: &[Run], local: &Layout, remote: &Layout) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(runs.len() * local.buffers());
    for buffer in 0..local.buffers() as u32 {
        entries.extend(runs.iter().map(|run| Entry {
            local: local.address(buffer, run.from),
            remote: remote.address(buffer, run.to),
            len: local.page_bytes() * u64::from(run.pages),
        }));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_what_is_contiguous_on_both_sides_is_joined() {
        let runs = join(&[5, 6, 7, 9, 10, 3], &[1, 2, 4, 5, 6, 7]);
        let expected =
            [(5, 1, 2), (7, 4, 1), (9, 5, 2), (3, 7, 1)].map(|(from, to, pages)| Run { from, to, pages });
        assert_eq!(runs, expected);
        assert_eq!(join(&[], &[]), []);
    }

    #[test]
    fn entries_go_layer_by_layer() {
        let local = Layout::new(vec![1000, 2000], 10);
        let remote = Layout::new(vec![50_000, 60_000], 10);
        let found = entries(&join(&[1, 2, 4], &[7, 8, 0]), &local, &remote);
        let expected = [(1010, 50_070, 20), (1040, 50_000, 10), (2010, 60_070, 20), (2040, 60_000, 10)];
        assert_eq!(found.iter().map(|e| (e.local, e.remote, e.len)).collect::<Vec<_>>(), expected);
    }

    proptest! {
        #[test]
        fn runs_are_the_pages_again(pairs in proptest::collection::vec((0_u32..6, 0_u32..6), 0..40)) {
            let (from, to): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
            let unrolled: Vec<(u32, u32)> =
                join(&from, &to).iter().flat_map(|run| (0..run.pages).map(|i| (run.from + i, run.to + i))).collect();
            prop_assert_eq!(unrolled, pairs);
        }
    }
}
