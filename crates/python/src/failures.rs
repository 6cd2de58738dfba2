//! What the last calls came to: for `last_error()`, and for the log.
//!
//! The drop-in's methods return numbers, so the story of a failure is kept here until it is asked for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moonrail::{Code, Error};
use parking_lot::Mutex;
use tracing::warn;

/// Engines that one thread remembers its last call of.
const ENGINES_PER_THREAD: usize = 64;
/// Lines a period for one code.
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);

/// Counts failures, so that it can be told which of two is newer.
static CLOCK: AtomicU64 = AtomicU64::new(1);
static ENGINES: AtomicU64 = AtomicU64::new(0);
static WINDOWS: LazyLock<Mutex<HashMap<Code, Window>>> = LazyLock::new(Mutex::default);

thread_local! {
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// A thread's last call of one engine.
struct Call {
    engine: u64,
    at: u64,
    failure: Option<Error>,
}

struct Window {
    since: Instant,
    lines: u32,
    left_out: u32,
}

/// The failures of one engine object.
///
/// Its locks are only tried, never waited for: in a forked child another thread may have held them at the fork.
pub(crate) struct Failures {
    engine: u64,
    newest: Mutex<Option<(u64, Error)>>,
    /// The caller logs them itself.
    quiet: AtomicBool,
}

impl Failures {
    pub(crate) fn new() -> Self {
        Self {
            engine: ENGINES.fetch_add(1, Ordering::Relaxed),
            newest: Mutex::new(None),
            quiet: AtomicBool::new(false),
        }
    }

    /// Whether failures are written to the log.
    pub(crate) fn set_logged(&self, logged: bool) {
        self.quiet.store(!logged, Ordering::Relaxed);
    }

    /// This thread's call succeeded.
    pub(crate) fn clear(&self) {
        self.record(CLOCK.load(Ordering::Relaxed), None);
    }

    /// This thread's call of `method` failed and returns `value`.
    pub(crate) fn keep(&self, method: &str, value: &str, error: &Error) {
        let at = CLOCK.fetch_add(1, Ordering::Relaxed) + 1;
        self.record(at, Some(error.clone()));
        if let Some(mut newest) = self.newest.try_lock() {
            *newest = Some((at, error.clone()));
        }
        if !self.quiet.load(Ordering::Relaxed) {
            log(method, value, error);
        }
    }

    /// Why this thread's last call failed; if it did not fail, the failure of any thread since then.
    pub(crate) fn last(&self) -> Option<Error> {
        let (at, own) = CALLS.with_borrow(|calls| {
            let call = calls.iter().find(|call| call.engine == self.engine);
            call.map_or((0, None), |call| (call.at, call.failure.clone()))
        });
        own.or_else(|| {
            let newest = self.newest.try_lock()?;
            newest.as_ref().filter(|(failed, _)| *failed > at).map(|(_, error)| error.clone())
        })
    }

    fn record(&self, at: u64, failure: Option<Error>) {
        CALLS.with_borrow_mut(|calls| {
            if let Some(call) = calls.iter_mut().find(|call| call.engine == self.engine) {
                call.at = at;
                call.failure = failure;
                return;
            }
            if calls.len() == ENGINES_PER_THREAD {
                calls.remove(0);
            }
            calls.push(Call { engine: self.engine, at, failure });
        });
    }
}

/// One line a failure, but not a flood of them.
fn log(method: &str, value: &str, error: &Error) {
    let mut left_out = 0;
    if let Some(mut windows) = WINDOWS.try_lock() {
        let now = Instant::now();
        let window = windows.entry(error.code()).or_insert(Window { since: now, lines: 0, left_out: 0 });
        if now.duration_since(window.since) >= PERIOD {
            left_out = window.left_out;
            *window = Window { since: now, lines: 0, left_out: 0 };
        }
        if window.lines == LINES {
            window.left_out += 1;
            return;
        }
        window.lines += 1;
    }
    if left_out > 0 {
        warn!("{left_out} more failures with {} were not logged", error.code());
    }
    warn!("{method} returned {value}: {error}");
}
