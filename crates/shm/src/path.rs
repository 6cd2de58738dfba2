//! The initiator's side: transfers to targets on this host.
//!
//! Owns the targets by contact.

use std::collections::HashMap;
use std::sync::Arc;

use moonrail_sys::process::ForkGuard;
use moonrail_transport::{Control, Failure, Path, Stage, Target, Work};
use parking_lot::RwLock;

use crate::batch;
use crate::connect::{Here, connect};
use crate::contact::ShmContact;
use crate::failure::{Case, Trouble, WhyNot};
use crate::helper::Helper;
use crate::link::Link;
use crate::peer::ShmPeer;

/// Targets kept; those without a link go first, all at once.
const MOST_PEERS: usize = 4096;

/// Copies straight between this process's memory and that of a target on the same host.
///
/// Safe to call from any number of threads. A call does its work on the calling thread; from some megabytes on a second
/// one helps, for one call of this path at a time. Where the path does not work to a target, the failure is untouched
/// and [`ShmPath::why_not`] says why from then on.
pub struct ShmPath {
    /// Where this process is, or why that cannot be known.
    here: Result<Here, String>,
    fork_guard: ForkGuard,
    helper: Helper,
    known: RwLock<HashMap<String, Arc<ShmPeer>>>,
}

impl Default for ShmPath {
    fn default() -> Self {
        Self::new()
    }
}

impl ShmPath {
    /// A path without links; one is made at the first use of a target.
    #[must_use]
    pub fn new() -> Self {
        let here = Here::find();
        let here = here.map_err(|error| format!("this process cannot find out where it is: {error}"));
        Self { here, fork_guard: ForkGuard::new(), helper: Helper::new(), known: RwLock::default() }
    }

    /// Whether the target has a contact that this release understands, on this host. Costs a parse: ask once a descriptor.
    #[must_use]
    pub fn same_host(&self, target: &Target) -> bool {
        let contact = target.same_host.as_deref().and_then(|text| text.parse::<ShmContact>().ok());
        contact.is_some_and(|contact| self.here.as_ref().is_ok_and(|here| here.same_host(&contact)))
    }

    /// The target's entry here, if it has a contact.
    #[must_use]
    pub fn peer(&self, target: &Target) -> Option<Arc<ShmPeer>> {
        let text = target.same_host.as_ref()?;
        if let Some(peer) = self.known.read().get(text) {
            return Some(Arc::clone(peer));
        }
        let mut known = self.known.write();
        if known.len() >= MOST_PEERS {
            known.retain(|_, peer| peer.has_link());
        }
        Some(Arc::clone(known.entry(text.clone()).or_insert_with(|| Arc::new(ShmPeer::new(text)))))
    }

    /// Why this path does not work to the target: see [`ShmPeer::why_not`]; or it has no contact.
    #[must_use]
    pub fn why_not(&self, target: &Target) -> Option<String> {
        match self.peer(target) {
            Some(peer) => peer.why_not(),
            None => Some(NO_CONTACT.to_owned()),
        }
    }

    /// [`Path::execute`], for a caller who has kept the target's [`ShmPath::peer`].
    ///
    /// # Errors
    /// As [`Path::execute`].
    pub fn execute_at(
        &self,
        peer: &ShmPeer,
        target: &Target,
        work: &Work<'_>,
        control: &Control<'_>,
    ) -> Result<(), Failure> {
        let case = Case::begun(target, work);
        if moves_nothing(work) {
            return Ok(());
        }
        let link = self.link(peer, case, control).map_err(|trouble| {
            peer.learn(&target.name, None, &trouble);
            trouble.failure
        })?;
        batch::carry_out(&link, &self.helper, target, work, control).map_err(|trouble| {
            peer.learn(&target.name, Some(&link), &trouble);
            trouble.failure
        })
    }

    /// Copies a few kilobytes at once if that takes no wait: the target is linked and known to live, what it has registered
    /// is known, no lock is taken by another thread, and copies to it have lately been quick. `None`: nothing was copied,
    /// and [`ShmPath::execute_at`] is to be called. The caller sees to the size: the copy itself has no limit of time.
    #[must_use]
    pub fn copy_at_once(
        &self,
        peer: &ShmPeer,
        target: &Target,
        work: &Work<'_>,
    ) -> Option<Result<(), Failure>> {
        if self.fork_guard.forked() {
            return None;
        }
        let mut used = None;
        let outcome = peer.with_link_now(|link| {
            let outcome = batch::at_once(link, target, work)?;
            used = outcome.is_err().then(|| Arc::clone(link));
            Some(outcome)
        })?;
        Some(outcome.map_err(|trouble| {
            peer.learn(&target.name, used.as_ref(), &trouble);
            trouble.failure
        }))
    }

    /// Whether the batch begins with memory that both processes have mapped, or would have after its first piece, so that no
    /// piece of it costs a system call. Costs two look-ups.
    #[must_use]
    pub fn copies_plainly(&self, peer: &ShmPeer, work: &Work<'_>) -> bool {
        let Some(entry) = work.entries.iter().find(|entry| entry.len > 0) else { return false };
        let near = work.holds.find(entry.local, entry.len, &mut 0);
        near.is_some_and(|hold| hold.region().backing.is_some())
            && peer.may_be_mapped(entry.remote, entry.len)
    }

    /// Bytes of the target's memory that are mapped here.
    #[must_use]
    pub fn mapped_bytes(&self, target: &Target) -> u64 {
        let peer = self.peer(target);
        peer.and_then(|peer| peer.with_link_now(|link| Some(link.seen().mapped.bytes()))).unwrap_or(0)
    }

    fn link(&self, peer: &ShmPeer, case: Case<'_>, control: &Control<'_>) -> Result<Arc<Link>, Trouble> {
        let cannot = |reason: &str| case.cannot(Stage::Connect, WhyNot::lasting(reason));
        let here = self.here.as_ref().map_err(|reason| cannot(reason))?;
        if self.fork_guard.forked() {
            return Err(case.forked());
        }
        if let Some(link) = peer.link(case)? {
            return Ok(link);
        }
        let contact: ShmContact = peer.contact.parse().map_err(|bad| cannot(&format!("{bad}")))?;
        // Threads that come at once each make a link; one is kept.
        Ok(peer.keep(Arc::new(connect(here, &contact, case, control)?)))
    }
}

const NO_CONTACT: &str = "the peer publishes no same-host contact";

fn moves_nothing(work: &Work<'_>) -> bool {
    work.entries.iter().all(|entry| entry.len == 0)
}

impl Path for ShmPath {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn execute(&self, target: &Target, work: &Work<'_>, control: &Control<'_>) -> Result<(), Failure> {
        match self.peer(target) {
            Some(peer) => self.execute_at(&peer, target, work, control),
            None if moves_nothing(work) => Ok(()),
            None => {
                let why = WhyNot::lasting(NO_CONTACT);
                Err(Case::begun(target, work).cannot(Stage::Connect, why).failure)
            }
        }
    }

    fn forget(&self, target: &Target) {
        let gone = target.same_host.as_ref().and_then(|text| self.known.write().remove(text));
        if let Some(peer) = gone {
            peer.forget();
        }
    }
}
