//! One target as this process knows it: a link to it, or why there is none.
//!
//! Owns that knowledge and what is learnt from failures. It must not know how a link is made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_transport::{Code, Stage};
use parking_lot::RwLock;

use crate::failure::{Case, Trouble, WhyNot};
use crate::link::Link;

/// How long a passing reason is believed.
const PASSING: Duration = Duration::from_secs(5);

/// A target of the same-host path, by its contact. Whoever calls it often keeps this, and no call looks the contact up.
pub struct ShmPeer {
    pub(crate) contact: String,
    known: RwLock<Known>,
}

#[derive(Clone)]
enum Known {
    Nothing,
    Link(Arc<Link>),
    Not { reason: String, until: Option<Instant> },
}

impl ShmPeer {
    pub(crate) fn new(contact: &str) -> Self {
        Self { contact: contact.to_owned(), known: RwLock::new(Known::Nothing) }
    }

    /// Why the path does not work to this target, if a call has found that out. A reason that may pass, such as too many
    /// open files, is forgotten after 5 s; [`Path::forget`](moonrail_transport::Path::forget) forgets any.
    #[must_use]
    pub fn why_not(&self) -> Option<String> {
        match &*self.known.read() {
            Known::Not { reason, until } if still(*until) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Whether something is known that must not be lost when room is made for others.
    pub(crate) fn has_link(&self) -> bool {
        matches!(&*self.known.read(), Known::Link(_))
    }

    /// The link, or that it is known that there is none. `Ok(None)`: it is time to make one.
    pub(crate) fn link(&self, case: Case<'_>) -> Result<Option<Arc<Link>>, Trouble> {
        match &*self.known.read() {
            Known::Link(link) => Ok(Some(Arc::clone(link))),
            Known::Not { reason, until } if still(*until) => {
                let mut trouble = case.cannot(Stage::Connect, WhyNot::lasting(reason));
                // It is known already, for as long as it was.
                trouble.why_not = None;
                Err(trouble)
            }
            _ => Ok(None),
        }
    }

    /// What `with` makes of the link, if there is one and nobody is changing that now. Whoever would, waits meanwhile.
    #[inline]
    pub(crate) fn with_link_now<T>(&self, with: impl FnOnce(&Arc<Link>) -> Option<T>) -> Option<T> {
        match &*self.known.try_read()? {
            Known::Link(link) => with(link),
            _ => None,
        }
    }

    /// Whether the range lies in memory that is mapped here or may yet be; nothing is known before the first batch.
    pub(crate) fn may_be_mapped(&self, addr: u64, len: u64) -> bool {
        match &*self.known.read() {
            Known::Link(link) => link.may_be_mapped(addr, len),
            Known::Nothing => true,
            Known::Not { .. } => false,
        }
    }

    /// Keeps a new link, or returns the one that another thread has made meanwhile.
    pub(crate) fn keep(&self, link: Arc<Link>) -> Arc<Link> {
        let mut known = self.known.write();
        if let Known::Link(first) = &*known {
            return Arc::clone(first);
        }
        *known = Known::Link(Arc::clone(&link));
        link
    }

    /// Keeps a reason; gives up a link that is dead or of no use.
    pub(crate) fn learn(&self, name: &str, link: Option<&Arc<Link>>, trouble: &Trouble) {
        let mut known = self.known.write();
        if let Some(why) = &trouble.why_not {
            let until = why.passing.then(|| Instant::now() + PASSING);
            tracing::debug!(peer = %name, reason = %why.reason, "no same-host path");
            *known = Known::Not { reason: why.reason.clone(), until };
        } else if let Some(link) = link
            && trouble.failure.error.code() == Code::PeerGone
            && matches!(&*known, Known::Link(kept) if Arc::ptr_eq(kept, link))
        {
            *known = Known::Nothing;
        }
    }

    /// Forgets everything.
    pub(crate) fn forget(&self) {
        *self.known.write() = Known::Nothing;
    }
}

fn still(until: Option<Instant>) -> bool {
    until.is_none_or(|until| Instant::now() < until)
}
