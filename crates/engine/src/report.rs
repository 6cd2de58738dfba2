//! What an engine tells about itself and its peers.

use std::net::SocketAddr;
use std::time::Duration;

use crate::capabilities::PeerCapabilities;

/// An engine's own state, for people and programs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineReport {
    /// The name peers use.
    pub name: String,
    /// Identifies this run of the engine; a restart has another.
    pub epoch: u64,
    /// The handshake port's address.
    pub handshake: SocketAddr,
    /// The data port's address.
    pub data: SocketAddr,
    /// Where the figures are told, if they are.
    pub metrics: Option<SocketAddr>,
    /// What carries transfers.
    pub paths: Vec<&'static str>,
    /// Differences between what was asked for and what is done, one sentence each.
    pub fallbacks: Vec<String>,
    /// Registered regions.
    pub regions: usize,
    /// Registered bytes.
    pub registered_bytes: u64,
    /// Bytes of registered memory that the engine had the kernel put into huge pages, since the start.
    pub huge_page_bytes: u64,
    /// Requests of peers served, and refused, since the start.
    pub served: u64,
    /// Requests of peers refused since the start.
    pub refused: u64,
    /// Bytes peers wrote into this engine's memory over sockets; same-host copies pass it by.
    pub bytes_in: u64,
    /// Bytes peers read from this engine's memory over sockets.
    pub bytes_out: u64,
}

/// What is known of a peer from its descriptor.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PeerReport {
    /// The name it was opened under.
    pub name: String,
    /// Its release line, as text: `Moonrail 0.1.0`, `Mooncake 0.3.13`.
    pub release: String,
    /// The protocol its segment names.
    pub protocol: String,
    /// The path of the next transfer: `shm` or `tcp`.
    pub path: &'static str,
    /// Why a peer of this host is not reached by `shm`, once that was tried.
    pub why_not_shm: Option<String>,
    /// Bytes of its memory that are mapped here, so that copies to and from memory of this engine's own need no system call.
    pub mapped_bytes: u64,
    /// What is spoken to it over TCP: `rail`, `mooncake-v2` or `mooncake-v1`.
    pub dialect: &'static str,
    /// Version of Mooncake's data protocol that it speaks: 1 or 2.
    pub data_version: u32,
    /// Where its data port is.
    pub data: Vec<SocketAddr>,
    /// Where its handshake port is, `host:port`, if known.
    pub handshake: Option<String>,
    /// Where it tells its figures, such as `http://10.0.0.7:9650`, if it does.
    pub metrics: Option<String>,
    /// Its epoch, if it is a Moonrail.
    pub epoch: Option<u64>,
    /// Address and length of its buffers, in the order it registered them.
    pub buffers: Vec<(u64, u64)>,
    /// Its named buffers.
    pub names: Vec<NamedRange>,
    /// What it can do and what it lacks.
    pub capabilities: PeerCapabilities,
}

/// A buffer with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRange {
    /// The name it was registered under.
    pub name: String,
    /// Start address in its owner's process.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// Answer to a probe: the peer is alive.
#[derive(Debug, Clone, Copy)]
pub struct ProbeReport {
    /// From connecting to the answer.
    pub round_trip: Duration,
    /// The peer is too old to know probes; it answered a metadata request.
    pub legacy: bool,
}
