//! `TransferEngine`, the drop-in class: signatures, conversions and return values that callers know.
//!
//! Every method ends in a number or an object, never in a crash: a failure is -1 (a more exact code where there is
//! one, 0 where an id or address is returned), one log line, and the whole story in `last_error()`.

use moonrail::Error;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{Numbers, Text, Unsigned};
use crate::buffer::View;
use crate::opcode::TransferNotify;
use crate::session::{self, Session};
use crate::{errors, interrupt, topology};

/// A handle that other native libraries take; opaque.
#[pyclass(frozen, module = "moonrail.mooncake", name = "InnerTransferEngine")]
pub(crate) struct InnerTransferEngine {
    _engine: Py<TransferEngine>,
}

/// A transfer engine with the interface of `mooncake.engine.TransferEngine`.
///
/// Addresses and lengths are integers from 0 to 2**64-1, lists are any sequences of such or integer arrays. A wrong
/// type raises TypeError. Everything else that goes wrong gives a negative number (0 where an id or address is
/// returned) and a text in last_error(). Waits release the interpreter and end on Ctrl-C.
#[pyclass(frozen, subclass, weakref, module = "moonrail.mooncake", name = "TransferEngine")]
pub(crate) struct TransferEngine {
    pub(crate) session: Session,
}

impl TransferEngine {
    /// Remembers how a call ended: 0 or `code(error)`.
    pub(crate) fn number(&self, method: &str, outcome: Result<(), Error>, code: fn(&Error) -> i32) -> i32 {
        match outcome {
            Ok(()) => {
                self.session.failures.clear();
                0
            }
            Err(error) => {
                let code = code(&error);
                self.session.failures.keep(method, &code.to_string(), &error);
                code
            }
        }
    }

    /// The same for calls that return an id, an address or an object.
    pub(crate) fn value<T>(&self, method: &str, shown: &str, outcome: Result<T, Error>, otherwise: T) -> T {
        match outcome {
            Ok(value) => {
                self.session.failures.clear();
                value
            }
            Err(error) => {
                self.session.failures.keep(method, shown, &error);
                otherwise
            }
        }
    }
}

pub(crate) fn general(_: &Error) -> i32 {
    -1
}

/// The exact code, for the calls whose callers know such.
fn mooncake(error: &Error) -> i32 {
    error.code().mooncake()
}

#[pymethods]
impl TransferEngine {
    #[new]
    fn new() -> Self {
        Self { session: Session::new() }
    }

    /// Starts the engine; a second call replaces the first engine. Returns 0 or -1.
    ///
    /// host: the address or name that peers reach this process under, optionally with `:port`. metadata_server:
    /// "P2PHANDSHAKE" or "http://host:port/metadata". protocol: "tcp"; "rdma" warns once and uses TCP, anything else
    /// is an error. device_name: ignored.
    #[pyo3(signature = (host, metadata_server, protocol, device_name, /))]
    fn initialize(
        &self,
        py: Python<'_>,
        host: Text<'_>,
        metadata_server: Text<'_>,
        protocol: Text<'_>,
        device_name: Option<Text<'_>>,
    ) -> PyResult<i32> {
        drop(device_name);
        let config = host.utf8("host").and_then(|host| {
            session::config(host, metadata_server.utf8("metadata_server")?, protocol.utf8("protocol")?)
        });
        Ok(self.number("initialize", self.session.initialize(py, config)?, general))
    }

    /// As initialize, with the metadata server's kind apart: the connection string is
    /// `metadata_type://metadata_server` unless it already has "://" or is P2PHANDSHAKE.
    #[pyo3(signature = (host, metadata_server, protocol, device_name, metadata_type, /))]
    fn initialize_ext(
        &self,
        py: Python<'_>,
        host: Text<'_>,
        metadata_server: Text<'_>,
        protocol: Text<'_>,
        device_name: Option<Text<'_>>,
        metadata_type: Text<'_>,
    ) -> PyResult<i32> {
        drop(device_name);
        let config = host.utf8("host").and_then(|host| {
            let server = metadata_server.utf8("metadata_server")?;
            let complete = server.contains("://") || server == "P2PHANDSHAKE";
            let kind = metadata_type.utf8("metadata_type")?;
            let server = if complete { server } else { format!("{kind}://{server}") };
            session::config(host, server, protocol.utf8("protocol")?)
        });
        Ok(self.number("initialize_ext", self.session.initialize(py, config)?, general))
    }

