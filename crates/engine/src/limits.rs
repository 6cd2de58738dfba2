//! How much of the link and the memory bus transfers with a peer may take, where somebody set that (docs/limits.md).
//!
//! Owns: the limits, whose turn it is, and the cutting of a transfer into slices between which others get theirs.
//! Must not know: paths, or how bytes move.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use moonrail_transport::{
    Code, Control, Entry, Error, Failure, Opcode, Retry, Stage, Stop, WAIT_SLICE, Work,
};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::engine::Engine;

/// Bytes moved between two looks at the limit, at most.
const SLICE: u64 = 1 << 20;
/// The same as a time: a slow link's slices are shorter, so that a limit of kilobytes moves bytes steadily too.
const SLICE_TIME: Duration = Duration::from_millis(20);
/// Less is not worth a round trip.
const LEAST_SLICE: u64 = 16 << 10;
/// Longest time that a slice gives way to others: a transfer in the background is slow behind a busy one, never stuck.
const YIELD: Duration = Duration::from_millis(100);

/// What this engine's transfers with one peer may take, both directions together. The default is no limit.
///
/// What the peer does by itself with this engine's memory is the peer's to limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limit {
    /// Most bytes a second, of all calls together.
    pub bytes_per_second: Option<NonZeroU64>,
    /// Gives way to transfers with peers for which this is not set: each MiB waits up to 100 ms while one is under way.
    pub background: bool,
}

impl Limit {
    fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl Engine {
    /// Sets what transfers with `peer` may take from now on, in place of [`Config::limit`](crate::Config::limit); those
    /// under way go on as they began. The peer need not be known yet, and nobody is asked.
    ///
    /// # Errors
    /// None but those of an engine that was shut down or forked.
    pub fn limit(&self, peer: &str, limit: Limit) -> Result<(), Error> {
        self.usable()?.limits.set(peer, limit);
        Ok(())
    }
}

/// The limits of one engine.
#[derive(Debug, Default)]
pub(crate) struct PeerLimits {
    /// Whether there is or was one: until then nothing here costs anything.
    any: AtomicBool,
    /// For peers without one of their own.
    usual: Limit,
    peers: RwLock<HashMap<String, Arc<Limited>>>,
    foreground: Foreground,
}

/// One peer's limit, and its turn.
#[derive(Debug)]
pub(crate) struct Limited {
    limit: Limit,
    /// When the next slice may begin.
    next: Mutex<Instant>,
}

/// Transfers under way that those in the background give way to.
#[derive(Debug, Default)]
struct Foreground {
    count: Mutex<usize>,
    none_left: Condvar,
}

/// A transfer that others give way to, while it lives.
pub(crate) struct Busy<'a>(&'a Foreground);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count -= 1;
        if *count == 0 {
            self.0.none_left.notify_all();
        }
    }
}

impl Foreground {
    fn enter(&self) -> Busy<'_> {
        *self.count.lock() += 1;
        Busy(self)
    }

    /// Waits while there are any, until `until` at most.
    fn give_way(&self, until: Instant) {
        let mut count = self.count.lock();
        if *count > 0 {
            self.none_left.wait_until(&mut count, until);
        }
    }
}

impl PeerLimits {
    /// `usual` is for peers without a limit of their own.
    pub(crate) fn new(usual: Limit) -> Self {
        Self { any: AtomicBool::new(!usual.is_none()), usual, ..Self::default() }
    }

