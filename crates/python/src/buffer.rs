//! The buffer protocol, as far as it is used here: taking a view of a foreign object, and offering one.
//!
//! The limited API of Python 3.10 leaves these functions out, yet every CPython since 3.9 exports them with this
//! layout of `Py_buffer` (both became part of the stable ABI in 3.11 as they were), so they are declared here.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use pyo3::{Borrowed, ffi};

use crate::memory::Allocation;

const WRITABLE: c_int = 0x0001;
const FORMAT: c_int = 0x0004;
const ND: c_int = 0x0008;
const STRIDES: c_int = 0x0010 | ND;

#[repr(C)]
struct RawBuffer {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: isize,
    itemsize: isize,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut isize,
    strides: *mut isize,
    suboffsets: *mut isize,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(exporter: *mut ffi::PyObject, view: *mut RawBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut RawBuffer);
    fn PyBuffer_FillInfo(
        view: *mut RawBuffer,
        exporter: *mut ffi::PyObject,
        buf: *mut c_void,
        len: isize,
        readonly: c_int,
        flags: c_int,
    ) -> c_int;
}

/// A view of another object's memory. While it lives the object keeps that memory where it is.
pub(crate) struct View {
    // Boxed because some exporters point from the view into the view itself.
    raw: Box<RawBuffer>,
}

// SAFETY: a view is only numbers until it is released, and releasing attaches to the interpreter first.
unsafe impl Send for View {}
// SAFETY: nothing is changed through a shared reference.
unsafe impl Sync for View {}

impl View {
    /// The bytes of `object`, contiguous; a `BufferError` or `TypeError` when it cannot give them so.
    pub(crate) fn bytes(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        Self::take(object.as_borrowed(), if writable { WRITABLE } else { 0 })
    }

    /// The items of a one-dimensional array, however strided; `None` when `object` is no such thing.
    pub(crate) fn items(object: Borrowed<'_, '_, PyAny>) -> Option<Self> {
        let view = Self::take(object, FORMAT | STRIDES).ok()?;
        (view.raw.ndim == 1 && view.raw.suboffsets.is_null()).then_some(view)
    }

    fn take(object: Borrowed<'_, '_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut raw = Box::new(RawBuffer {
            buf: ptr::null_mut(),
            obj: ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: ptr::null_mut(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        // SAFETY: the interpreter is attached (the object is borrowed from it) and `raw` is a `Py_buffer` to be filled in.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *raw, flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Self { raw })
    }

    pub(crate) fn addr(&self) -> u64 {
        self.raw.buf as u64
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.raw.len.unsigned_abs() as u64
    }

    pub(crate) fn readonly(&self) -> bool {
        self.raw.readonly != 0
    }

    /// The memory itself, for a read that is over before any Python code runs.
    ///
    /// # Safety
    /// The view is contiguous, and the caller stays attached and runs no Python code while it uses the slice.
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        if self.raw.len <= 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `len` bytes at `buf` readable until the view is released; that nothing changes
        // them meanwhile is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.raw.buf.cast(), self.raw.len as usize) }
    }

    /// How the items of a view made by [`View::items`] are read, if they are native integers.
    pub(crate) fn integers(&self) -> Option<Integers<'_>> {
        let format = if self.raw.format.is_null() {
            b"B".as_slice()
        } else {
            // SAFETY: a format is a NUL-terminated string that lives as long as the view.
            unsafe { CStr::from_ptr(self.raw.format) }.to_bytes()
        };
        let kind = match format {
            [kind] | [b'@' | b'=', kind] => *kind,
            [b'<', kind] if cfg!(target_endian = "little") => *kind,
            [b'>' | b'!', kind] if cfg!(target_endian = "big") => *kind,
            _ => return None,
        };
        let signed = match kind {
            b'B' | b'H' | b'I' | b'L' | b'Q' | b'N' | b'P' => false,
            b'b' | b'h' | b'i' | b'l' | b'q' | b'n' => true,
            _ => return None,
        };
        let width = usize::try_from(self.raw.itemsize).ok().filter(|width| matches!(width, 1 | 2 | 4 | 8))?;
        // SAFETY: a one-dimensional view has one length and one stride; both were asked for.
        let (count, stride) = unsafe { (*self.raw.shape, *self.raw.strides) };
        Some(Integers { view: self, signed, width, count: usize::try_from(count).ok()?, stride })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // Without an interpreter there is nobody left to give the view back to.
        let _ = Python::try_attach(|_| {
            // SAFETY: `raw` was filled by PyObject_GetBuffer, is released once, and the interpreter is attached.
            unsafe { PyBuffer_Release(&raw mut *self.raw) }
        });
    }
}

/// Integers of one machine type at a fixed distance.
pub(crate) struct Integers<'a> {
    view: &'a View,
    signed: bool,
    width: usize,
    count: usize,
    stride: isize,
}

