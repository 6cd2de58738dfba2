//! The engine as the typed API's Python code sees it: exceptions instead of numbers, no conveniences.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use moonrail::{
    BadPaths, Code, Config, Engine, Entry, Error, ForkGuard, KeySource, Limit, Notify, Opcode, Request,
    Retry, Rights, Stage, TlsSource, UnknownName, V1Clients,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::activity::Activity;
use crate::arguments::{Numbers, Unsigned, entries, invalid};
use crate::completion::Batch;
use crate::interrupt;
use crate::{errors, log, session};

/// A running engine.
#[pyclass(frozen, weakref, module = "moonrail._moonrail")]
pub(crate) struct Core {
    engine: Option<Engine>,
    pub activity: Activity,
    fork_guard: ForkGuard,
}

/// Everything an engine may be told; `None` leaves what the environment or the default says.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    protocol: Option<String>,
    strict: Option<bool>,
    listen: Option<String>,
    ports: Option<(u16, u16)>,
    connect_timeout: Option<f64>,
    handshake_timeout: Option<f64>,
    progress_timeout: Option<f64>,
    call_timeout: Option<f64>,
    unregister_timeout: Option<f64>,
    lanes_per_peer: Option<usize>,
    paths: Option<String>,
    huge_pages: Option<bool>,
    cluster_id: Option<String>,
    refuse_v1: Option<bool>,
    key_file: Option<PathBuf>,
    key: Option<String>,
    checksum: Option<bool>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_ca: Option<Vec<PathBuf>>,
    tls_pins: Option<PathBuf>,
    tls_name: Option<String>,
    allow: Option<String>,
    metrics: Option<String>,
}

