//! A batch, cut into slices, and what a failure of one means for the whole.

use moonrail_transport::{Entry, Failure, Opcode, Retry, Work};

/// Consecutive pieces of a batch.
pub(super) struct Slice {
    /// The first entry it has a piece of; each further piece is of the next entry.
    pub first: usize,
    /// Whether pieces come before these.
    later: bool,
    pub entries: Vec<Entry>,
}

impl Slice {
    pub(super) fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.len).sum()
    }

    /// The same failure, counted from the start of the batch.
    pub(super) fn place(&self, mut failure: Failure, work: &Work<'_>) -> Failure {
        let only = self.entries.len() == 1 && work.entries.len() > 1;
        if let Some(index) = failure.error.index().or(only.then_some(0)) {
            failure.error = failure.error.with_index(self.first + index);
        }
        failure
    }

    /// The same failure, now that the slices before this one have been applied.
    pub(super) fn after_others(&self, mut failure: Failure, work: &Work<'_>) -> Failure {
        if !self.later {
            return failure;
        }
        if work.opcode == Opcode::Write {
            failure.untouched = false;
            if failure.error.retry() == Retry::Safe {
                failure.error = failure.error.with_retry(Retry::Unsafe);
            }
        }
        let note = format!(
            "the limit for this peer cuts the call into slices, and this one begins in descriptor {}: \
                            all before it is applied",
            self.first
        );
        failure.error = failure.error.with_note(note);
        failure
    }
}

/// Cuts a batch.
pub(super) struct Slices<'a> {
    entries: &'a [Entry],
    most: u64,
    at: usize,
    offset: u64,
}

impl<'a> Slices<'a> {
    pub(super) fn new(entries: &'a [Entry], most: u64) -> Self {
        Self { entries, most, at: 0, offset: 0 }
    }

    pub(super) fn next_slice(&mut self) -> Option<Slice> {
        let (first, later) = (self.at, self.at > 0 || self.offset > 0);
        let (mut pieces, mut left) = (Vec::new(), self.most);
        while let Some(entry) = self.entries.get(self.at).filter(|_| left > 0) {
            let len = (entry.len - self.offset).min(left);
            let (local, remote) =
                (entry.local.wrapping_add(self.offset), entry.remote.wrapping_add(self.offset));
            pieces.push(Entry { local, remote, len });
            left -= len;
            self.offset += len;
            if self.offset < entry.len {
                break;
            }
            (self.at, self.offset) = (self.at + 1, 0);
        }
        (!pieces.is_empty()).then_some(Slice { first, later, entries: pieces })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(local: u64, len: u64) -> Entry {
        Entry { local, remote: local + 1000, len }
    }

    fn slices(entries: &[Entry], most: u64) -> Vec<(usize, Vec<Entry>)> {
        let mut slices = Slices::new(entries, most);
        std::iter::from_fn(|| slices.next_slice().map(|slice| (slice.first, slice.entries))).collect()
    }

    #[test]
    fn a_batch_is_cut_between_and_within_entries() {
        let batch = [entry(0, 4), entry(0, 0), entry(100, 25), entry(200, 1)];
        let expected = vec![
            (0, vec![entry(0, 4), entry(0, 0), entry(100, 6)]),
            (2, vec![entry(106, 10)]),
            (2, vec![entry(116, 9), entry(200, 1)]),
        ];
        assert_eq!(slices(&batch, 10), expected);
        assert_eq!(slices(&[], 10), vec![]);
        assert_eq!(slices(&[entry(0, 0)], 10), vec![(0, vec![entry(0, 0)])]);
    }
}