    fn set(&self, peer: &str, limit: Limit) {
        self.peers.write().insert(peer.to_owned(), Arc::new(Limited::new(limit)));
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether any peer may have one.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The peer's limit; `None`: it has none.
    pub(crate) fn of(&self, peer: &str) -> Option<Arc<Limited>> {
        if !self.any() {
            return None;
        }
        let known = self.peers.read().get(peer).cloned();
        let limited = known.or_else(|| {
            let new = || Arc::new(Limited::new(self.usual));
            let known = |peers: &mut HashMap<String, Arc<Limited>>| {
                Arc::clone(peers.entry(peer.to_owned()).or_insert_with(new))
            };
            (!self.usual.is_none()).then(|| known(&mut self.peers.write()))
        });
        limited.filter(|limited| !limited.limit.is_none())
    }

    /// Has transfers in the background give way while the result lives.
    pub(crate) fn enter(&self, limited: Option<&Limited>) -> Option<Busy<'_>> {
        let foreground = self.any() && limited.is_none_or(|limited| !limited.limit.background);
        foreground.then(|| self.foreground.enter())
    }

    /// Carries out `work` by `execute` in slices, each of which waits for its turn.
    pub(crate) fn execute(
        &self,
        limited: &Limited,
        work: &Work<'_>,
        control: &Control<'_>,
        mut execute: impl FnMut(&Work<'_>) -> (&'static str, Result<(), Failure>),
    ) -> (&'static str, Result<(), Failure>) {
        let mut path = "";
        let mut slices = Slices::new(work.entries, limited.slice());
        while let Some(slice) = slices.next_slice() {
            let outcome = match self.turn(limited, slice.bytes(), control) {
                Err(ending) => Err(ending.failure(work, slice.first)),
                Ok(()) => {
                    let part = Work { entries: &slice.entries, ..*work };
                    let (by, outcome) = execute(&part);
                    path = by;
                    outcome.map_err(|failure| slice.place(failure, work))
                }
            };
            if let Err(failure) = outcome {
                return (path, Err(slice.after_others(failure, work)));
            }
        }
        (path, Ok(()))
    }

    /// Waits until the next `bytes` may move.
    fn turn(&self, limited: &Limited, bytes: u64, control: &Control<'_>) -> Result<(), Ending> {
        let now = Instant::now();
        let mut begin = now;
        if let Some(rate) = limited.limit.bytes_per_second {
            let mut next = limited.next.lock();
            begin = begin.max(*next);
            *next = begin + taking(bytes, rate);
        }
        let mut give_way = limited.limit.background;
        loop {
            let now = Instant::now();
            if let Some(stop) = (control.stop)() {
                return Err(Ending::Stopped(stop));
            }
            if control.expired(now) {
                return Err(Ending::Deadline);
            }
            let slice = |until: Instant| control.slice(now, until).unwrap_or(Duration::ZERO);
            if begin > now {
                thread::sleep(slice(begin));
            } else if give_way && now < begin + YIELD {
                self.foreground.give_way(now + slice(begin + YIELD).min(WAIT_SLICE));
                give_way = *self.foreground.count.lock() > 0;
            } else {
                return Ok(());
            }
        }
    }
}

impl Limited {
    fn new(limit: Limit) -> Self {
        Self { limit, next: Mutex::new(Instant::now()) }
    }

    /// Whether a call's time says nothing about its peer: it is the limit that takes it.
    pub(crate) fn takes_time(&self) -> bool {
        self.limit.bytes_per_second.is_some()
    }

    /// Bytes of a slice.
    fn slice(&self) -> u64 {
        let at_rate = |rate: NonZeroU64| {
            let bytes = u128::from(rate.get()) * SLICE_TIME.as_millis() / 1000;
            u64::try_from(bytes).unwrap_or(u64::MAX).clamp(LEAST_SLICE, SLICE)
        };
        self.limit.bytes_per_second.map_or(SLICE, at_rate)
    }
}

