//! The engine behind a drop-in object: which one it is now, and what its calls came to.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use moonrail::{
    Access, Code, Config, Engine, Entry, Error, ForkGuard, MemoryRange, Notify, Opcode, RegionOptions,
    Request, Retry, Stage,
};
use pyo3::prelude::*;

use crate::activity::Activity;
use crate::arguments::invalid;
use crate::batches::{Batch, Batches};
use crate::failures::Failures;
use crate::interrupt;
use crate::log;

/// Limit of one transfer, to which 1 ns a byte is added, unless `MC_TRANSFER_TIMEOUT` says otherwise.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// What `MC_TRANSFER_TIMEOUT` is raised to.
const LEAST_CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that are copied out at a time.
const READ_STEP: u64 = 8 << 20;

pub(crate) struct Session {
    live: ArcSwapOption<Live>,
    next_batch: AtomicU64,
    /// Transfers of every engine this object had.
    pub activity: Activity,
    pub failures: Failures,
}

/// An engine that runs, and the process that started it.
pub(crate) struct Live {
    pub engine: Engine,
    pub batches: Batches,
    fork_guard: ForkGuard,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self {
            live: ArcSwapOption::empty(),
            next_batch: AtomicU64::new(1),
            activity: Activity::default(),
            failures: Failures::new(),
        }
    }

    /// The running engine, or why there is none that may be used here. Takes no lock: this is also called in a
    /// forked child, where locks may have been left closed.
    pub(crate) fn live(&self) -> Result<Arc<Live>, Error> {
        match self.live.load_full() {
            Some(live) if live.fork_guard.forked() => Err(forked()),
            Some(live) => Ok(live),
            None => {
                let message = "the engine is not initialized: initialize() was not called, or it failed";
                Err(Error::new(Code::NotInitialized, Stage::Arguments, Retry::AfterFix, message))
            }
        }
    }

    /// Ends the engine there was and starts another.
    pub(crate) fn initialize(
        &self,
        py: Python<'_>,
        config: Result<Config, Error>,
    ) -> PyResult<Result<(), Error>> {
        log::start();
        py.detach(|| self.replace(None));
        let config = match config {
            Ok(config) => config,
            Err(error) => return Ok(Err(error)),
        };
        let engine = match interrupt::interruptible(py, move || Engine::start(config))? {
            Ok(engine) => engine,
            Err(error) => return Ok(Err(error)),
        };
        let batches = Batches::new(self.next_batch.load(Ordering::Relaxed));
        let live = Live { engine, batches, fork_guard: ForkGuard::new() };
        py.detach(|| self.replace(Some(Arc::new(live))));
        Ok(Ok(()))
    }

    fn replace(&self, next: Option<Arc<Live>>) {
        if let Some(old) = self.live.swap(next) {
            retire(old);
        }
    }

    pub(crate) fn add_batch(&self, live: &Live, completion: moonrail::Completion) -> u64 {
        let id = live.batches.add(completion);
        self.next_batch.fetch_max(id + 1, Ordering::Relaxed);
        id
    }

    /// Moves a batch on the calling thread. The outer error is an exception that a signal handler raised.
    pub(crate) fn transfer(
        &self,
        py: Python<'_>,
        request: Result<Request, Error>,
    ) -> PyResult<Result<(), Error>> {
        let (live, request) = match self.live().and_then(|live| Ok((live, request?))) {
            Ok(ready) => ready,
            Err(error) => return Ok(Err(error)),
        };
        interrupt::transferring(py, &live.engine, &self.activity, request)
    }

    /// Moves one small range if that takes no wait; `None`: nothing was done. See [`interrupt::transferring`].
    pub(crate) fn copy_at_once(&self, peer: &str, opcode: Opcode, entry: Entry) -> Option<Result<(), Error>> {
        let live = self.live.load();
        let live = live.as_ref().filter(|live| !live.fork_guard.forked())?;
        live.engine.copy_at_once(peer, opcode, &[entry])
    }

    /// Starts a batch in the background; its id.
    pub(crate) fn submit(&self, py: Python<'_>, request: Result<Request, Error>) -> Result<u64, Error> {
        let live = self.live()?;
        let request = request?;
        let running = self.activity.begin();
        let completion = py.detach(|| live.engine.submit(request))?;
        running.until(&completion);
        Ok(self.add_batch(&live, completion))
    }

    pub(crate) fn register(
        &self,
        py: Python<'_>,
        regions: Result<Vec<(MemoryRange, RegionOptions)>, Error>,
    ) -> PyResult<Result<(), Error>> {
        match self.live().and_then(|live| Ok((live, regions?))) {
            Ok((live, regions)) => {
                interrupt::registering(py, live.engine.clone(), &self.activity, |engine| {
                    engine.register_batch(regions)
                })
            }
            Err(error) => Ok(Err(error)),
        }
    }

    pub(crate) fn unregister(&self, py: Python<'_>, addrs: Vec<u64>) -> PyResult<Result<(), Error>> {
        match self.live() {
            Ok(live) => interrupt::registering(py, live.engine.clone(), &self.activity, move |engine| {
                unregister_known(engine, &addrs)
            }),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Copies the first `len` bytes of `from` to registered memory.
    pub(crate) fn write_local(&self, addr: u64, from: &[u8], len: u64) -> Result<(), Error> {
        let live = self.live()?;
        let first = usize::try_from(len).ok().and_then(|len| from.get(..len)).ok_or_else(|| {
            let message = format!("{len} bytes were to be copied, and there are only {}", from.len());
            invalid(Code::InvalidArgument, message)
        })?;
        live.engine.write_local(addr, first)
    }

    /// The `len` bytes of registered memory at `addr`.
    pub(crate) fn read_local(&self, addr: u64, len: u64) -> Result<Vec<u8>, Error> {
        let live = self.live()?;
        let mut bytes = Vec::new();
        // In steps, so that a wrong length is found before memory for it is taken.
        while (bytes.len() as u64) < len {
            let done = bytes.len();
            let step = READ_STEP.min(len - done as u64);
            bytes.resize(done + step as usize, 0);
            let at = addr.checked_add(done as u64);
            let at =
                at.ok_or_else(|| invalid(Code::InvalidArgument, "the range ends beyond the address space"))?;
            live.engine.read_local(at, &mut bytes[done..])?;
        }
        Ok(bytes)
    }

    pub(crate) fn batch(&self, id: u64) -> Result<Batch, Error> {
        self.live()?
            .batches
            .get(id)
            .ok_or_else(|| unknown_batch(id, "this engine gave out no such id, or forgot it"))
    }

    /// Waits for all of `ids`; the first failure among them.
    pub(crate) fn wait_all(&self, py: Python<'_>, ids: &[u64]) -> PyResult<Result<(), Error>> {
        if ids.is_empty() {
            return Ok(Ok(()));
        }
        let live = match self.live() {
            Ok(live) => live,
            Err(error) => return Ok(Err(error)),
        };
        let mut outcome = Ok(());
        let mut collected = Vec::with_capacity(ids.len());
        for &id in ids {
            let result = match live.batches.get(id) {
                None => Err(unknown_batch(id, "this engine gave out no such id, or forgot it")),
                Some(batch) if batch.collected => Err(unknown_batch(id, "its result was already collected")),
                Some(batch) => {
                    collected.push(id);
                    interrupt::wait(py, |patience| batch.completion.wait(Some(patience)))?
                }
            };
            outcome = outcome.and(result);
        }
        // Only now: an id may stand in the list twice, and Ctrl-C leaves all of them to be waited for again.
        for id in collected {
            live.batches.collect(id);
        }
        Ok(outcome)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(live) = self.live.swap(None) {
            // Closing may wait for a metadata server; a daemon thread's transfer goes on meanwhile.
            let mut live = Some(live);
            let detached = Python::try_attach(|py| py.detach(|| live.take().map(retire)));
            if detached.is_none()
                && let Some(live) = live.take()
            {
                retire(live);
            }
        }
    }
}

/// Unregisters what is registered; the first failure of the others. The engine itself takes all or none.
fn unregister_known(engine: &Engine, addrs: &[u64]) -> Result<(), Error> {
    let mut outcome = Ok(());
    let mut start = 0;
    while start < addrs.len() {
        let Err(error) = engine.unregister_batch(&addrs[start..]) else { break };
        let at = start + error.index().unwrap_or(0);
        let error = if addrs.len() > 1 { error.with_index(at) } else { error };
        if error.code() != Code::AddressNotRegistered {
            return outcome.and(Err(error));
        }
        outcome = outcome.and(Err(error));
        // Nothing was changed yet; those before it are registered.
        if let Err(error) = engine.unregister_batch(&addrs[start..at]) {
            return outcome.and(Err(error));
        }
        start = at + 1;
    }
    outcome
}

/// Ends an engine; one that belongs to the parent of this process is left alone.
fn retire(live: Arc<Live>) {
    if live.fork_guard.forked() {
        mem::forget(live);
    } else {
        live.engine.shutdown();
    }
}

/// What peers may do to memory.
pub(crate) fn access(readonly: bool) -> Access {
    if readonly { Access::ReadOnly } else { Access::ReadWrite }
}

/// The configuration that the drop-in's `initialize` stands for.
pub(crate) fn config(host: String, metadata_server: String, protocol: String) -> Result<Config, Error> {
    let mut config = Config::new(host, metadata_server);
    // MC_FORCE_TCP asks for TCP whatever the program says, so it is no fallback then.
    let forced = std::env::var_os("MC_FORCE_TCP").is_some_and(|value| !value.is_empty());
    config.protocol = if forced && protocol == "rdma" { "tcp".to_owned() } else { protocol };
    config.timeouts.call = Some(CALL_TIMEOUT);
    let mut config = config.with_environment()?;
    config.timeouts.call = config.timeouts.call.map(|call| call.max(LEAST_CALL_TIMEOUT));
    Ok(config)
}

pub(crate) fn request(
    peer: Result<String, Error>,
    opcode: Result<Opcode, Error>,
    entries: Result<Vec<Entry>, Error>,
    notify: Option<Result<Notify, Error>>,
) -> Result<Request, Error> {
    let mut request = Request::new(peer?, opcode?, entries?);
    request.notify = notify.transpose()?;
    Ok(request)
}

/// A region as a Python program gives it.
pub(crate) fn region(
    addr: u64,
    len: u64,
    location: &str,
    name: Option<String>,
) -> Result<(MemoryRange, RegionOptions), Error> {
    // SAFETY: what register_memory means: the program promises that the memory stays mapped until it is unregistered.
    // It lies outside Rust's own memory, or is given up to peers by the program's explicit wish.
    let range = unsafe { MemoryRange::assume_valid(addr, len) }.map_err(|error| {
        Error::new(Code::InvalidArgument, Stage::Register, Retry::AfterFix, error.to_string())
    })?;
    Ok((range, RegionOptions { location: location.to_owned(), name, ..RegionOptions::default() }))
}

/// Many regions as two lists give them.
pub(crate) fn regions(
    addrs: &[u64],
    sizes: &[u64],
    location: &str,
) -> Result<Vec<(MemoryRange, RegionOptions)>, Error> {
    if addrs.len() != sizes.len() {
        let message = format!(
            "the lists differ in length: {} addresses, {} capacities; nothing was registered",
            addrs.len(),
            sizes.len()
        );
        return Err(Error::new(Code::LengthMismatch, Stage::Register, Retry::AfterFix, message));
    }
    let each = addrs.iter().zip(sizes).enumerate();
    each.map(|(index, (&addr, &len))| {
        region(addr, len, location, None).map_err(|error| error.with_index(index))
    })
    .collect()
}

pub(crate) fn forked() -> Error {
    let message = "this process was forked from the one that initialized the engine; make a new engine here";
    Error::new(Code::Forked, Stage::Arguments, Retry::AfterFix, message)
}

fn unknown_batch(id: u64, why: &str) -> Error {
    let mut error = invalid(Code::UnknownBatch, format!("batch id {id}: {why}"));
    if id == 0 {
        error = invalid(Code::UnknownBatch, "batch id 0 is what a failed submission returns");
    }
    error
}
