//! Which path carries a batch: the best one that reaches the peer.

use std::sync::Arc;

use moonrail_shm::{ShmPath, ShmPeer};
use moonrail_tcp::TcpPath;
use moonrail_transport::{Code, Control, Failure, Path, Target, Work};
use moonrail_wire::TraceContext;

use crate::events::{Event, Events};
use crate::peers::View;

/// Batches of at least this many entries with a smaller mean length go over TCP also on one host: a cross-memory
/// copy costs the kernel about 0.3 µs for each piece, a rail frame less (docs/performance.md). Mapped memory costs neither.
const FINE_GRAINED: (usize, u64) = (256, 2048);

/// The paths of one engine, best first.
pub(crate) struct Routes {
    shm: Option<ShmPath>,
    tcp: TcpPath,
    events: Events,
    /// Carries what would go over TCP.
    #[cfg(feature = "testkit")]
    pub(crate) instead_of_tcp: std::sync::OnceLock<Box<dyn Path>>,
}

impl Routes {
    pub(crate) fn new(shm: Option<ShmPath>, tcp: TcpPath, events: Events) -> Self {
        Self {
            shm,
            tcp,
            events,
            #[cfg(feature = "testkit")]
            instead_of_tcp: std::sync::OnceLock::new(),
        }
    }

    /// The names of the paths, best first.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.shm.iter().map(Path::name).chain([self.tcp.name()]).collect()
    }

    /// What a descriptor's same-host contact is worth to this engine: kept only if it is of this host.
    pub(crate) fn near(&self, target: &mut Target) -> Option<Arc<ShmPeer>> {
        let peer = self.shm.as_ref().filter(|shm| shm.same_host(target)).and_then(|shm| shm.peer(target));
        if peer.is_none() {
            target.same_host = None;
        }
        peer
    }

    /// Carries the batch out on the best path, whose name is returned. One that turns out not to work to this peer is
    /// passed over, and said so once; nothing was moved by it then. Only over TCP is the target told of `trace`: in a
    /// same-host copy it has no part.
    pub(crate) fn execute(
        &self,
        view: &View,
        work: &Work<'_>,
        control: &Control<'_>,
        trace: Option<TraceContext>,
    ) -> (&'static str, Result<(), Failure>) {
        let target = &view.target;
        if let Some((shm, peer)) = self.usable_shm(view)
            && (!is_fine_grained(work) || shm.copies_plainly(peer, work))
        {
            match shm.execute_at(peer, target, work, control) {
                Err(failure) if failure.untouched && failure.error.code() == Code::UnsupportedPeer => {
                    let why = failure.error.message().to_owned();
                    self.events.emit(&Event::ReachedByTcp { peer: target.name.clone(), why });
                }
                outcome => return (shm.name(), outcome),
            }
        }
        #[cfg(feature = "testkit")]
        if let Some(path) = self.instead_of_tcp.get() {
            return (path.name(), path.execute(target, work, control));
        }
        (self.tcp.name(), self.tcp.execute_in(trace, target, work, control))
    }

    /// Carries out a small batch without waiting for anything; `None`: it was not begun.
    pub(crate) fn execute_at_once(
        &self,
        near: &ShmPeer,
        target: &Target,
        work: &Work<'_>,
    ) -> Option<Result<(), Failure>> {
        self.shm.as_ref()?.copy_at_once(near, target, work)
    }

    /// The path that the next batch to the peer takes, and why not a better one, if one was tried.
    pub(crate) fn chosen(&self, view: &View) -> (&'static str, Option<String>) {
        match self.usable_shm(view) {
            Some((shm, _)) => (shm.name(), None),
            None => (self.tcp.name(), view.near.as_ref().and_then(|peer| peer.why_not())),
        }
    }

    /// Open TCP lanes to the target.
    pub(crate) fn lanes(&self, target: &Target) -> usize {
        self.tcp.lanes(target)
    }

    /// Bytes of the target's memory that are mapped here.
    pub(crate) fn mapped_bytes(&self, target: &Target) -> u64 {
        self.shm.as_ref().map_or(0, |shm| shm.mapped_bytes(target))
    }

    /// Gives up what is kept open to a target whose descriptor is out of date.
    pub(crate) fn forget(&self, target: &Target) {
        if let Some(shm) = &self.shm {
            shm.forget(target);
        }
        self.tcp.forget(target);
    }

    fn usable_shm<'a>(&'a self, view: &'a View) -> Option<(&'a ShmPath, &'a ShmPeer)> {
        let (shm, peer) = (self.shm.as_ref()?, view.near.as_deref()?);
        peer.why_not().is_none().then_some((shm, peer))
    }
}

fn is_fine_grained(work: &Work<'_>) -> bool {
    let (count, mean) = FINE_GRAINED;
    work.entries.len() >= count && work.bytes() / (work.entries.len() as u64) < mean
}
