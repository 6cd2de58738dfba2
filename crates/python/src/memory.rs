//! Memory of the typed API: foreign memory that is kept in place, and memory that the engine allocates.

use std::sync::atomic::{AtomicUsize, Ordering};

use moonrail::{Code, Engine, Error, ForkGuard, RegionOptions, Retry, Stage};
use parking_lot::Mutex;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::activity::Activity;
use crate::arguments::Unsigned;
use crate::buffer::View;
use crate::core::Core;
use crate::{errors, interrupt};

/// Holds a bytes-like object's memory where it is (a bytearray cannot be resized, a mapping not closed meanwhile).
#[pyclass(frozen, module = "moonrail._moonrail")]
pub(crate) struct Pinned {
    view: Mutex<Option<View>>,
    addr: u64,
    nbytes: u64,
    readonly: bool,
}

#[pymethods]
impl Pinned {
    #[new]
    #[pyo3(signature = (object, writable = false))]
    fn new(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        let view = View::bytes(object, writable)?;
        let (addr, nbytes, readonly) = (view.addr(), view.len(), view.readonly());
        Ok(Self { view: Mutex::new(Some(view)), addr, nbytes, readonly })
    }

    #[getter]
    fn addr(&self) -> u64 {
        self.addr
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.nbytes
    }

    #[getter]
    fn readonly(&self) -> bool {
        self.readonly
    }

    /// Lets go of the object.
    fn release(&self) {
        let view = self.view.lock().take();
        drop(view);
    }
}

/// Registered memory that the engine allocated. `Memory` adds the buffer protocol to it.
#[pyclass(frozen, subclass, weakref, module = "moonrail._moonrail")]
pub(crate) struct Allocation {
    /// Keeps the memory mapped; `None` once freed.
    engine: Mutex<Option<Engine>>,
    activity: Activity,
    /// Views that others took and did not release.
    pub exports: AtomicUsize,
    addr: u64,
    len: u64,
    fork_guard: ForkGuard,
}

#[pymethods]
impl Allocation {
    #[new]
    #[pyo3(signature = (core, nbytes, name = None))]
    fn new(py: Python<'_>, core: &Bound<'_, Core>, nbytes: Unsigned, name: Option<String>) -> PyResult<Self> {
        let engine = core.get().engine(py)?;
        let owner = engine.clone();
        let activity = core.get().activity.clone();
        let len = nbytes.0;
        let addr = if isize::try_from(len).is_ok() {
            let options = RegionOptions { name, ..RegionOptions::default() };
            interrupt::registering(py, engine, &activity, move |engine| engine.allocate_with(len, options))?
        } else {
            let message = format!("no process has {len} bytes of memory");
            Err(Error::new(Code::ResourceLimit, Stage::Register, Retry::AfterFix, message))
        };
        let addr = addr.map_err(|error| errors::exception(py, &error))?;
        Ok(Self {
            engine: Mutex::new(Some(owner)),
            activity,
            exports: AtomicUsize::new(0),
            addr,
            len,
            fork_guard: ForkGuard::new(),
        })
    }

    #[getter]
    fn addr(&self) -> u64 {
        self.addr
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.len
    }

    #[getter]
    fn freed(&self) -> bool {
        self.engine.lock().is_none()
    }

    /// Unregisters and frees the memory. BufferError while views of it exist; the second call does nothing.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        let Some(engine) = self.engine.lock().clone() else { return Ok(()) };
        let exports = self.exports.load(Ordering::Acquire);
        if exports > 0 {
            return Err(PyBufferError::new_err(format!(
                "{exports} views of the buffer exist; release them first"
            )));
        }
        let addr = self.addr;
        let freed = interrupt::registering(py, engine, &self.activity, move |engine| engine.free(addr))?;
        // After a shutdown the memory goes with the engine.
        if let Err(error) =
            freed.or_else(|error| if error.code() == Code::NotInitialized { Ok(()) } else { Err(error) })
        {
            return Err(errors::exception(py, &error));
        }
        let engine = self.engine.lock().take();
        py.detach(|| drop(engine));
        Ok(())
    }
}

impl Allocation {
    /// Address and length, until it is freed.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        self.engine.lock().is_some().then_some((self.addr, self.len))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let Some(engine) = self.engine.get_mut().take() else { return };
        if self.fork_guard.forked() {
            // The mapping of this child goes with the child.
            std::mem::forget(engine);
            return;
        }
        let addr = self.addr;
        let free = move || {
            // Where a transfer holds on to it the memory stays, and goes with the engine.
            let _ = engine.free(addr);
        };
        let mut free = Some(free);
        let detached = Python::try_attach(|py| py.detach(|| free.take().map(|free| free())));
        if detached.is_none()
            && let Some(free) = free.take()
        {
            free();
        }
    }
}
