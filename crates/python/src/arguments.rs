//! Python arguments as Rust values: unsigned integers, text, lists of integers.
//!
//! A wrong type or a number outside 0..2**64 is a `TypeError`, as in the binding that callers know.

use std::ffi::c_ulong;
use std::ptr;

use moonrail::{Code, Entry, Error, Retry, Stage};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyString, PyTuple};
use pyo3::{Borrowed, ffi};

use crate::buffer::View;

/// An address, a length or an id: any object that is an integer, from 0 to 2**64-1.
#[derive(Clone, Copy)]
pub(crate) struct Unsigned(pub u64);

impl FromPyObject<'_, '_> for Unsigned {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        unsigned(&object).map(Self)
    }
}

/// Text: `str`, or `bytes` and `bytearray` taken as UTF-8.
pub(crate) enum Text<'a> {
    Str(&'a str),
    Bytes(Vec<u8>),
}

impl<'a> FromPyObject<'a, '_> for Text<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, '_, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            let text = object.extract::<&'a str>();
            return text
                .map(Self::Str)
                .map_err(|_| PyTypeError::new_err("a str with lone surrogates is no text"));
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.as_bytes().to_vec()));
        }
        if let Ok(bytes) = object.cast::<PyByteArray>() {
            return Ok(Self::Bytes(bytes.to_vec()));
        }
        Err(PyTypeError::new_err(format!("expected str, not {}", type_name(&object))))
    }
}

impl Text<'_> {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Str(text) => text.as_bytes().to_vec(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// The text, if it came as such.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            Self::Bytes(_) => None,
        }
    }

    /// The text, or why `what` is none.
    pub(crate) fn utf8(self, what: &str) -> Result<String, Error> {
        match self {
            Self::Str(text) => Ok(text.to_owned()),
            Self::Bytes(bytes) => utf8(bytes, what),
        }
    }
}

pub(crate) fn utf8(bytes: Vec<u8>, what: &str) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|_| invalid(Code::InvalidArgument, format!("{what} is not UTF-8")))
}

/// A sequence of integers that has not been read yet.
pub(crate) struct Numbers<'py>(Bound<'py, PyAny>);

impl<'py> FromPyObject<'_, 'py> for Numbers<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let text = object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>();
        // SAFETY: the object is borrowed from an attached interpreter; the check runs no Python code.
        if text || unsafe { ffi::PySequence_Check(object.as_ptr()) } == 0 {
            let message = format!("expected a sequence of integers, not {}", type_name(&object));
            return Err(PyTypeError::new_err(message));
        }
        Ok(Self(object.to_owned()))
    }
}

impl Numbers<'_> {
    /// The numbers; `name` is the argument's, for the error message.
    pub(crate) fn to_vec(&self, name: &str) -> PyResult<Vec<u64>> {
        let mut numbers = Vec::with_capacity(self.0.len()?);
        self.read(name, |_, number| numbers.push(number))?;
        Ok(numbers)
    }

    /// Hands every number to `sink` with its index, in one pass; says how many there were.
    fn read(&self, name: &str, mut sink: impl FnMut(usize, u64)) -> PyResult<usize> {
        if self.0.is_exact_instance_of::<PyList>() {
            // SAFETY: by the type, both functions may be called with the object, and any index.
            let size = |list: &Bound<'_, PyAny>| unsafe { ffi::PyList_Size(list.as_ptr()) };
            // SAFETY: as above.
            let item = |list: &Bound<'_, PyAny>, index| unsafe { ffi::PyList_GetItem(list.as_ptr(), index) };
            return read_fast(&self.0, name, size, item, sink);
        }
        if self.0.is_exact_instance_of::<PyTuple>() {
            // SAFETY: by the type, both functions may be called with the object, and any index.
            let size = |tuple: &Bound<'_, PyAny>| unsafe { ffi::PyTuple_Size(tuple.as_ptr()) };
            // SAFETY: as above.
            let item =
                |tuple: &Bound<'_, PyAny>, index| unsafe { ffi::PyTuple_GetItem(tuple.as_ptr(), index) };
            return read_fast(&self.0, name, size, item, sink);
        }
        if let Some(view) = View::items(self.0.as_borrowed())
            && let Some(integers) = view.integers()
        {
            for index in 0..integers.count() {
                let number = integers.get(index).ok_or_else(|| item_error(name, index, &out_of_range()))?;
                sink(index, number);
            }
            return Ok(integers.count());
        }
        let count = self.0.len()?;
        for index in 0..count {
            let number =
                unsigned(&self.0.get_item(index)?).map_err(|error| at_item(&self.0, name, index, error))?;
            sink(index, number);
        }
        Ok(count)
    }
}

