//! What the harness and a node say to each other: one JSON object a line, over the node's standard input and output.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::sealing::Sealing;

/// Bytes of memory that an engine has of each kind.
pub(crate) const AREA: u64 = 6 << 20;
/// Bytes in front of and behind the registered part of memory that the node brought itself.
pub(crate) const MARGIN: u64 = 4096;

/// The first line a node reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub engines: Vec<EngineSetup>,
    pub limits: Limits,
    /// Connections to one peer at most.
    pub lanes: usize,
    pub sealing: Sealing,
}

/// Time limits of every engine, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub connect: u64,
    pub handshake: u64,
    pub progress: u64,
    pub unregister: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EngineSetup {
    /// `host:port` that peers reach it under.
    pub name: String,
    pub listen: IpAddr,
    /// Whether the same-host path is used and offered.
    pub shm: bool,
}

/// What a node is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Order {
    Transfer(Transfer),
    /// Stops a transfer after so many microseconds.
    Cancel {
        transfer: u8,
        after: u64,
    },
    /// Ends and begins the registration of the memory that the node brought itself.
    Unregister {
        engine: usize,
    },
    Register {
        engine: usize,
    },
    /// Allocates and frees so many bytes.
    Allocate {
        engine: usize,
        len: u64,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub transfer: u8,
    pub engine: usize,
    /// In the background instead of on a thread of the node.
    pub submit: bool,
    pub peer: String,
    pub write: bool,
    /// Local address, remote address, length.
    pub entries: Vec<(u64, u64, u64)>,
    /// Milliseconds for the whole call.
    pub timeout: Option<u64>,
}

/// What a node says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Said {
    Up {
        engines: Vec<EngineUp>,
    },
    /// It cannot serve.
    Failed {
        why: String,
    },
    Done {
        transfer: u8,
        outcome: Result<(), Refusal>,
        micros: u64,
    },
    /// The outcome of any other order.
    Carried {
        outcome: Result<(), Refusal>,
        micros: u64,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EngineUp {
    pub data_port: u16,
    /// First addresses of the memory the node brought, its margins included, and of the memory the engine allocated.
    pub own: u64,
    pub managed: u64,
}

/// An error of the engine, as far as the harness looks at it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub code: String,
    pub stage: String,
    /// Descriptors of the batch that it says are known to be applied.
    pub applied: usize,
    pub text: String,
}