fn taking(bytes: u64, rate: NonZeroU64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Why a transfer ended while it waited for its turn.
enum Ending {
    Stopped(Stop),
    Deadline,
}

impl Ending {
    fn failure(self, work: &Work<'_>, index: usize) -> Failure {
        let (code, why) = match self {
            Self::Stopped(Stop::Cancelled) => (Code::Cancelled, "the call was cancelled"),
            Self::Stopped(Stop::Interrupted) => (Code::Interrupted, "the call was interrupted"),
            Self::Deadline => (Code::DeadlineExceeded, "the call's time limit passed"),
        };
        let message = format!("{why} while it waited for its turn: a limit is set for this peer");
        let error = Error::new(code, Stage::Transfer, Retry::Safe, message);
        let error = if work.entries.len() > 1 { error.with_index(index) } else { error };
        Failure { error, untouched: true, stale: false }
    }
}

/// Consecutive pieces of a batch.
struct Slice {
    /// The first entry it has a piece of; each further piece is of the next entry.
    first: usize,
    /// Whether pieces come before these.
    later: bool,
    entries: Vec<Entry>,
}

impl Slice {
    fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.len).sum()
    }

    /// The same failure, counted from the start of the batch.
    fn place(&self, mut failure: Failure, work: &Work<'_>) -> Failure {
        let only = self.entries.len() == 1 && work.entries.len() > 1;
        if let Some(index) = failure.error.index().or(only.then_some(0)) {
            failure.error = failure.error.with_index(self.first + index);
        }
        failure
    }

    /// The same failure, now that the slices before this one have been applied.
    fn after_others(&self, mut failure: Failure, work: &Work<'_>) -> Failure {
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
struct Slices<'a> {
    entries: &'a [Entry],
    most: u64,
    at: usize,
    offset: u64,
}

impl<'a> Slices<'a> {
    fn new(entries: &'a [Entry], most: u64) -> Self {
        Self { entries, most, at: 0, offset: 0 }
    }

    fn next_slice(&mut self) -> Option<Slice> {
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

    #[test]
    fn a_slice_takes_a_fiftieth_of_a_second_and_a_mebibyte_at_most() {
        let slice =
            |rate| Limited::new(Limit { bytes_per_second: NonZeroU64::new(rate), background: false }).slice();
        assert_eq!(slice(1), LEAST_SLICE);
        assert_eq!(slice(10_000_000), 200_000);
        assert_eq!(slice(u64::MAX), SLICE);
        assert_eq!(Limited::new(Limit::default()).slice(), SLICE);
    }

    #[test]
    fn a_peers_own_limit_takes_the_place_of_the_usual_one() {
        let usual = Limit { bytes_per_second: NonZeroU64::new(5), background: false };
        let limits = PeerLimits::new(usual);
        limits.set("free", Limit::default());
        limits.set("late", Limit { background: true, ..Limit::default() });
        assert_eq!(limits.of("other").map(|limited| limited.limit), Some(usual));
        assert!(limits.of("free").is_none());
        assert!(limits.of("late").is_some_and(|limited| limited.limit.background));
        assert!(PeerLimits::new(Limit::default()).of("other").is_none());
    }

    #[test]
    fn a_failure_after_the_first_slice_says_what_is_applied_and_is_unsafe_to_repeat() {
        let limits = PeerLimits::new(Limit { background: true, ..Limit::default() });
        let limited = limits.of("peer").expect("the usual one");
        let entries = [entry(0, SLICE), entry(1 << 30, SLICE)];
        let holds = moonrail_memory::HoldSet::default();
        let work = Work { opcode: Opcode::Write, entries: &entries, holds: &holds };
        let control = Control { deadline: None, connect: YIELD, progress: YIELD, stop: &|| None };
        let mut calls = 0;
        let (path, outcome) = limits.execute(&limited, &work, &control, |_| {
            calls += 1;
            let error = Error::new(Code::PeerGone, Stage::Transfer, Retry::Safe, "gone").with_index(0);
            ("tcp", if calls == 1 { Ok(()) } else { Err(Failure { error, untouched: true, stale: true }) })
        });
        let failure = outcome.expect_err("the second slice failed");
        assert_eq!((path, failure.untouched, failure.error.index()), ("tcp", false, Some(1)));
        assert_eq!(failure.error.retry(), Retry::Unsafe);
    }
}
