//! The engine's errors as Python objects. The classes are written in Python, in `moonrail.errors`.

use moonrail::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// The exception that stands for `error`.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    match build(py, &MAKE, "exception", error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(other) => other,
    }
}

/// The text of `error` as a `str` that also carries its parts; empty for none.
pub(crate) fn text<'py>(py: Python<'py>, error: Option<&Error>) -> PyResult<Bound<'py, PyAny>> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static NONE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    match error {
        Some(error) => build(py, &MAKE, "ErrorText", error),
        None => NONE.import(py, "moonrail.errors", "ErrorText")?.call1(("",)),
    }
}

fn build<'py>(
    py: Python<'py>,
    cache: &'static PyOnceLock<Py<PyAny>>,
    name: &str,
    error: &Error,
) -> PyResult<Bound<'py, PyAny>> {
    let parts = PyDict::new(py);
    parts.set_item("code", error.code().as_str())?;
    parts.set_item("peer", error.peer())?;
    parts.set_item("index", error.index())?;
    parts.set_item("stage", error.stage().as_str())?;
    parts.set_item("retry", error.retry().as_str())?;
    cache.import(py, "moonrail.errors", name)?.call((error.to_string(),), Some(&parts))
}
