//! The initiator's side: transfers to targets on this host.
//!
//! Owns the links by contact, and the reasons where there is none.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_sys::fork_mark::ForkMark;
use moonrail_transport::{Control, Failure, Path, Stage, Target, Work};
use parking_lot::RwLock;

use crate::batch;
use crate::connect::{Here, connect};
use crate::contact::ShmContact;
use crate::failure::{Case, Trouble, WhyNot};
use crate::link::Link;

/// How long a passing reason is believed.
const PASSING: Duration = Duration::from_secs(5);

/// Reasons kept; those of peers long gone go first, all at once.
const MOST_REASONS: usize = 4096;

/// Copies straight between this process's memory and that of a target on the same host.
///
/// Safe to call from any number of threads; each call uses the calling thread only. Where the path does not work to a
/// target, the failure is untouched and [`ShmPath::why_not`] says why from then on.
pub struct ShmPath {
    /// Where this process is and whether it is still the one, or why that cannot be known.
    here: Result<(Here, ForkMark), String>,
    known: RwLock<HashMap<String, Known>>,
}

#[derive(Clone)]
enum Known {
    Link(Arc<Link>),
    Not { reason: String, until: Option<Instant> },
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
        let here = Here::find().and_then(|here| Ok((here, ForkMark::new()?)));
        let here = here.map_err(|error| format!("this process cannot find out where it is: {error}"));
        Self { here, known: RwLock::default() }
    }

    /// Whether the target has a contact that this release understands, on this host. Costs a parse: ask once a descriptor.
    #[must_use]
    pub fn same_host(&self, target: &Target) -> bool {
        let contact = target.same_host.as_deref().and_then(|text| text.parse::<ShmContact>().ok());
        contact.is_some_and(|contact| self.here.as_ref().is_ok_and(|(here, _)| here.same_host(&contact)))
    }

    /// Why this path does not work to the target, if a call has found that out (or it has no contact). A reason that
    /// may pass, such as too many open files, is forgotten after 5 s; [`Path::forget`] forgets any.
    #[must_use]
    pub fn why_not(&self, target: &Target) -> Option<String> {
        let Some(text) = &target.same_host else { return Some(NO_CONTACT.to_owned()) };
        match self.known.read().get(text) {
            Some(Known::Not { reason, until }) if still(*until) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Whether the batch begins with memory that both processes have mapped, or would have after its first piece, so that no
    /// piece of it costs a system call. Costs two look-ups.
    #[must_use]
    pub fn copies_plainly(&self, target: &Target, work: &Work<'_>) -> bool {
        let Some(entry) = work.entries.iter().find(|entry| entry.len > 0) else { return false };
        let near = work.holds.find(entry.local, entry.len, &mut 0);
        if near.is_none_or(|hold| hold.region().backing.is_none()) {
            return false;
        }
        match target.same_host.as_ref().map(|text| self.known.read().get(text).cloned()) {
            Some(Some(Known::Link(link))) => link.may_be_mapped(entry.remote, entry.len),
            // Nothing is known of it before the first batch.
            Some(None) => true,
            _ => false,
        }
    }

    /// Bytes of the target's memory that are mapped here.
    #[must_use]
    pub fn mapped_bytes(&self, target: &Target) -> u64 {
        let known = self.known.read();
        match target.same_host.as_ref().and_then(|text| known.get(text)) {
            Some(Known::Link(link)) => link.seen().mapped.bytes(),
            _ => 0,
        }
    }

    fn link(&self, case: Case<'_>, control: &Control<'_>) -> Result<Arc<Link>, Trouble> {
        let cannot = |reason: &str| case.cannot(Stage::Connect, WhyNot::lasting(reason));
        let (here, mark) = self.here.as_ref().map_err(|reason| cannot(reason))?;
        if mark.forked() {
            return Err(case.forked());
        }
        let Some(text) = &case.target.same_host else {
            return Err(cannot(NO_CONTACT));
        };
        match self.known.read().get(text) {
            Some(Known::Link(link)) => return Ok(Arc::clone(link)),
            Some(Known::Not { reason, until }) if still(*until) => {
                let mut trouble = cannot(reason);
                // It is known already, for as long as it was.
                trouble.why_not = None;
                return Err(trouble);
            }
            _ => {}
        }
        let contact: ShmContact = text.parse().map_err(|bad| cannot(&format!("{bad}")))?;
        let link = Arc::new(connect(here, &contact, case, control)?);
        // Threads that come at once each make a link; one is kept.
        let mut known = self.known.write();
        if let Some(Known::Link(first)) = known.get(text) {
            return Ok(Arc::clone(first));
        }
        known.insert(text.clone(), Known::Link(Arc::clone(&link)));
        Ok(link)
    }

    /// Keeps a reason; gives up a link that is dead or of no use.
    fn learn(&self, target: &Target, link: Option<&Arc<Link>>, trouble: &Trouble) {
        let Some(text) = &target.same_host else { return };
        let mut known = self.known.write();
        if let Some(why) = &trouble.why_not {
            if known.len() >= MOST_REASONS {
                known.retain(|_, known| matches!(known, Known::Link(_)));
            }
            let until = why.passing.then(|| Instant::now() + PASSING);
            tracing::debug!(peer = %target.name, reason = %why.reason, "no same-host path");
            known.insert(text.clone(), Known::Not { reason: why.reason.clone(), until });
        } else if let Some(link) = link
            && trouble.failure.error.code() == moonrail_transport::Code::PeerGone
            && matches!(known.get(text), Some(Known::Link(kept)) if Arc::ptr_eq(kept, link))
        {
            known.remove(text);
        }
    }
}

const NO_CONTACT: &str = "the peer publishes no same-host contact";

fn still(until: Option<Instant>) -> bool {
    until.is_none_or(|until| Instant::now() < until)
}

impl Path for ShmPath {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn execute(&self, target: &Target, work: &Work<'_>, control: &Control<'_>) -> Result<(), Failure> {
        let case = Case { target, work, index: 0, started: false };
        if work.entries.iter().all(|entry| entry.len == 0) {
            return Ok(());
        }
        let link = self.link(case, control).map_err(|trouble| {
            self.learn(target, None, &trouble);
            trouble.failure
        })?;
        batch::carry_out(&link, target, work, control).map_err(|trouble| {
            self.learn(target, Some(&link), &trouble);
            trouble.failure
        })
    }

    fn forget(&self, target: &Target) {
        if let Some(text) = &target.same_host {
            self.known.write().remove(text);
        }
    }
}