#[pymethods]
impl Core {
    #[new]
    fn new(py: Python<'_>, name: String, metadata: String, options: Options) -> PyResult<Self> {
        log::start();
        let config = options.config(name, metadata).map_err(|error| errors::exception(py, &error))?;
        let engine = raising(py, move || Engine::start(config))?;
        Ok(Self { engine: Some(engine), activity: Activity::default(), fork_guard: ForkGuard::new() })
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.engine(py)?.name().to_owned())
    }

    #[getter]
    fn rpc_port(&self, py: Python<'_>) -> PyResult<u16> {
        Ok(self.engine(py)?.rpc_port())
    }

    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.engine(py)?.epoch())
    }

    fn register(
        &self,
        py: Python<'_>,
        addr: Unsigned,
        nbytes: Unsigned,
        name: Option<String>,
        readonly: bool,
        guarded: bool,
    ) -> PyResult<()> {
        let engine = self.engine(py)?;
        let region = session::region(addr.0, nbytes.0, "*", name);
        let (range, mut options) = region.map_err(|error| errors::exception(py, &error))?;
        options.access = session::access(readonly);
        options.guarded = guarded;
        interrupt::registering(py, engine, &self.activity, move |engine| engine.register(range, options))?
            .map_err(|error| errors::exception(py, &error))
    }

    /// A region token as text.
    fn token(
        &self,
        py: Python<'_>,
        addr: Unsigned,
        read: bool,
        write: bool,
        valid_for: Option<f64>,
    ) -> PyResult<String> {
        let engine = self.engine(py)?;
        let valid = valid_for.map(|seconds| duration(seconds, "valid_for")).transpose();
        let token = valid.and_then(|valid| engine.token(addr.0, Rights { read, write }, valid));
        token.map_err(|error| errors::exception(py, &error))
    }

    fn present(&self, py: Python<'_>, token: &str) -> PyResult<()> {
        self.engine(py)?.present(token).map_err(|error| errors::exception(py, &error))
    }

    fn limit(
        &self,
        py: Python<'_>,
        peer: &str,
        bytes_per_second: Option<Unsigned>,
        background: bool,
    ) -> PyResult<()> {
        let engine = self.engine(py)?;
        let rate = bytes_per_second.map(|rate| {
            NonZeroU64::new(rate.0).ok_or_else(|| {
                invalid(Code::InvalidArgument, "bytes_per_second is 0; None lifts the limit".to_owned())
            })
        });
        let limited = rate
            .transpose()
            .and_then(|rate| engine.limit(peer, Limit { bytes_per_second: rate, background }));
        limited.map_err(|error| errors::exception(py, &error))
    }

    fn unregister(&self, py: Python<'_>, addr: Unsigned) -> PyResult<()> {
        let engine = self.engine(py)?;
        interrupt::registering(py, engine, &self.activity, move |engine| engine.unregister(addr.0))?
            .map_err(|error| errors::exception(py, &error))
    }

    #[expect(clippy::too_many_arguments, reason = "called from one place, by position")]
    fn transfer(
        &self,
        py: Python<'_>,
        peer: String,
        write: bool,
        local: Numbers<'_>,
        remote: Numbers<'_>,
        lengths: Numbers<'_>,
        notify: Option<(String, String)>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let engine = self.borrow(py)?;
        let request = request(py, peer, write, [local, remote, lengths], notify, timeout)?;
        interrupt::transferring(py, engine, &self.activity, request)?
            .map_err(|error| errors::exception(py, &error))
    }

    #[expect(clippy::too_many_arguments, reason = "called from one place, by position")]
    fn submit(
        &self,
        py: Python<'_>,
        peer: String,
        write: bool,
        local: Numbers<'_>,
        remote: Numbers<'_>,
        lengths: Numbers<'_>,
        notify: Option<(String, String)>,
        timeout: Option<f64>,
    ) -> PyResult<Batch> {
        let engine = self.engine(py)?;
        let request = request(py, peer, write, [local, remote, lengths], notify, timeout)?;
        let running = self.activity.begin();
        let completion =
            py.detach(|| engine.submit(request)).map_err(|error| errors::exception(py, &error))?;
        running.until(&completion);
        Ok(Batch::new(completion))
    }

    fn notify(&self, py: Python<'_>, peer: String, name: String, message: String) -> PyResult<()> {
        let engine = self.engine(py)?;
        raising(py, move || engine.notify(&peer, &Notify { name, message }))
    }

    fn take_notifies(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let notifies = self.engine(py)?.take_notifies();
        Ok(notifies.into_iter().map(|notify| (notify.name, notify.message)).collect())
    }

    /// Round trip in seconds, and whether the peer was too old for a probe.
    fn probe(&self, py: Python<'_>, peer: String) -> PyResult<(f64, bool)> {
        let engine = self.engine(py)?;
        let report = raising(py, move || engine.probe(&peer))?;
        Ok((report.round_trip.as_secs_f64(), report.legacy))
    }

    fn peer<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyDict>> {
        let engine = self.engine(py)?;
        let report = raising(py, move || engine.peer(&name))?;
        let dict = PyDict::new(py);
        dict.set_item("name", report.name)?;
        dict.set_item("release", report.release)?;
        dict.set_item("protocol", report.protocol)?;
        dict.set_item("data_version", report.data_version)?;
        dict.set_item("path", report.path)?;
        dict.set_item("why_not_shm", report.why_not_shm)?;
        dict.set_item("mapped_bytes", report.mapped_bytes)?;
        dict.set_item("dialect", report.dialect)?;
        dict.set_item("data", report.data.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        dict.set_item("handshake", report.handshake)?;
        dict.set_item("epoch", report.epoch)?;
        dict.set_item("buffers", report.buffers)?;
        let names: Vec<_> = report.names.into_iter().map(|name| (name.name, name.addr, name.len)).collect();
        dict.set_item("names", names)?;
        dict.set_item("serves", report.capabilities.serves)?;
        dict.set_item("lacks", report.capabilities.lacks)?;
        Ok(dict)
    }

    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self.engine(py)?.report().map_err(|error| errors::exception(py, &error))?;
        let dict = PyDict::new(py);
        dict.set_item("name", report.name)?;
        dict.set_item("epoch", report.epoch)?;
        dict.set_item("handshake", report.handshake.to_string())?;
        dict.set_item("data", report.data.to_string())?;
        dict.set_item("metrics", report.metrics.map(|at| at.to_string()))?;
        dict.set_item("paths", report.paths)?;
        dict.set_item("fallbacks", report.fallbacks)?;
        dict.set_item("regions", report.regions)?;
        dict.set_item("registered_bytes", report.registered_bytes)?;
        dict.set_item("huge_page_bytes", report.huge_page_bytes)?;
        dict.set_item("served", report.served)?;
        dict.set_item("refused", report.refused)?;
        dict.set_item("bytes_in", report.bytes_in)?;
        dict.set_item("bytes_out", report.bytes_out)?;
        Ok(dict)
    }

    /// Ends the engine; further calls raise. The second call does nothing.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        if self.fork_guard.forked() {
            return Ok(());
        }
        let engine = self.engine(py)?;
        raising(py, move || {
            engine.shutdown();
            Ok(())
        })
    }
}

impl Core {
    /// The engine, if it belongs to this process. Looked at before anything that takes a lock.
    pub(crate) fn engine(&self, py: Python<'_>) -> PyResult<Engine> {
        self.borrow(py).cloned()
    }

    fn borrow(&self, py: Python<'_>) -> PyResult<&Engine> {
        if self.fork_guard.forked() {
            return Err(errors::exception(py, &session::forked()));
        }
        Ok(self.engine.as_ref().expect("invariant: only Drop takes the engine"))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else { return };
        if self.fork_guard.forked() {
            std::mem::forget(engine);
            return;
        }
        // Memory that views still show keeps a handle on the engine, so dropping it here need not end it.
        let mut engine = Some(engine);
        let mut end = || {
            if let Some(engine) = engine.take() {
                engine.shutdown();
            }
        };
        if Python::try_attach(|py| py.detach(&mut end)).is_none() {
            end();
        }
    }
}

