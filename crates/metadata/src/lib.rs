//! Where a peer is found.
//!
//! Owns: the handshake port in both roles ([`handshake_client`], [`handshake_server`]), the two directories that
//! turn a segment name into a descriptor and addresses ([`directory`]: peer-to-peer, HTTP), and an HTTP metadata
//! server that genuine engines accept as theirs ([`http_server`]). As the HTTP of the project is here, so is the port on
//! which an engine tells its figures ([`figures_server`]).
//!
//! With an [`AccessControl`](moonrail_access::AccessControl) the handshake port, in both roles, first has the shared key
//! proven, and with [`Tls`](moonrail_access::Tls) speaks TLS (docs/security.md).
//!
//! Must not know: data paths, registered memory, batches. It carries descriptors and never acts on their contents.
//!
//! Everything that a caller calls is blocking and bounded by a deadline; the servers run on one thread each, and
//! every type here may be used from any thread.

mod deadline;
mod dial;
pub mod directory;
mod error;
pub mod figures_server;
pub mod handshake_client;
pub mod handshake_server;
mod http_client;
mod http_directory;
pub mod http_server;
mod listen;
mod liveness;
mod p2p;
mod segments;
mod server_thread;

pub use directory::{Directory, Located, open};
pub use error::{MetadataError, MetadataErrorKind, WaitStage};
pub use figures_server::{Figures, FiguresServer};
pub use handshake_client::{DEFAULT_HANDSHAKE_PORT, HandshakeClient, HandshakeTimeouts, ProbeOutcome};
pub use handshake_server::{HandshakeHandler, HandshakeServer, Limits};
pub use http_directory::HttpDirectory;
pub use http_server::{MetadataServer, ServerLimits};
pub use p2p::P2pDirectory;
pub use segments::list_segments;

/// By which an engine tells a caller on the handshake port that it has to bring a shared key; also an engine's error code.
pub(crate) const KEY_REQUIRED: &str = "KEY_REQUIRED";
/// The same for TLS.
pub(crate) const TLS_REQUIRED: &str = "TLS_REQUIRED";
