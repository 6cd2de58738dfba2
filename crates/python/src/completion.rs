//! Background batches of the typed API, and how an event loop learns that they ended.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::time::Duration;

use moonrail::Completion;
use parking_lot::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::arguments::Unsigned;
use crate::{errors, interrupt};

/// A batch that runs in the background.
#[pyclass(frozen, module = "moonrail._moonrail")]
pub(crate) struct Batch {
    completion: Completion,
}

impl Batch {
    pub(crate) fn new(completion: Completion) -> Self {
        Self { completion }
    }
}

#[pymethods]
impl Batch {
    /// Whether it has ended, well or not.
    fn done(&self) -> bool {
        self.completion.poll().is_some()
    }

    /// Waits until it has ended: True, or False after `timeout` seconds. Raises its failure.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let end = timeout
            .map(|seconds| std::time::Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        let outcome = interrupt::wait(py, |patience| {
            let left = end.map_or(patience, |end| end.saturating_duration_since(std::time::Instant::now()));
            match self.completion.wait(Some(left.min(patience))) {
                None if left <= patience && end.is_some() => Some(None),
                None => None,
                ended => Some(ended),
            }
        })?;
        match outcome {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(error)) => Err(errors::exception(py, &error)),
        }
    }

    /// Asks it to stop; it then ends with CANCELLED, unless it had ended.
    fn cancel(&self) {
        self.completion.cancel();
    }

    /// Puts `token` into `queue` once it has ended.
    fn tell(&self, queue: &Bound<'_, CompletionQueue>, token: Unsigned) {
        let shared = Arc::clone(&queue.get().shared);
        self.completion.on_done(Box::new(move |_| shared.put(token.0)));
    }
}

/// Tokens of ended batches, and a file descriptor that is readable while there are any.
///
/// The threads that end batches never touch the interpreter: they write here, and the event loop reads.
#[pyclass(frozen, module = "moonrail._moonrail")]
pub(crate) struct CompletionQueue {
    shared: Arc<Shared>,
}

struct Shared {
    tokens: Mutex<Vec<u64>>,
    /// An eventfd.
    event: File,
}

#[pymethods]
impl CompletionQueue {
    #[new]
    fn new() -> PyResult<Self> {
        // SAFETY: no preconditions; the descriptor is owned by the File from here on.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(PyOSError::new_err(std::io::Error::last_os_error().to_string()));
            }
            File::from_raw_fd(fd)
        };
        Ok(Self { shared: Arc::new(Shared { tokens: Mutex::default(), event }) })
    }

    fn fileno(&self) -> i32 {
        self.shared.event.as_raw_fd()
    }

    /// The tokens that came since the last call; the descriptor is no longer readable.
    fn drain(&self) -> Vec<u64> {
        // Before the tokens are taken: what comes in between makes it readable again.
        let _ = (&self.shared.event).read(&mut [0; 8]);
        std::mem::take(&mut *self.shared.tokens.lock())
    }
}

impl Shared {
    fn put(&self, token: u64) {
        self.tokens.lock().push(token);
        // A counter that is full is readable, which is all that matters.
        let _ = (&self.event).write(&1u64.to_ne_bytes());
    }
}