    /// The handshake port: peers call this engine `host:port`. -1 before initialize.
    fn get_rpc_port(&self) -> i32 {
        let port = self.session.live().map(|live| i32::from(live.engine.rpc_port()));
        self.value("get_rpc_port", "-1", port, -1)
    }

    /// Allocates zeroed, registered memory of length bytes. Returns its address, 0 on failure.
    #[pyo3(signature = (length, /))]
    fn allocate_managed_buffer(&self, py: Python<'_>, length: Unsigned) -> PyResult<u64> {
        let outcome = match self.session.live() {
            Ok(live) => {
                interrupt::registering(py, live.engine.clone(), &self.session.activity, move |engine| {
                    engine.allocate(length.0)
                })?
            }
            Err(error) => Err(error),
        };
        Ok(self.value("allocate_managed_buffer", "0", outcome, 0))
    }

    /// Gives back what allocate_managed_buffer returned. Returns 0, or -1 for anything else.
    #[pyo3(signature = (addr, length, /))]
    fn free_managed_buffer(&self, py: Python<'_>, addr: Unsigned, length: Unsigned) -> PyResult<i32> {
        let _ = length;
        let outcome = match self.session.live() {
            Ok(live) => {
                interrupt::registering(py, live.engine.clone(), &self.session.activity, move |engine| {
                    engine.free(addr.0)
                })?
            }
            Err(error) => Err(error),
        };
        Ok(self.number("free_managed_buffer", outcome, general))
    }

    /// Makes memory reachable for peers and usable for transfers. Returns 0, -7 when it overlaps a registered region,
    /// -200 when a metadata server does not take it, else -1. location is a hint and changes nothing.
    #[pyo3(signature = (buffer_addr, capacity, location = "*"))]
    fn register_memory(
        &self,
        py: Python<'_>,
        buffer_addr: Unsigned,
        capacity: Unsigned,
        location: &str,
    ) -> PyResult<i32> {
        let regions = session::region(buffer_addr.0, capacity.0, location, None).map(|region| vec![region]);
        Ok(self.number("register_memory", self.session.register(py, regions)?, mooncake))
    }

    /// Ends the registration that starts at addr. Once it returned 0 no peer can touch the memory any more. Returns -3
    /// when no region starts there, -4 when a transfer did not let go of it in time: it must not be freed then.
    #[pyo3(signature = (addr, /))]
    fn unregister_memory(&self, py: Python<'_>, addr: Unsigned) -> PyResult<i32> {
        Ok(self.number("unregister_memory", self.session.unregister(py, vec![addr.0])?, mooncake))
    }

    /// register_memory for many regions, all or none.
    #[pyo3(signature = (buffer_addresses, capacities, location = "*"))]
    fn batch_register_memory(
        &self,
        py: Python<'_>,
        buffer_addresses: Numbers<'_>,
        capacities: Numbers<'_>,
        location: &str,
    ) -> PyResult<i32> {
        let (addrs, sizes) = (buffer_addresses.to_vec("buffer_addresses")?, capacities.to_vec("capacities")?);
        let regions = session::regions(&addrs, &sizes, location);
        Ok(self.number("batch_register_memory", self.session.register(py, regions)?, mooncake))
    }

    /// unregister_memory for many regions; goes on after a failure and returns the first one's code.
    #[pyo3(signature = (buffer_addresses, /))]
    fn batch_unregister_memory(&self, py: Python<'_>, buffer_addresses: Numbers<'_>) -> PyResult<i32> {
        let addrs = buffer_addresses.to_vec("buffer_addresses")?;
        Ok(self.number("batch_unregister_memory", self.session.unregister(py, addrs)?, mooncake))
    }

    /// The address of the first buffer that a peer registered; 0 when it has none or does not answer.
    #[pyo3(signature = (segment_name, /))]
    fn get_first_buffer_address(&self, py: Python<'_>, segment_name: Text<'_>) -> PyResult<u64> {
        let outcome =
            match self.session.live().and_then(|live| Ok((live, segment_name.utf8("segment_name")?))) {
                Ok((live, name)) => interrupt::interruptible(py, move || live.engine.first_buffer(&name))?,
                Err(error) => Err(error),
            };
        Ok(self.value("get_first_buffer_address", "0", outcome, 0))
    }

