//! Work that must not run on the caller's thread: background batches and the fetching of descriptors.
//!
//! Owns an elastic set of threads: none while nothing is submitted, one for each job that is running, gone
//! after they were idle for a while. A job that waits for a stopped peer therefore never delays another's, and a job
//! that others wait for ([`Background::run_awaited`]) never waits for a thread: those who have one may be its waiters.

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
        if self.spawn(None).is_err() {
            let mut state = self.shared.state.lock();
            state.threads -= 1;
            if state.threads == 0
                && let Some(job) = state.jobs.pop_front()
            {
                drop(state);
                run_here(job);
            }
        }
    }

    /// Runs `job` at once: on an idle thread, else on a new one, whatever the limit, else on the calling thread. For jobs
    /// that other jobs wait for.
    pub(crate) fn run_awaited(&self, job: Job) {
        let mut state = self.shared.state.lock();
        if state.idle > state.jobs.len() {
            state.jobs.push_front(job);
            drop(state);
            self.shared.wake.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let slot = Arc::new(Mutex::new(Some(job)));
        if self.spawn(Some(Arc::clone(&slot))).is_err() {
            self.shared.state.lock().threads -= 1;
            if let Some(job) = slot.lock().take() {
                run_here(job);
            }
        }
    }

    /// Starts a thread, already counted, that begins with the job in the slot.
    fn spawn(&self, first: Option<Arc<Mutex<Option<Job>>>>) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name("moonrail-work".to_owned()).stack_size(STACK);
        let started = builder.spawn(move || {
            let first = first.and_then(|slot| slot.lock().take());
            work(&shared, first);
        });
        started.map(drop)
    }
}

fn run_here(job: Job) {
    if let Some(wake) = job() {
        wake();
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
        self.run_awaited(Box::new(move || {
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

fn work(shared: &Shared, mut first: Option<Job>) {
    let mut state = shared.state.lock();
    loop {
        if let Some(job) = first.take().or_else(|| state.jobs.pop_front()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_job_that_all_others_wait_for_gets_a_thread() {
        let background = Background::new();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (ended, ends) = channel();
        for _ in 0..MAX_THREADS + 20 {
            let (gate, ended) = (Arc::clone(&gate), ended.clone());
            background.run(Box::new(move || {
                let mut open = gate.0.lock();
                while !*open {
                    gate.1.wait(&mut open);
                }
                let _ = ended.send(());
                None
            }));
        }
        background.run_awaited(Box::new(move || {
            *gate.0.lock() = true;
            gate.1.notify_all();
            None
        }));
        for _ in 0..MAX_THREADS + 20 {
            ends.recv_timeout(Duration::from_secs(20)).expect("every job ends");
        }
    }
}
