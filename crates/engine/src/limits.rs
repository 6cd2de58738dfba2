//! How much of the link and the memory bus transfers with a peer may take, where somebody set that (docs/limits.md).
//!
//! Owns: the limits, and whose turn it is; a transfer is cut into slices between which others get theirs (`slices.rs`).
//! Must not know: paths, or how bytes move.

mod slices;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use moonrail_transport::{Code, Control, Error, Failure, Retry, Stage, Stop, WAIT_SLICE, Work};
use parking_lot::{Condvar, Mutex, RwLock};

use slices::Slices;

/// Bytes moved between two looks at the limit, at most.
const SLICE: u64 = 1 << 20;
/// The same as a time: a slow link's slices are shorter, so that a limit of kilobytes moves bytes steadily too.
const SLICE_TIME: Duration = Duration::from_millis(20);
/// Less is not worth a round trip.
const LEAST_SLICE: u64 = 16 << 10;
/// Longest time that a slice gives way to others: a transfer in the background is slow behind a busy one, never stuck.
const YIELD: Duration = Duration::from_millis(100);

/// Peers with the usual limit whose turns are kept.
const MOST: usize = 4096;

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

    pub(crate) fn set(&self, peer: &str, limit: Limit) {
        self.peers.write().insert(peer.to_owned(), Arc::new(Limited::new(limit)));
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether any peer may have one.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The peer's limit; `None`: it has none.
    #[inline]
    pub(crate) fn of(&self, peer: &str) -> Option<Arc<Limited>> {
        if self.any() { self.look_up(peer) } else { None }
    }

    #[cold]
    fn look_up(&self, peer: &str) -> Option<Arc<Limited>> {
        let known = self.peers.read().get(peer).cloned();
        let limited = known.or_else(|| (!self.usual.is_none()).then(|| self.meet(peer)))?;
        (!limited.limit.is_none()).then_some(limited)
    }

    /// A turn of its own for a peer with the usual limit.
    fn meet(&self, peer: &str) -> Arc<Limited> {
        let mut peers = self.peers.write();
        if peers.len() >= MOST {
            // Whatever callers may name: what is at rest begins anew when it is named again.
            peers.retain(|_, limited| limited.limit != self.usual || Arc::strong_count(limited) > 1);
        }
        Arc::clone(peers.entry(peer.to_owned()).or_insert_with(|| Arc::new(Limited::new(self.usual))))
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

#[cfg(test)]
mod tests {
    use moonrail_transport::{Entry, Opcode};

    use super::*;

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
        for nth in 0..3 * MOST {
            limits.of(&format!("peer {nth}"));
        }
        assert!(limits.peers.read().len() <= MOST + 1);
        assert!(limits.of("late").is_some_and(|limited| limited.limit.background));
    }

    #[test]
    fn a_failure_after_the_first_slice_says_what_is_applied_and_is_unsafe_to_repeat() {
        let limits = PeerLimits::new(Limit { background: true, ..Limit::default() });
        let limited = limits.of("peer").expect("the usual one");
        let entries = [0, 1 << 30].map(|at| Entry { local: at, remote: at, len: SLICE });
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
