//! The handle on a background batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moonrail_transport::{Error, Stop};
use parking_lot::{Condvar, Mutex};

type Callback = Box<dyn FnOnce(&Result<(), Error>) + Send>;

/// A background batch: ask, wait, cancel, or be called back. Clones share the same batch.
///
/// The outcome stays: it can be asked for any number of times, from any thread.
#[derive(Clone)]
pub struct Completion(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    done: Condvar,
    cancelled: AtomicBool,
}

#[derive(Default)]
struct State {
    outcome: Option<Result<(), Error>>,
    callbacks: Vec<Callback>,
}

impl Completion {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            done: Condvar::new(),
            cancelled: AtomicBool::new(false),
        }))
    }

    /// The outcome, if the batch has ended.
    #[must_use]
    pub fn poll(&self) -> Option<Result<(), Error>> {
        self.0.state.lock().outcome.clone()
    }

    /// Waits for the outcome; `None` when `timeout` passes first. `None` as timeout waits without limit.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<(), Error>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.0.state.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return Some(outcome.clone());
            }
            match end {
                None => self.0.done.wait(&mut state),
                Some(end) => {
                    if Instant::now() >= end {
                        return None;
                    }
                    self.0.done.wait_until(&mut state, end);
                }
            }
        }
    }

    /// Asks the batch to stop; its outcome then says `CANCELLED`, unless it had ended. After that outcome no
    /// byte of the batch moves any more.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
    }

    /// Calls `callback` once with the outcome: now if the batch has ended, else on the thread that ends it.
    pub fn on_done(&self, callback: Callback) {
        let mut state = self.0.state.lock();
        let Some(outcome) = state.outcome.clone() else {
            state.callbacks.push(callback);
            return;
        };
        drop(state);
        callback(&outcome);
    }

    pub(crate) fn stop(&self) -> Option<Stop> {
        self.0.cancelled.load(Ordering::Acquire).then_some(Stop::Cancelled)
    }

    /// Ends the batch; only the first call counts.
    pub(crate) fn finish(&self, outcome: Result<(), Error>) {
        let mut state = self.0.state.lock();
        if state.outcome.is_some() {
            return;
        }
        let callbacks = std::mem::take(&mut state.callbacks);
        state.outcome = Some(outcome.clone());
        drop(state);
        self.0.done.notify_all();
        for callback in callbacks {
            callback(&outcome);
        }
    }
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Completion").field(&self.poll()).finish()
    }
}
