//! `TransferOpcode` and `TransferNotify`, as the binding that callers know has them.

use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyUnicodeDecodeError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PyString};

use crate::arguments::{Text, invalid, utf8};
use moonrail::{Code, Error, Notify, Opcode};

/// Direction of a transfer, seen from the caller.
///
/// Members are `Read` (0: from the peer's memory into local memory) and `Write` (1: from local memory into the
/// peer's). It compares equal only to its own kind (`TransferOpcode.Write == 1` is False), has no order and no
/// bit operations; `int()` gives its number.
#[pyclass(frozen, module = "moonrail.mooncake", name = "TransferOpcode")]
pub(crate) struct TransferOpcode {
    number: i64,
}

const MEMBERS: [&str; 2] = ["Read", "Write"];

#[pymethods]
impl TransferOpcode {
    #[new]
    fn new(value: i64) -> Self {
        Self { number: value }
    }

    /// The member's name, `???` for a number without one.
    #[getter]
    fn name(&self) -> &'static str {
        usize::try_from(self.number).ok().and_then(|number| MEMBERS.get(number)).copied().unwrap_or("???")
    }

    /// The member's number.
    #[getter]
    fn value(&self) -> i64 {
        self.number
    }

    fn __int__(&self) -> i64 {
        self.number
    }

    fn __index__(&self) -> i64 {
        self.number
    }

    fn __hash__(&self) -> isize {
        // -1 is how CPython says that hashing failed.
        if self.number == -1 { -2 } else { self.number as isize }
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let equal = other.cast::<Self>().is_ok_and(|other| other.get().number == self.number);
        match op {
            CompareOp::Eq => equal.into_py_any(py),
            CompareOp::Ne => (!equal).into_py_any(py),
            _ => Ok(py.NotImplemented()),
        }
    }

    fn __repr__(&self) -> String {
        format!("<TransferOpcode.{}: {}>", self.name(), self.number)
    }

    fn __str__(&self) -> String {
        format!("TransferOpcode.{}", self.name())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyAny>, (i64,)) {
        (py.get_type::<Self>().into_any(), (self.number,))
    }
}

impl TransferOpcode {
    pub(crate) fn opcode(&self) -> Result<Opcode, Error> {
        match self.number {
            0 => Ok(Opcode::Read),
            1 => Ok(Opcode::Write),
            other => Err(invalid(
                Code::InvalidArgument,
                format!("there is no opcode {other}; Read is 0 and Write is 1"),
            )),
        }
    }

    /// Puts the members where callers look for them: on the class, and on `module`.
    pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let class = py.get_type::<Self>();
        let members = PyDict::new(py);
        for (number, name) in (0..).zip(MEMBERS) {
            let member = Py::new(py, Self { number })?;
            class.setattr(name, &member)?;
            module.add(name, &member)?;
            members.set_item(name, member)?;
        }
        class.setattr("__members__", members)?;
        module.add("TransferOpcode", class)
    }
}

/// A short message for the peer, delivered when a transfer is complete.
///
/// `TransferNotify()` or `TransferNotify(name, msg)`. Both attributes can be read and set. By convention `name` is
/// the sender's segment name. Text that is not UTF-8 can be set as bytes and raises `UnicodeDecodeError` when read.
#[pyclass(frozen, module = "moonrail.mooncake", name = "TransferNotify")]
pub(crate) struct TransferNotify {
    name: Mutex<Vec<u8>>,
    msg: Mutex<Vec<u8>>,
}

#[pymethods]
impl TransferNotify {
    #[new]
    #[pyo3(signature = (name = None, msg = None))]
    fn new(name: Option<Text<'_>>, msg: Option<Text<'_>>) -> PyResult<Self> {
        if name.is_some() != msg.is_some() {
            return Err(PyTypeError::new_err("TransferNotify takes a name and a msg, or neither"));
        }
        let bytes = |text: Option<Text<'_>>| Mutex::new(text.map(Text::into_bytes).unwrap_or_default());
        Ok(Self { name: bytes(name), msg: bytes(msg) })
    }

    /// By convention the sender's segment name.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        decode(py, &self.name.lock())
    }

    #[setter]
    fn set_name(&self, value: Text<'_>) {
        *self.name.lock() = value.into_bytes();
    }

    /// The message.
    #[getter]
    fn msg<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        decode(py, &self.msg.lock())
    }

    #[setter]
    fn set_msg(&self, value: Text<'_>) {
        *self.msg.lock() = value.into_bytes();
    }

    fn __repr__(&self) -> String {
        let text = |bytes: &Mutex<Vec<u8>>| String::from_utf8_lossy(&bytes.lock()).into_owned();
        format!("<TransferNotify name={:?} msg={:?}>", text(&self.name), text(&self.msg))
    }
}

impl TransferNotify {
    pub(crate) fn of(notify: Notify) -> Self {
        Self { name: Mutex::new(notify.name.into_bytes()), msg: Mutex::new(notify.message.into_bytes()) }
    }

    pub(crate) fn notify(&self) -> Result<Notify, Error> {
        let name = utf8(self.name.lock().clone(), "the notification's name")?;
        let message = utf8(self.msg.lock().clone(), "the notification's msg")?;
        Ok(Notify { name, message })
    }
}

fn decode<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text)),
        Err(error) => Err(PyUnicodeDecodeError::new_err_from_utf8(py, bytes, error)),
    }
}
