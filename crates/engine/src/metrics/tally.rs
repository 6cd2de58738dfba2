//! Counts of small calls: one atomic addition each, until somebody asks for the sums.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits of the bytes; those above are the calls.
const BYTES: u32 = 40;
/// The bits that say that the sums are to be taken soon, far from where they would overflow.
const HALF: u64 = 1 << 63 | 1 << (BYTES - 1);

/// Calls and bytes since they were last taken.
#[derive(Debug, Default)]
pub(super) struct Tally(AtomicU64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub calls: u64,
    pub bytes: u64,
}

impl Tally {
    /// Bytes of one call up to which it can be counted here: a million threads may add as much before one of them takes
    /// the sums.
    pub(super) const MOST: u64 = 1 << 19;

    #[inline]
    pub(super) fn calls(&self) -> u64 {
        self.0.load(Relaxed) >> BYTES
    }

    /// Adds a call. Whoever is given the sums has taken them.
    #[inline]
    pub(super) fn add(&self, bytes: u64) -> Option<Sums> {
        debug_assert!(bytes <= Self::MOST);
        let before = self.0.fetch_add(1 << BYTES | bytes, Relaxed);
        (before & HALF != 0).then(|| self.take())
    }

    pub(super) fn take(&self) -> Sums {
        let both = self.0.swap(0, Relaxed);
        Sums { calls: both >> BYTES, bytes: both & ((1 << BYTES) - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_however_much_is_added_and_whoever_takes() {
        const CALLS: u64 = 3 << 20; // of more bytes than fit
        let tally = Tally::default();
        let add = |a: Sums, b: Sums| Sums { calls: a.calls + b.calls, bytes: a.bytes + b.bytes };
        let none = Sums { calls: 0, bytes: 0 };
        let count = || (0..CALLS / 4).filter_map(|_| tally.add(Tally::MOST)).fold(none, add);
        let taken = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            let looks = (0..100).map(|_| tally.take()).fold(none, add);
            threads.into_iter().map(|thread| thread.join().expect("it counts")).fold(looks, add)
        });
        assert_eq!(add(taken, tally.take()), Sums { calls: CALLS, bytes: CALLS * Tally::MOST });
    }

    #[test]
    fn the_sums_are_taken_in_time_also_of_calls_without_bytes() {
        let tally = Tally::default();
        let mut total = 0;
        for _ in 0..(1_u64 << 24) + 5 {
            total += tally.add(0).map_or(0, |sums| sums.calls);
        }
        assert_eq!(total + tally.take().calls, (1 << 24) + 5);
    }
}
