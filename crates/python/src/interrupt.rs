//! Ctrl-C in long calls. No signal handler is installed here: Python's own is given the chance to run.
//!
//! Only the main thread looks at signals, as everywhere in Python.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use moonrail::{Engine, Error, Request, on_first_thread};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::activity::Activity;

/// Between two looks at signals: often enough for a person, seldom enough not to fight for the interpreter.
const PERIOD: Duration = Duration::from_millis(50);

/// Moves a batch on the calling thread. The outer error is an exception that a signal handler raised.
///
/// A few kilobytes to a process of this host are copied with the interpreter kept: that waits for nobody, and giving the
/// interpreter away and getting it back costs more than the copy. Where many threads want it, very much more.
pub(crate) fn transferring(
    py: Python<'_>,
    engine: &Engine,
    activity: &Activity,
    request: Request,
) -> PyResult<Result<(), Error>> {
    if let Some(outcome) = engine.transfer_at_once(&request) {
        return Ok(outcome);
    }
    let _running = activity.begin();
    let signals = Signals::new();
    let outcome = py.detach(|| {
        let outcome = engine.transfer_interruptible(&request, &|| signals.interrupted());
        // A million descriptors take a while to free.
        drop(request);
        outcome
    });
    signals.finish()?;
    Ok(outcome)
}

/// What a waiting call asks whether it must end, and the exception that a signal handler raised meanwhile.
struct Signals {
    main: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When to look for signals; `None` before the first question, which comes with the first wait.
    next: Option<Instant>,
    raised: Option<PyErr>,
}

impl Signals {
    fn new() -> Self {
        Self { main: on_first_thread(), state: Mutex::default() }
    }

    /// Whether a signal handler raised an exception. Called detached, as often as one likes.
    fn interrupted(&self) -> bool {
        if !self.main {
            return false;
        }
        let mut state = self.state.lock();
        let now = Instant::now();
        let next = *state.next.get_or_insert(now + PERIOD);
        if state.raised.is_none() && now >= next {
            state.next = Some(now + PERIOD);
            state.raised = Python::try_attach(|py| py.check_signals().err()).flatten();
        }
        state.raised.is_some()
    }

    /// The exception, to be raised in place of the call's result.
    fn finish(self) -> PyResult<()> {
        self.state.into_inner().raised.map_or(Ok(()), Err)
    }
}

/// Runs what cannot be interrupted: on the main thread in a helper thread, so that Ctrl-C gives the caller back its
/// thread at once while the work ends by itself (its own time limits bound it).
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<Result<T, Error>> {
    if !on_first_thread() {
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
