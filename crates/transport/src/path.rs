//! The contract of a path, and what it is told about a peer.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::{Control, Error, Work};

/// How a peer's data port is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Mooncake data protocol v1: no status frames, no address check at the far side.
    MooncakeV1,
    /// Mooncake data protocol v2: a status frame for each request.
    MooncakeV2,
    /// The rail protocol, to the run of a Moonrail that has this epoch.
    Rail {
        /// From its descriptor.
        epoch: u64,
    },
}

/// A peer as a path sees it: made anew each time the peer's segment descriptor is fetched.
#[derive(Debug, Clone)]
pub struct Target {
    /// The name it was opened under, for messages.
    pub name: String,
    /// Its data endpoint: every address its host resolved to, tried in order.
    pub addresses: Vec<SocketAddr>,
    /// What it speaks there.
    pub dialect: Dialect,
    /// It is spoken to in TLS only, and its certificate must be for this name.
    pub tls: Option<Arc<str>>,
    /// Grows with each fetch of the descriptor; lanes never outlive doubt about the process behind them.
    pub generation: u64,
    /// How it is reached on its own host without a socket for the bytes; the same-host path's own text.
    pub same_host: Option<String>,
}

/// A failed execution, with what the engine must know to decide on going on.
#[derive(Debug)]
pub struct Failure {
    /// What the caller will be told if nothing helps.
    pub error: Error,
    /// No byte of the batch can have reached the peer's memory: carrying it out again is always right.
    pub untouched: bool,
    /// The descriptor the target was made from may be out of date.
    pub stale: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// One way to move bytes.
///
/// Contract, checked by `testkit::conformance`:
/// - `Ok` means applied: written bytes are in the peer's memory, read bytes are here.
/// - After `Err` no byte of the batch changes local memory any more, and the path has done all it can so
///   that none changes the peer's (see each path's own page in docs/guarantees.md).
/// - Entries of length 0 move nothing and never fail.
/// - `execute` may be called from any number of threads at once; it ends within the limits of `control`.
/// - A failure names the first entry that was not applied, where the path knows it.
pub trait Path: Send + Sync {
    /// Short name for reports and errors: `tcp`, `shm`, `rdma`.
    fn name(&self) -> &'static str;

    /// Carries out the whole batch on the calling thread.
    ///
    /// # Errors
    /// A [`Failure`] with the cause; see the contract above.
    fn execute(&self, target: &Target, work: &Work<'_>, control: &Control<'_>) -> Result<(), Failure>;

    /// Closes what is kept open to this target's endpoint, for example since its descriptor was found stale.
    fn forget(&self, target: &Target);
}
