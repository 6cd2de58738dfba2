//! What a caller asks for.

use std::time::Duration;

use moonrail_transport::{Entry, Opcode};
use moonrail_wire::TraceContext;

use crate::notify::Notify;

/// One transfer: any number of descriptors between local memory and one peer.
#[derive(Debug, Clone)]
pub struct Request {
    /// The peer: `host:port` of its handshake port in P2P mode, its segment name with a metadata server.
    pub peer: String,
    /// Direction of every entry.
    pub opcode: Opcode,
    /// The descriptors. Any number, any sizes; length 0 moves nothing.
    pub entries: Vec<Entry>,
    /// Delivered to the peer once every byte is applied; a failure to deliver is a failure of the call.
    pub notify: Option<Notify>,
    /// Limit of the whole call; `None`: the engine's [`Timeouts`](crate::Timeouts).
    pub timeout: Option<Duration>,
    /// The caller's span, whose child the transfer's span is. Looked at only by an engine that sends spans (docs/tracing.md).
    pub trace: Option<TraceContext>,
}

impl Request {
    /// A request without notification, under the engine's own time limits.
    pub fn new(peer: impl Into<String>, opcode: Opcode, entries: Vec<Entry>) -> Self {
        Self { peer: peer.into(), opcode, entries, notify: None, timeout: None, trace: None }
    }
}
