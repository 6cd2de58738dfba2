//! The TCP path: rail frames and Mooncake's data protocol v1 and v2, as client ([`TcpPath`]) and as server ([`TcpServer`]).
//!
//! Owns: connections to peers' data ports, the exchanges on them, and the data port of this engine.
//! Must not know: how a peer is found, which path is chosen, other paths.

mod checked;
mod client;
mod layer;
mod run;
mod sealed;
mod server;
mod spin;
mod stream;

pub use client::TcpPath;
pub use server::{Counters, ServerOptions, TcpServer, TraceSink, TracedRequests};
