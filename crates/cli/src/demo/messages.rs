//! What the demo's processes tell each other, one JSON object a line on standard input and output.

use std::io::{BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::demo::digest::RequestDigest;
use crate::demo::model::Model;
use crate::failure::Failure;

/// What both workers must agree on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) model: Model,
    pub(super) tokens_per_block: u32,
    /// Pages of each pool.
    pub(super) pages: u32,
    /// The request to spoil a byte of.
    pub(super) spoil: Option<u64>,
}

/// The first line a worker reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Role {
    Prefill { setup: Setup },
    Decode { setup: Setup },
}

/// To a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Job {
    /// To prefill, first of all: pages go to this session.
    Connect { decode: String },
    /// To decode: find pages for the request's blocks.
    Prepare { request: u64, blocks: Vec<u64> },
    /// To prefill: make the request's blocks, and write those that decode lacks to these pages.
    Push { request: u64, blocks: Vec<u64>, wanted: Vec<Wanted> },
}

/// A block that decode lacks, and where it is to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wanted {
    /// Position in the request's blocks.
    pub(super) position: usize,
    /// Decode's pages.
    pub(super) pages: Vec<u32>,
}

/// From a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Event {
    /// The pool is there and the engine answers.
    Ready {
        session: String,
    },
    Prepared {
        request: u64,
        wanted: Vec<Wanted>,
    },
    Pushed {
        request: u64,
        moved: Moved,
    },
    /// Every page of the request was compared.
    Verified {
        request: u64,
        compared: u64,
    },
    /// A page is not what was sent.
    Differs {
        request: u64,
        what: String,
    },
    Failed {
        what: String,
    },
}

/// What a request's transfers came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moved {
    pub(super) bytes: u64,
    pub(super) entries: u64,
    pub(super) batches: u64,
    /// In transfers, notification included.
    pub(super) nanos: u64,
}

/// The message of the notification that follows a request's last byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arrived {
    pub(super) request: u64,
    /// Hash of what prefill made.
    pub(super) digest: RequestDigest,
}

/// The next message; `None` at the end.
pub(super) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>, Failure> {
    let mut line = String::new();
    let got =
        from.read_line(&mut line).map_err(|error| Failure::failed(format!("demo: cannot read: {error}")))?;
    if got == 0 {
        return Ok(None);
    }
    let parsed = serde_json::from_str(&line);
    parsed
        .map(Some)
        .map_err(|error| Failure::failed(format!("demo: bad message from the other process: {error}")))
}

pub(super) fn send(to: &mut impl Write, message: &impl Serialize) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(message)
        .map_err(|error| Failure::failed(format!("demo: cannot make a message: {error}")))?;
    line.push(b'\n');
    to.write_all(&line)?;
    Ok(to.flush()?)
}