impl Options {
    fn config(self, name: String, metadata: String) -> Result<Config, Error> {
        let mut config = Config::new(name, metadata).with_environment()?;
        let set = |to: &mut Duration, seconds: Option<f64>, what: &str| -> Result<(), Error> {
            if let Some(seconds) = seconds {
                *to = duration(seconds, what)?;
            }
            Ok(())
        };
        let timeouts = &mut config.timeouts;
        set(&mut timeouts.connect, self.connect_timeout, "connect_timeout")?;
        set(&mut timeouts.handshake, self.handshake_timeout, "handshake_timeout")?;
        set(&mut timeouts.progress, self.progress_timeout, "progress_timeout")?;
        set(&mut timeouts.unregister, self.unregister_timeout, "unregister_timeout")?;
        if let Some(seconds) = self.call_timeout {
            timeouts.call = Some(duration(seconds, "call_timeout")?);
        }
        if let Some(protocol) = self.protocol {
            config.protocol = protocol;
        }
        if let Some(listen) = self.listen {
            let address: Result<IpAddr, _> = listen.parse();
            config.listen = Some(
                address.map_err(|_| initialize(format!("listen is {listen:?}; it takes an IP address")))?,
            );
        }
        if let Some((low, high)) = self.ports {
            if low == 0 || low > high {
                return Err(initialize(format!(
                    "ports are {low} to {high}; the first is at least 1 and not above the last"
                )));
            }
            config.ports = low..=high;
        }
        if let Some(lanes) = self.lanes_per_peer {
            if !(1..=16).contains(&lanes) {
                return Err(initialize(format!("lanes_per_peer is {lanes}; it takes 1 to 16")));
            }
            config.lanes_per_peer = lanes;
        }
        if let Some(names) = self.paths {
            config.paths = names
                .parse()
                .map_err(|takes: BadPaths| initialize(format!("paths is {names:?}; it takes {takes}")))?;
        }
        config.huge_pages = self.huge_pages.unwrap_or(config.huge_pages);
        if let Some(refuse) = self.refuse_v1 {
            config.v1_clients = if refuse { V1Clients::Refuse } else { V1Clients::Serve };
        }
        config.key = match (self.key_file, self.key) {
            (Some(_), Some(_)) => {
                return Err(initialize("key_file and key are both given; one is meant".to_owned()));
            }
            (Some(path), None) => Some(KeySource::File(path)),
            (None, Some(key)) => Some(KeySource::text("key", key)),
            (None, None) => config.key,
        };
        config.checksum = self.checksum.unwrap_or(config.checksum);
        let more = self.tls_ca.is_some() || self.tls_pins.is_some() || self.tls_name.is_some();
        config.tls = match (self.tls_cert, self.tls_key) {
            (Some(cert), Some(key)) => {
                let ca = self.tls_ca.unwrap_or_default();
                Some(TlsSource { cert, key, ca, pins: self.tls_pins, name: self.tls_name })
            }
            (None, None) if !more => config.tls,
            _ => return Err(initialize("tls_cert and tls_key are given together".to_owned())),
        };
        if let Some(allow) = self.allow {
            config.allow =
                allow.parse().map_err(|error: UnknownName| initialize(format!("allow: {error}")))?;
        }
        config.metrics = self.metrics.or(config.metrics);
        config.strict = self.strict.unwrap_or(config.strict);
        config.cluster_id = self.cluster_id.or(config.cluster_id);
        Ok(config)
    }
}

fn request(
    py: Python<'_>,
    peer: String,
    write: bool,
    lists: [Numbers<'_>; 3],
    notify: Option<(String, String)>,
    timeout: Option<f64>,
) -> PyResult<Request> {
    let [local, remote, lengths] = &lists;
    let entries: Result<Vec<Entry>, Error> = entries(local, remote, lengths)?;
    let built = entries.and_then(|entries| {
        let opcode = if write { Opcode::Write } else { Opcode::Read };
        let mut request = Request::new(peer, opcode, entries);
        request.notify = notify.map(|(name, message)| Notify { name, message });
        request.timeout = timeout.map(|seconds| duration(seconds, "timeout")).transpose()?;
        Ok(request)
    });
    built.map_err(|error| errors::exception(py, &error))
}

pub(crate) fn duration(seconds: f64, what: &str) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        invalid(Code::InvalidArgument, format!("{what} is {seconds}; it takes seconds, 0 or more"))
    })
}

fn initialize(message: String) -> Error {
    Error::new(Code::InvalidArgument, Stage::Initialize, Retry::AfterFix, message)
}

/// Runs work that cannot be interrupted otherwise; its failure is an exception.
pub(crate) fn raising<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    interrupt::interruptible(py, work)?.map_err(|error| errors::exception(py, &error))
}
