//! Transfers: from a request to bytes moved, or an error that says why not.
//!
//! The way of a request: hold the local side, find the peer, check the remote side against its descriptor, carry it
//! out on a path, notify. What is out of date is fetched anew and tried again only while nothing was applied.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_memory::{HoldSet, Want};
use moonrail_transport::{
    Code, Control, Dialect, Entry, Error, Failure, Opcode, Retry, Stage, Stop, WAIT_SLICE, Work,
};
use moonrail_wire::TraceContext;
use moonrail_wire::handshake::Notify as WireNotify;

use crate::capabilities::PeerCapabilities;
use crate::completion::Completion;
use crate::engine::{Engine, Inner};
use crate::errors;
use crate::events::Event;
use crate::notify::Notify;
use crate::peers::View;
use crate::report::{NamedRange, PeerReport, ProbeReport};
use crate::request::Request;
use crate::spans::TransferSpan;

/// Times a batch of which nothing was applied is tried, with a fresh descriptor each.
const ATTEMPTS: usize = 3;

/// Limits of what is done at once. A piece costs 0.3 µs besides its bytes.
const AT_ONCE_ENTRIES: usize = 16;
const AT_ONCE_BYTES: u64 = 64 << 10;

impl Engine {
    /// Moves the whole batch and returns when it is applied. The calling thread does the work.
    ///
    /// # Errors
    /// See [`Code`]. After an error no byte of the batch moves any more.
    pub fn transfer(&self, request: &Request) -> Result<(), Error> {
        let inner = self.usable()?;
        inner.transfer_at_once(request).unwrap_or_else(|| inner.transfer(request, &|| None))
    }

    /// [`Engine::transfer`] that ends with [`Code::Interrupted`] soon after `interrupted` says true. It is asked at
    /// least every 50 ms while the call waits.
    ///
    /// # Errors
    /// As [`Engine::transfer`].
    pub fn transfer_interruptible(
        &self,
        request: &Request,
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), Error> {
        self.usable()?.transfer(request, &|| interrupted().then_some(Stop::Interrupted))
    }

    /// [`Engine::copy_at_once`] for a request; `None` also if it has a notification.
    #[must_use]
    pub fn transfer_at_once(&self, request: &Request) -> Option<Result<(), Error>> {
        self.usable().ok()?.transfer_at_once(request)
    }

    /// Moves up to 64 KiB in up to 16 descriptors between this process and a known peer of this host, if nothing makes that
    /// wait: some microseconds, for front doors to which letting other threads run meanwhile costs more. `None`: nothing
    /// was done, and [`Engine::transfer`] is to be called, which knows every failure.
    ///
    /// It takes no lock that another thread holds. The copy itself may find memory paged out; once one took longer than 10
    /// to 20 ms, the answer is `None` for a second.
    #[must_use]
    pub fn copy_at_once(&self, peer: &str, opcode: Opcode, entries: &[Entry]) -> Option<Result<(), Error>> {
        self.usable().ok()?.copy_at_once(peer, opcode, entries)
    }

    /// Starts the batch in the background. The local ranges are held from now on.
    ///
    /// # Errors
    /// Only what can be seen at once: wrong arguments, a local range that is not registered.
    pub fn submit(&self, request: Request) -> Result<Completion, Error> {
        let inner = Arc::clone(self.usable()?);
        let holds = inner.hold_local(&request).inspect_err(|error| inner.failed(request.opcode, error))?;
        let completion = Completion::new();
        let handle = completion.clone();
        let job = Arc::clone(&inner);
        inner.background.run(Box::new(move || {
            let outcome = job.carry_out(&request, &holds, &|| handle.stop());
            let outcome = outcome.inspect_err(|error| job.failed(request.opcode, error));
            drop(holds);
            // The completion may be the last to know of the engine; nothing of it is used after this.
            drop(job);
            handle.finish(outcome);
            None
        }));
        Ok(completion)
    }

