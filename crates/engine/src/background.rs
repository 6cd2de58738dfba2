//! Work that must not run on the caller's thread: background batches and the fetching of descriptors.
//!
//! Owns an elastic set of threads: none while nothing is submitted, one for each job that is running, gone
//! after they were idle for a while. A job that waits for a stopped peer therefore never delays another's.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use moonrail_transport::{Stop, WAIT_SLICE};
use parking_lot::{Condvar, Mutex};
use tracing::error;

/// Threads at once; further jobs wait for one.
const MAX_THREADS: usize = 256;
/// A thread without work ends after this long.
const IDLE: Duration = Duration::from_secs(10);
/// Jobs only wait in system calls; a small stack is enough.
const STACK: usize = 512 << 10;

type Job = Box<dyn FnOnce() -> Option<Wake> + Send>;

/// Wakes whoever waits for a job. It is called when the job's thread already counts as free: a caller that makes
/// one call after the other then keeps using the same thread. Must not block.
pub(crate) type Wake = Box<dyn FnOnce() + Send>;

/// Runs jobs in the background. Dropping it lets running jobs end by themselves and drops the waiting ones.
pub(crate) struct Background {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Background {
    pub(crate) fn new() -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::default(), wake: Condvar::new() }) }
    }

    /// Runs `job` soon. If no thread can be started and none is running, it is run on the calling thread.
    pub(crate) fn run(&self, job: Job) {
        let mut state = self.shared.state.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            drop(state);
            self.shared.wake.notify_one();
            return;
        }
        if state.threads >= MAX_THREADS {
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let spawned = thread::Builder::new()
            .name("moonrail-work".to_owned())
            .stack_size(STACK)
            .spawn(move || work(&shared));
        if spawned.is_err() {
            let mut state = self.shared.state.lock();
            state.threads -= 1;
            if state.threads == 0
                && let Some(job) = state.jobs.pop_front()
            {
                drop(state);
                if let Some(wake) = job() {
                    wake();
                }
            }
        }
    }
}

impl Background {
    /// Runs `job` and waits for its result, looking at `stop` at least every [`WAIT_SLICE`]. `Err`: stopped; the
    /// job goes on, and its result is dropped.
    pub(crate) fn wait_for<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
        stop: &dyn Fn() -> Option<Stop>,
    ) -> Result<T, Stop> {
        let slot = Arc::new((Mutex::new(None), Condvar::new()));
        let filled = Arc::clone(&slot);
        self.run(Box::new(move || {
            let result = job();
            Some(Box::new(move || {
                *filled.0.lock() = Some(result);
                filled.1.notify_all();
            }))
        }));
        let mut result = slot.0.lock();
        loop {
            if let Some(result) = result.take() {
                return Ok(result);
            }
            if let Some(stop) = stop() {
                return Err(stop);
            }
            slot.1.wait_for(&mut result, WAIT_SLICE);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.jobs);
        drop(state);
        self.shared.wake.notify_all();
        drop(waiting);
    }
}

fn work(shared: &Shared) {
    let mut state = shared.state.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            // A panic in a job is a defect; it must not take the thread's place in the count with it.
            let wake = std::panic::catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|_| {
                error!("a background job panicked");
                None
            });
            state = shared.state.lock();
            if let Some(wake) = wake {
                state.idle += 1;
                drop(state);
                wake();
                state = shared.state.lock();
                state.idle -= 1;
            }
            continue;
        }
        if state.closed {
            break;
        }
        state.idle += 1;
        let timed_out = shared.wake.wait_for(&mut state, IDLE).timed_out();
        state.idle -= 1;
        if timed_out && state.jobs.is_empty() {
            break;
        }
    }
    state.threads -= 1;
}
