//! Ctrl-C in long calls. No signal handler is installed here: Python's own is given the chance to run.
//!
//! Only the main thread looks at signals, as everywhere in Python.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use moonrail::{Engine, Error};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::activity::Activity;

/// Between two looks at signals: often enough for a person, seldom enough not to fight for the interpreter.
const PERIOD: Duration = Duration::from_millis(50);

/// What a waiting call asks whether it must end, and the exception that a signal handler raised meanwhile.
pub(crate) struct Signals {
    main: bool,
    state: Mutex<State>,
}

struct State {
    next: Instant,
    raised: Option<PyErr>,
}

impl Signals {
    pub(crate) fn new() -> Self {
        Self {
            main: on_main_thread(),
            state: Mutex::new(State { next: Instant::now() + PERIOD, raised: None }),
        }
    }

    /// Whether a signal handler raised an exception. Called detached, as often as one likes.
    pub(crate) fn interrupted(&self) -> bool {
        if !self.main {
            return false;
        }
        let mut state = self.state.lock();
        let now = Instant::now();
        if state.raised.is_none() && now >= state.next {
            state.next = now + PERIOD;
            state.raised = Python::try_attach(|py| py.check_signals().err()).flatten();
        }
        state.raised.is_some()
    }

    /// The exception, to be raised in place of the call's result.
    pub(crate) fn finish(self) -> PyResult<()> {
        self.state.into_inner().raised.map_or(Ok(()), Err)
    }
}

/// Runs what cannot be interrupted: on the main thread in a helper thread, so that Ctrl-C gives the caller back its
/// thread at once while the work ends by itself (its own time limits bound it).
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<Result<T, Error>> {
    if !on_main_thread() {
        return Ok(py.detach(work));
    }
    let (sender, receiver) = channel();
    // Kept outside the thread until it runs, so that it is not lost when no thread can be started.
    let work = std::sync::Arc::new(Mutex::new(Some(work)));
    let taken = std::sync::Arc::clone(&work);
    let spawned = thread::Builder::new().name("moonrail-call".to_owned()).spawn(move || {
        if let Some(work) = taken.lock().take() {
            // The caller may have left on Ctrl-C.
            let _ = sender.send(work());
        }
    });
    if spawned.is_err() {
        let work = work.lock().take().expect("invariant: no thread took it");
        return Ok(py.detach(work));
    }
    wait(py, move |patience| match receiver.recv_timeout(patience) {
        Ok(outcome) => Some(outcome),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => panic!("a call panicked in its thread"),
    })
}

/// Runs what changes the registered memory of `engine`. Only transfers that use the memory and a metadata server make
/// that wait; without either the helper thread would cost more than the work.
pub(crate) fn registering<T: Send + 'static>(
    py: Python<'_>,
    engine: Engine,
    activity: &Activity,
    work: impl FnOnce(&Engine) -> Result<T, Error> + Send + 'static,
) -> PyResult<Result<T, Error>> {
    if engine.config().metadata_server == "P2PHANDSHAKE" && !activity.any() {
        return Ok(py.detach(|| work(&engine)));
    }
    interruptible(py, move || work(&engine))
}

/// Calls `step`, detached, with the longest it may wait, until it gives something or a signal handler raises.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    mut step: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<T> {
    loop {
        if let Some(value) = py.detach(|| step(PERIOD)) {
            return Ok(value);
        }
        py.check_signals()?;
    }
}

fn on_main_thread() -> bool {
    // SAFETY: neither call has preconditions.
    unsafe { libc::gettid() == libc::getpid() }
}