    /// Makes any call of this engine interruptible: runs `call` on a background thread and waits for it, ending
    /// with [`Code::Interrupted`] soon after `interrupted` says true. It is asked at least every 50 ms. The call
    /// itself then ends by its own time limits, and its result is dropped.
    ///
    /// # Errors
    /// Those of `call`, and [`Code::Interrupted`].
    pub fn interruptible<T: Send + 'static>(
        &self,
        interrupted: &(dyn Fn() -> bool + Sync),
        call: impl FnOnce(&Engine) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = self.usable()?;
        let engine = self.clone();
        inner
            .background
            .wait_for(move || call(&engine), &|| interrupted().then_some(Stop::Interrupted))
            .unwrap_or_else(|_| Err(interrupted_call()))
    }

    /// Leaves a notification with the peer.
    ///
    /// # Errors
    /// [`Code::NotifyRejected`] when its queue is full; the failures of reaching it.
    pub fn notify(&self, peer: &str, notify: &Notify) -> Result<(), Error> {
        self.usable()?.deliver(peer, notify)
    }

    /// Asks whether the peer's process answers.
    ///
    /// # Errors
    /// The failures of reaching it.
    pub fn probe(&self, peer: &str) -> Result<ProbeReport, Error> {
        let inner = self.usable()?;
        let failed = |error| errors::metadata(Stage::Probe, peer, &error);
        let address = inner.directory.handshake_address(peer).map_err(failed)?;
        let outcome = inner.client.probe(&address, &inner.own.introduction()).map_err(failed)?;
        inner.peers.probed(peer, !outcome.legacy);
        Ok(ProbeReport { round_trip: outcome.round_trip, legacy: outcome.legacy })
    }

    /// What the peer's descriptor says now.
    ///
    /// # Errors
    /// The failures of reaching it.
    pub fn peer(&self, name: &str) -> Result<PeerReport, Error> {
        let inner = self.usable()?;
        let view = inner.fetch(name, Instant::now(), &inner.control(None, 0, &|| None))?;
        Ok(inner.report(&view))
    }

    /// The peers that this engine has met, by name.
    #[must_use]
    pub fn known_peers(&self) -> Vec<String> {
        self.inner().peers.names()
    }

    /// What is known of a peer from when it was last met; nobody is asked. `None` for one that was not met yet.
    #[must_use]
    pub fn known_peer(&self, name: &str) -> Option<PeerReport> {
        let inner = self.inner();
        inner.peers.get(name).map(|view| inner.report(&view))
    }

    /// The address of the first buffer that the peer registered.
    ///
    /// # Errors
    /// The failures of reaching it; [`Code::RemoteNotRegistered`] when it has none.
    pub fn first_buffer(&self, name: &str) -> Result<u64, Error> {
        let report = self.peer(name)?;
        report.buffers.first().map(|&(addr, _)| addr).ok_or_else(|| {
            let message = "the peer has registered no buffer";
            Error::new(Code::RemoteNotRegistered, Stage::Resolve, Retry::Safe, message).with_peer(name)
        })
    }
}

impl Inner {
    pub(crate) fn report(&self, view: &View) -> PeerReport {
        let mapped_bytes = self.routes.mapped_bytes(&view.target);
        PeerReport {
            mapped_bytes,
            ..report(view, self.routes.chosen(view), self.peers.seen(&view.target.name))
        }
    }

    fn transfer(
        self: &Arc<Self>,
        request: &Request,
        stop: &(dyn Fn() -> Option<Stop> + Sync),
    ) -> Result<(), Error> {
        let outcome = self.hold_local(request).and_then(|holds| self.carry_out(request, &holds, stop));
        outcome.inspect_err(|error| self.failed(request.opcode, error))
    }

    fn transfer_at_once(&self, request: &Request) -> Option<Result<(), Error>> {
        let Request { peer, opcode, entries, notify, timeout, trace: _ } = request;
        let plain = notify.is_none() && timeout.is_none_or(|timeout| timeout >= WAIT_SLICE);
        plain.then(|| self.copy_at_once(peer, *opcode, entries)).flatten()
    }

    fn hold_local(&self, request: &Request) -> Result<HoldSet, Error> {
        if request.peer.is_empty() {
            return Err(errors::arguments(Code::BadPeerName, "the peer's name is empty"));
        }
        let ranges = request.entries.iter().map(|entry| (entry.local, entry.len));
        self.regions.hold_all(ranges, wanted(request.opcode)).map_err(|(index, error)| {
            errors::local(index, request.entries.len(), &error).with_peer(&request.peer)
        })
    }

