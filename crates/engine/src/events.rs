//! What happens to an engine that somebody should know of: one typed stream for the log, the figures, and subscribers.
//!
//! Owns the events and the log's words for them. Must not know what else is made of them.

use std::fmt;
use std::sync::Arc;

use moonrail_transport::{Error, Opcode};
use parking_lot::RwLock;
use tracing::{info, warn};

/// A change of state, or a failure. Nothing is sent for what works.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A transfer ended with this error. (The log leaves it to the caller, who has the error.)
    TransferFailed {
        /// Which way.
        op: Opcode,
        /// Why; it names the peer.
        error: Error,
    },
    /// A peer of this host cannot be reached by the same-host path, and so is reached by TCP.
    ReachedByTcp {
        /// The peer's name.
        peer: String,
        /// Why.
        why: String,
    },
    /// A peer is another process than before: its memory is new, and what was open to the old one is given up.
    PeerRestarted {
        /// The peer's name.
        peer: String,
    },
    /// A caller's handshake was refused, as its release could not be told of a refused write.
    HandshakeRefused {
        /// Who, and why.
        why: String,
        /// How often so far.
        count: u64,
    },
    /// Something that was asked for is done in another way.
    FellBack {
        /// What, and how it is done.
        what: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::TransferFailed { op, error } => write!(f, "a {} failed: {error}", op.as_str()),
            Event::ReachedByTcp { peer, why } => {
                write!(f, "{peer} is on this host but is reached over tcp: {why}")
            }
            Event::PeerRestarted { peer } => {
                write!(f, "{peer} is another process than before; its descriptor and lanes are new")
            }
            Event::HandshakeRefused { why, .. } => write!(f, "refused a handshake: {why}"),
            Event::FellBack { what } => f.write_str(what),
        }
    }
}

/// Takes events, on whatever thread they happen; it should be quick and must not call the engine.
pub type Subscriber = Box<dyn Fn(&Event) + Send + Sync>;

/// The stream of one engine.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<RwLock<Vec<Subscriber>>>);

impl Events {
    /// From now on `subscriber` is called with each event.
    pub(crate) fn subscribe(&self, subscriber: Subscriber) {
        self.0.write().push(subscriber);
    }

    /// Hands an event to the log and to all subscribers.
    pub(crate) fn emit(&self, event: &Event) {
        log(event);
        for subscriber in self.0.read().iter() {
            subscriber(event);
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("subscribers", &self.0.read().len()).finish()
    }
}

fn log(event: &Event) {
    match event {
        Event::TransferFailed { .. } => {}
        Event::ReachedByTcp { .. } | Event::FellBack { .. } | Event::PeerRestarted { .. } => info!("{event}"),
        // Callers can bring it about: the first ones are each told, a flood of them is not.
        Event::HandshakeRefused { count, .. } => {
            if *count <= 16 || count.is_power_of_two() {
                warn!("{event}");
            }
        }
    }
}