impl Integers<'_> {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The item at `index`; `None` when it is negative.
    pub(crate) fn get(&self, index: usize) -> Option<u64> {
        assert!(index < self.count, "invariant: the caller stays within count()");
        // SAFETY: the exporter promises `count` items, `stride` bytes apart, and keeps them until the view is
        // released; each may be unaligned.
        unsafe {
            let at = self.view.raw.buf.cast::<u8>().offset(self.stride * index as isize);
            match (self.width, self.signed) {
                (1, false) => Some(u64::from(at.read())),
                (2, false) => Some(u64::from(at.cast::<u16>().read_unaligned())),
                (4, false) => Some(u64::from(at.cast::<u32>().read_unaligned())),
                (8, false) => Some(at.cast::<u64>().read_unaligned()),
                (1, true) => u64::try_from(at.cast::<i8>().read()).ok(),
                (2, true) => u64::try_from(at.cast::<i16>().read_unaligned()).ok(),
                (4, true) => u64::try_from(at.cast::<i32>().read_unaligned()).ok(),
                _ => u64::try_from(at.cast::<i64>().read_unaligned()).ok(),
            }
        }
    }
}

/// The class `Memory`: [`Allocation`] that also offers its memory through the buffer protocol.
pub(crate) fn memory_type(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_bf_getbuffer, pfunc: get_buffer as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_bf_releasebuffer, pfunc: release_buffer as *mut c_void },
        ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"moonrail._moonrail.Memory".as_ptr(),
        basicsize: 0,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE) as u32,
        slots: slots.as_mut_ptr(),
    };
    let bases = PyTuple::new(py, [py.get_type::<Allocation>()])?;
    // SAFETY: `spec` describes a type without data of its own (size 0: that of its base) and its slots are of the
    // types that their numbers stand for. CPython copies both; the name is static.
    let made = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpecWithBases(&raw mut spec, bases.as_ptr()))
    }?;
    Ok(made.cast_into::<PyType>()?)
}

unsafe extern "C" fn get_buffer(exporter: *mut ffi::PyObject, view: *mut RawBuffer, flags: c_int) -> c_int {
    Python::attach(|py| {
        // SAFETY: CPython calls this with an instance of the type above, attached.
        let object = unsafe { Bound::from_borrowed_ptr(py, exporter) };
        let offered = object.cast::<Allocation>().map_err(PyErr::from).and_then(|allocation| {
            let allocation = allocation.get();
            let range = allocation.range().ok_or_else(|| PyBufferError::new_err("the buffer was freed"))?;
            allocation.exports.fetch_add(1, Ordering::AcqRel);
            Ok(range)
        });
        match offered {
            // SAFETY: `view` is CPython's to be filled in; the memory lives as long as `exporter`, which the view holds.
            Ok((addr, len)) => unsafe {
                PyBuffer_FillInfo(view, exporter, addr as *mut c_void, len as isize, 0, flags)
            },
            Err(error) => {
                // SAFETY: CPython passes a view to be filled in; a failed call must leave no object in it.
                unsafe { (*view).obj = ptr::null_mut() };
                error.restore(py);
                -1
            }
        }
    })
}

unsafe extern "C" fn release_buffer(exporter: *mut ffi::PyObject, _view: *mut RawBuffer) {
    Python::attach(|py| {
        // SAFETY: CPython calls this with the object of a view that `get_buffer` filled, attached.
        let object = unsafe { Bound::from_borrowed_ptr(py, exporter) };
        if let Ok(allocation) = object.cast::<Allocation>() {
            allocation.get().exports.fetch_sub(1, Ordering::AcqRel);
        }
    });
}