    fn carry_out(
        self: &Arc<Self>,
        request: &Request,
        holds: &HoldSet,
        stop: &(dyn Fn() -> Option<Stop> + Sync),
    ) -> Result<(), Error> {
        let work = Work { opcode: request.opcode, entries: &request.entries, holds };
        let mut control = self.control(request.timeout, work.bytes(), stop);
        if request.timeout.is_none()
            && self.limits.of(&request.peer).is_some_and(|limited| limited.takes_time())
        {
            control.deadline = None;
        }
        let mut span = self.spans.as_ref().map(|spans| spans.begin(request, &work));
        let moved = self.move_counted(request, &work, &control, span.as_mut());
        if let Some(span) = span {
            span.end(&moved);
        }
        moved?;
        match &request.notify {
            None => Ok(()),
            Some(notify) => self
                .deliver(&request.peer, notify)
                .map_err(|error| error.with_note("every byte of the transfer itself was applied")),
        }
    }

    /// Moves the bytes, and counts them where figures are kept.
    fn move_counted(
        self: &Arc<Self>,
        request: &Request,
        work: &Work<'_>,
        control: &Control<'_>,
        span: Option<&mut TransferSpan>,
    ) -> Result<(), Error> {
        let Some(metrics) = &self.metrics else {
            return self.move_bytes(&request.peer, work, control, span).map(drop);
        };
        let (peer, bytes, began) = (metrics.peer(&request.peer), work.bytes(), Instant::now());
        let _queued = peer.queue(bytes);
        let path = self.move_bytes(&request.peer, work, control, span)?;
        peer.moved(path, request.opcode, bytes, Some(began.elapsed()));
        Ok(())
    }

    /// Moves the bytes; the name of the path that did.
    fn move_bytes(
        self: &Arc<Self>,
        peer: &str,
        work: &Work<'_>,
        control: &Control<'_>,
        mut span: Option<&mut TransferSpan>,
    ) -> Result<&'static str, Error> {
        let began = Instant::now();
        let mut view = self.view(peer, control)?;
        let mut earlier_epoch = None;
        let mut attempt = 1;
        loop {
            if view.fetched < began && !self.may_use(&view, work.entries) {
                earlier_epoch = earlier_epoch.or(view.epoch());
                view = self.fetch(peer, began, control)?;
            }
            if let Some(index) = view.first_outside(work.entries) {
                return Err(view.outside(index, work.entries, earlier_epoch));
            }
            let trace = span.as_deref().map(TransferSpan::context);
            let (path, outcome) = if self.limits.any() {
                self.execute_in_turn(&view, work, control, trace)
            } else {
                self.routes.execute(&view, work, control, trace)
            };
            if let Some(span) = &mut span {
                span.tried(path);
            }
            let Err(failure) = outcome else { return Ok(path) };
            if failure.stale {
                self.peers.drop_view(peer, view.target.generation);
            }
            if attempt == ATTEMPTS || !worth_another_try(&failure) {
                return Err(failure.error);
            }
            attempt += 1;
            if let Some(metrics) = &view.metrics {
                metrics.tried_again();
            }
            earlier_epoch = earlier_epoch.or(view.epoch());
            view = self.fetch(peer, Instant::now(), control)?;
        }
    }

    /// One try where some peer has a limit: this one's waits for its turn, and others' are given way to.
    #[cold]
    fn execute_in_turn(
        &self,
        view: &View,
        work: &Work<'_>,
        control: &Control<'_>,
        trace: Option<TraceContext>,
    ) -> (&'static str, Result<(), Failure>) {
        let limited = self.limits.of(&view.target.name);
        let _busy = self.limits.enter(limited.as_deref());
        let execute = |work: &Work<'_>| self.routes.execute(view, work, control, trace);
        match limited {
            None => execute(work),
            Some(limited) => self.limits.execute(&limited, work, control, execute),
        }
    }

    /// See [`Engine::copy_at_once`].
    fn copy_at_once(&self, peer: &str, opcode: Opcode, entries: &[Entry]) -> Option<Result<(), Error>> {
        if entries.len() > AT_ONCE_ENTRIES {
            return None;
        }
        let bytes = entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.len));
        let otherwise =
            self.config.no_metadata_cache || self.spans.is_some() || self.limits.of(peer).is_some();
        if bytes > AT_ONCE_BYTES || otherwise {
            return None;
        }
        let first = entries.iter().find(|entry| entry.len > 0)?;
        let outcome = self.peers.with_now(peer, |view| {
            let near = view.near.as_deref()?;
            let hold = self.regions.try_hold(first.local, first.len, wanted(opcode))?;
            let held = entries.iter().all(|entry| entry.len == 0 || hold.covers(entry.local, entry.len));
            if !held || view.first_outside(entries).is_some() {
                return None;
            }
            let work = Work { opcode, entries, holds: &HoldSet::from(hold) };
            let sampled = view.metrics.as_ref().and_then(|metrics| metrics.sample(opcode));
            let outcome = self.routes.execute_at_once(near, &view.target, &work)?;
            if let Some(metrics) = &view.metrics
                && outcome.is_ok()
            {
                metrics.copied(opcode, bytes, sampled);
            }
            Some(outcome.map_err(|failure| (failure, view.target.generation)))
        })?;
        Some(outcome.map_err(|(failure, generation)| {
            if failure.stale {
                self.peers.drop_view(peer, generation);
            }
            self.failed(opcode, &failure.error);
            failure.error
        }))
    }

    /// Tells that a transfer failed.
    #[cold]
    fn failed(&self, op: Opcode, error: &Error) {
        self.events.emit(&Event::TransferFailed { op, error: error.clone() });
    }

    /// Whether a descriptor from before this call is good enough. A peer that checks nothing itself (v1) is only
    /// written to on what it says now.
    fn may_use(&self, view: &View, entries: &[Entry]) -> bool {
        view.target.dialect != Dialect::MooncakeV1 && view.first_outside(entries).is_none()
    }

    fn deliver(&self, peer: &str, notify: &Notify) -> Result<(), Error> {
        let failed = |error| errors::metadata(Stage::Notify, peer, &error);
        let address = self.directory.handshake_address(peer).map_err(failed)?;
        let wire = WireNotify { name: notify.name.clone(), message: notify.message.clone() };
        self.client.notify(&address, &wire).map_err(failed)
    }

    fn control<'a>(
        &self,
        timeout: Option<Duration>,
        bytes: u64,
        stop: &'a (dyn Fn() -> Option<Stop> + Sync),
    ) -> Control<'a> {
        let timeouts = &self.config.timeouts;
        let limit = timeout.or_else(|| timeouts.call.map(|call| call + Duration::from_nanos(bytes)));
        Control {
            deadline: limit.and_then(|limit| Instant::now().checked_add(limit)),
            connect: timeouts.connect,
            progress: timeouts.progress,
            stop,
        }
    }
}

