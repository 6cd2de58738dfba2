//! A second thread for copies that are large enough.
//!
//! Owns when there is one. It lives for one call only: nothing is parked, nothing has to be stopped, and what it does is
//! over before the call returns, however that ends. It must not know what is copied.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use moonrail_sys::process::usable_cores;

/// Starting a thread on another core and meeting it again costs 40 to 100 µs in a virtual machine; work of this many
/// nanoseconds is worth it.
const WORTH: u64 = 200_000;
/// Copies need little of it.
const STACK: usize = 256 << 10;

/// At most one helping thread at a time.
pub(crate) struct Helper {
    /// What the process may use as its container says; its affinity is asked each time.
    cores: usize,
    busy: AtomicBool,
}

/// The right to start the thread, once.
pub(crate) struct Turn<'a>(&'a AtomicBool);

impl Helper {
    pub(crate) fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        Self { cores, busy: AtomicBool::new(false) }
    }

    /// For work that takes about `nanoseconds` on one core: `None` where a second thread does not pay, has no core, or
    /// helps another call.
    pub(crate) fn turn(&self, nanoseconds: u64) -> Option<Turn<'_>> {
        if nanoseconds < WORTH
            || self.cores.min(usable_cores()) < 2
            || self.busy.swap(true, Ordering::Acquire)
        {
            return None;
        }
        Some(Turn(&self.busy))
    }
}

impl Turn<'_> {
    /// Does `own` on the calling thread and `other` on another one at the same time; returns when both have. `None`: no
    /// thread could be started, and `other` was not called.
    pub(crate) fn both<T, U: Send>(
        self,
        own: impl FnOnce() -> T,
        other: impl FnOnce() -> U + Send,
    ) -> (T, Option<U>) {
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("moonrail-copy".to_owned()).stack_size(STACK);
            let helping = thread.spawn_scoped(scope, other).ok();
            let own = own();
            (own, helping.map(|helping| helping.join().unwrap_or_else(|panic| resume_unwind(panic))))
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn both_run_at_once_and_only_one_call_is_helped() {
        let helper = Helper { cores: 2, busy: AtomicBool::new(false) };
        assert!(helper.turn(WORTH - 1).is_none());
        let Some(turn) = helper.turn(WORTH) else {
            assert!(usable_cores() < 2);
            return;
        };
        assert!(helper.turn(WORTH).is_none());
        let met = Barrier::new(2);
        let (own, other) = turn.both(|| met.wait().is_leader(), || met.wait().is_leader());
        assert_eq!(other, Some(!own));
        assert!(helper.turn(WORTH).is_some());
    }

    #[test]
    fn one_core_has_no_helper() {
        assert!(Helper { cores: 1, busy: AtomicBool::new(false) }.turn(u64::MAX).is_none());
    }
}