    /// Copies the first length bytes of src (bytes-like or str) to local address dest. Returns 0, or -1 when src is
    /// shorter or dest does not lie in a registered region.
    #[pyo3(signature = (dest, src, length, /))]
    fn write_bytes_to_buffer(
        &self,
        dest: Unsigned,
        src: &Bound<'_, PyAny>,
        length: Unsigned,
    ) -> PyResult<i32> {
        let outcome = match src.extract::<&str>() {
            Ok(text) => self.session.write_local(dest.0, text.as_bytes(), length.0),
            Err(_) => {
                let view = View::bytes(src, false)?;
                // SAFETY: the view is contiguous, and the copy is over before any Python code runs.
                self.session.write_local(dest.0, unsafe { view.as_slice() }, length.0)
            }
        };
        Ok(self.number("write_bytes_to_buffer", outcome, general))
    }

    /// The length bytes at local address src; None when they do not lie in registered memory.
    #[pyo3(signature = (src, length, /))]
    fn read_bytes_from_buffer<'py>(
        &self,
        py: Python<'py>,
        src: Unsigned,
        length: Unsigned,
    ) -> Option<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.session.read_local(src.0, length.0));
        self.value("read_bytes_from_buffer", "None", bytes.map(Some), None)
            .map(|bytes| PyBytes::new(py, &bytes))
    }

    /// The notifications that peers left since the last call, in order of arrival. Never waits.
    fn get_notifies(&self) -> Vec<TransferNotify> {
        let notifies = self.session.live().map(|live| live.engine.take_notifies());
        let notifies = self.value("get_notifies", "[]", notifies, Vec::new());
        notifies.into_iter().map(TransferNotify::of).collect()
    }

    /// Asks whether a peer is alive. Returns 0, -101 when its name does not resolve, -102 when it cannot be reached,
    /// -200 when there is no such name, else -1.
    #[pyo3(signature = (peer_server_name))]
    fn send_probe(&self, py: Python<'_>, peer_server_name: Text<'_>) -> PyResult<i32> {
        let outcome =
            match self.session.live().and_then(|live| Ok((live, peer_server_name.utf8("peer_server_name")?)))
            {
                Ok((live, name)) => interrupt::interruptible(py, move || live.engine.probe(&name).map(drop))?,
                Err(error) => Err(error),
            };
        Ok(self.number("send_probe", outcome, mooncake))
    }

    /// The memory nodes of this machine and the RDMA devices near each (none in this build), as JSON. Works before
    /// initialize.
    #[pyo3(signature = (device_name = None))]
    fn get_local_topology(&self, device_name: Option<Text<'_>>) -> String {
        drop(device_name);
        topology::json()
    }

    /// Does nothing, successfully: there is no EFA here to warm up.
    #[pyo3(signature = (segment_name))]
    fn warmup_efa_segment(&self, segment_name: Text<'_>) -> i32 {
        drop(segment_name);
        0
    }

    /// An opaque handle; None before initialize.
    fn get_engine(slf: &Bound<'_, Self>) -> PyResult<Option<Py<InnerTransferEngine>>> {
        let engine = slf.get();
        if let Err(error) = engine.session.live() {
            return Ok(engine.value("get_engine", "None", Err(error), None));
        }
        Py::new(slf.py(), InnerTransferEngine { _engine: slf.clone().unbind() }).map(Some)
    }

    /// 0: there is no C++ engine whose address could be given.
    fn get_engine_ptr(&self) -> u64 {
        0
    }

    /// Whether failures are written to the log, for callers that log them with the same words themselves.
    fn _log_failures(&self, on: bool) {
        self.session.failures.set_logged(on);
    }

    /// Why this thread's last call of this engine failed: a str with the attributes code, peer, index, stage and retry.
    /// Empty, all None, when it succeeded, unless a call in another thread has failed since: then that failure's.
    fn last_error<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        errors::text(py, self.session.failures.last().as_ref())
    }
}