/// What the local side is held for.
fn wanted(opcode: Opcode) -> Want {
    match opcode {
        Opcode::Read => Want::Write,
        Opcode::Write => Want::Read,
    }
}

fn interrupted_call() -> Error {
    let message = "the call was stopped while it waited for the peer's answer, and may still take effect";
    Error::new(Code::Interrupted, Stage::Wait, Retry::Unsafe, message)
}

/// Another try helps where the peer was replaced or its registrations changed, not where it is silent.
fn worth_another_try(failure: &Failure) -> bool {
    failure.untouched
        && failure.stale
        && matches!(failure.error.code(), Code::PeerGone | Code::PeerUnreachable | Code::RemoteRefused)
}

fn report(
    view: &View,
    (path, why_not_shm): (&'static str, Option<String>),
    seen: moonrail_compat::Seen,
) -> PeerReport {
    let descriptor = &view.descriptor;
    let extension = descriptor.moonrail.as_ref();
    PeerReport {
        name: view.target.name.clone(),
        release: match extension {
            Some(extension) => format!("Moonrail {}", extension.release),
            None => descriptor.release_line().to_string(),
        },
        protocol: descriptor.protocol.clone(),
        path,
        why_not_shm,
        mapped_bytes: 0,
        dialect: match view.target.dialect {
            Dialect::Rail { .. } => "rail",
            Dialect::MooncakeV2 => "mooncake-v2",
            Dialect::MooncakeV1 => "mooncake-v1",
        },
        data_version: descriptor.tcp_proto_version.clamp(1, 2),
        data: view.target.addresses.clone(),
        handshake: view.handshake.as_ref().map(ToString::to_string),
        metrics: extension.and_then(|extension| extension.metrics.clone()),
        epoch: view.epoch(),
        buffers: descriptor.buffers.iter().map(|buffer| (buffer.addr, buffer.length)).collect(),
        names: extension.map_or_else(Vec::new, |extension| {
            let named = |name: &moonrail_wire::NamedBuffer| NamedRange {
                name: name.name.clone(),
                addr: name.addr,
                len: name.length,
            };
            extension.names.iter().map(named).collect()
        }),
        capabilities: PeerCapabilities::of(
            moonrail_compat::Engine::of(descriptor, seen),
            view.target.same_host.is_some(),
        ),
    }
}
