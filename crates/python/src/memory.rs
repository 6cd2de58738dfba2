//! Memory of the typed API: foreign memory that is kept in place, and memory that the engine allocates.

use std::sync::atomic::{AtomicUsize, Ordering};

use moonrail::{Code, Engine, Error, ForkGuard, HugePages, RegionOptions, Retry, Stage};
use parking_lot::Mutex;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::activity::Activity;
use crate::arguments::Unsigned;
use crate::buffer::View;
use crate::core::Core;
use crate::{errors, interrupt, session};

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
    /// What came of asking for huge pages, if they were asked for.
    huge_pages: Option<HugePages>,
    fork_guard: ForkGuard,
}

#[pymethods]
impl Allocation {
    #[new]
    #[pyo3(signature = (core, nbytes, name = None, huge_pages = false, readonly = false, guarded = false))]
    fn new(
        py: Python<'_>,
        core: &Bound<'_, Core>,
        nbytes: Unsigned,
        name: Option<String>,
        huge_pages: bool,
        readonly: bool,
        guarded: bool,
    ) -> PyResult<Self> {
        let engine = core.get().engine(py)?;
        let owner = engine.clone();
        let activity = core.get().activity.clone();
        let len = nbytes.0;
        let allocated = if isize::try_from(len).is_ok() {
            let options = RegionOptions {
                name,
                access: session::access(readonly),
                guarded,
                ..RegionOptions::default()
            };
            interrupt::registering(py, engine, &activity, move |engine| {
                if huge_pages {
                    engine.allocate_huge(len, options).map(|(addr, pages)| (addr, Some(pages)))
                } else {
                    engine.allocate_with(len, options).map(|addr| (addr, None))
                }
            })?
        } else {
            let message = format!("no process has {len} bytes of memory");
            Err(Error::new(Code::ResourceLimit, Stage::Register, Retry::AfterFix, message))
        };
        let (addr, huge_pages) = allocated.map_err(|error| errors::exception(py, &error))?;
        Ok(Self {
            engine: Mutex::new(Some(owner)),
            activity,
            exports: AtomicUsize::new(0),
            addr,
            len,
            huge_pages,
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

    /// The kind of huge pages the memory is made of: "hugetlb" or "transparent"; None for usual pages.
    #[getter]
    fn huge_pages(&self) -> Option<&'static str> {
        match self.huge_pages {
            Some(HugePages::Hugetlb) => Some("hugetlb"),
            Some(HugePages::Transparent) => Some("transparent"),
            Some(HugePages::Refused(_)) | None => None,
        }
    }

    /// Why huge pages were asked for and not granted.
    #[getter]
    fn why_no_huge_pages(&self) -> Option<&str> {
        match &self.huge_pages {
            Some(HugePages::Refused(why)) => Some(why),
            _ => None,
        }
    }

    /// Unregisters and frees the memory. BufferError while views of it exist; the second call does nothing.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        // No view can be taken from here on: the interpreter is not let go of before the engine is out of its place.
        let mut place = self.engine.lock();
        let exports = self.exports.load(Ordering::Acquire);
        if exports > 0 && place.is_some() {
            return Err(PyBufferError::new_err(format!(
                "{exports} views of the buffer exist; release them first"
            )));
        }
        let Some(engine) = place.take() else { return Ok(()) };
        drop(place);
        let (addr, kept) = (self.addr, engine.clone());
        // After Ctrl-C it goes on in the background, so the memory counts as freed then too.
        let freed = interrupt::registering(py, engine, &self.activity, move |engine| engine.free(addr))?;
        match freed {
            // After a shutdown the memory goes with the engine.
            Err(error) if error.code() != Code::NotInitialized => {
                *self.engine.lock() = Some(kept);
                Err(errors::exception(py, &error))
            }
            _ => {
                py.detach(|| drop(kept));
                Ok(())
            }
        }
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