/// The three lists of a batched call as descriptors. The outer error is a wrong type, the inner one lists that differ
/// in length.
pub(crate) fn entries(
    buffers: &Numbers<'_>,
    peer_addresses: &Numbers<'_>,
    lengths: &Numbers<'_>,
) -> PyResult<Result<Vec<Entry>, Error>> {
    let mut entries: Vec<Entry> = Vec::with_capacity(buffers.0.len()?);
    let locals = buffers.read("buffers", |_, local| entries.push(Entry { local, remote: 0, len: 0 }))?;
    let remotes = peer_addresses.read("peer_buffer_addresses", |index, remote| {
        if let Some(entry) = entries.get_mut(index) {
            entry.remote = remote;
        }
    })?;
    let sizes = lengths.read("lengths", |index, len| {
        if let Some(entry) = entries.get_mut(index) {
            entry.len = len;
        }
    })?;
    if locals == remotes && locals == sizes {
        return Ok(Ok(entries));
    }
    let message = format!(
        "the lists differ in length: {locals} local addresses, {remotes} peer addresses, {sizes} lengths; nothing was moved"
    );
    Ok(Err(invalid(Code::LengthMismatch, message)))
}

/// Something wrong with the arguments of a call.
pub(crate) fn invalid(code: Code, message: impl Into<String>) -> Error {
    Error::new(code, Stage::Arguments, Retry::AfterFix, message)
}

/// Lists and tuples: a million numbers are normal, so without a reference count and an object for each. `size` and `item`
/// are those of the sequence's type: `item` gives a borrowed reference, or null for an index that is out of range.
#[inline]
fn read_fast(
    sequence: &Bound<'_, PyAny>,
    name: &str,
    size: impl Fn(&Bound<'_, PyAny>) -> ffi::Py_ssize_t,
    item: impl Fn(&Bound<'_, PyAny>, ffi::Py_ssize_t) -> *mut ffi::PyObject,
    mut sink: impl FnMut(usize, u64),
) -> PyResult<usize> {
    let mut index = 0;
    // The lengths of a batch are often one object, many times.
    let mut last: (*mut ffi::PyObject, u64) = (ptr::null_mut(), 0);
    // The size is asked for each time, because `__index__` of an item may change a list.
    while index < size(sequence) {
        let object = item(sequence, index);
        if object != last.0 {
            last = match read_exact(object) {
                Some(number) => (object, number),
                None => {
                    // SAFETY: the index was in range, so this is an object that the sequence holds; the reference taken
                    // here keeps it alive whatever its `__index__` does.
                    let object = unsafe { Bound::from_borrowed_ptr(sequence.py(), object) };
                    let number = unsigned(&object)
                        .map_err(|error| at_item(sequence, name, index.unsigned_abs(), error))?;
                    (ptr::null_mut(), number)
                }
            };
        }
        sink(index.unsigned_abs(), last.1);
        index += 1;
    }
    Ok(index.unsigned_abs())
}

/// The value of an `int` (or of a subclass: then too it never changes), or `None` for all else and what is out of range.
/// Runs no Python code.
#[inline]
fn read_exact(object: *mut ffi::PyObject) -> Option<u64> {
    // SAFETY: the caller is attached and passes an object that is alive.
    unsafe {
        if ffi::PyLong_Check(object) == 0 {
            return None;
        }
        // On 64-bit targets it does the same as PyLong_AsUnsignedLongLong, in half the time before Python 3.14.
        let number = ffi::PyLong_AsUnsignedLong(object);
        if number == c_ulong::MAX && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(number)
    }
}

/// Any integer object in range; everything else is a `TypeError`.
fn unsigned(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Some(number) = read_exact(object.as_ptr()) {
        return Ok(number);
    }
    let py = object.py();
    let wrong = || PyTypeError::new_err(format!("expected an integer, not {}", type_name(object)));
    // SAFETY: attached, and the object is alive; a null result comes with an exception set.
    let integer = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyNumber_Index(object.as_ptr())) }
        .map_err(|error| if error.is_instance_of::<PyTypeError>(py) { wrong() } else { error })?;
    read_exact(integer.as_ptr()).ok_or_else(|| PyTypeError::new_err(out_of_range()))
}

fn out_of_range() -> String {
    "the integer is not within 0..2**64".to_owned()
}

fn item_error(name: &str, index: usize, message: &str) -> PyErr {
    PyTypeError::new_err(format!("argument '{name}', item {index}: {message}"))
}

/// A conversion's `TypeError` with its place; other exceptions of `__index__` as they are.
fn at_item(sequence: &Bound<'_, PyAny>, name: &str, index: usize, error: PyErr) -> PyErr {
    let py = sequence.py();
    if error.is_instance_of::<PyTypeError>(py) {
        item_error(name, index, &error.value(py).to_string())
    } else {
        error
    }
}

fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}
