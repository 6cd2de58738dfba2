//! The frame that names a trace (docs/rail-protocol.md, section 11).

use super::{REQUEST_LEN, get, put};
use crate::TraceContext;

/// The `kind` of a [`Trace`].
const KIND: u32 = 5;

/// Names the trace that the requests behind it belong to; only where [`TRACE`](super::TRACE) is in force. It has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// Id of the first request that is meant.
    pub id: u64,
    /// Payload of all requests that are meant, in bytes.
    pub payload: u64,
    /// The initiator's span.
    pub context: TraceContext,
}

impl Trace {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        put(&mut bytes, 0, KIND.to_le_bytes());
        put(&mut bytes, 4, u32::from(self.context.flags).to_le_bytes());
        put(&mut bytes, 8, self.id.to_le_bytes());
        put(&mut bytes, 16, self.payload.to_le_bytes());
        put(&mut bytes, 24, self.context.trace_id);
        put(&mut bytes, 40, self.context.span_id);
        bytes
    }

    /// `None` if the bytes are of another kind. Flags above the lowest 8 are left out.
    #[must_use]
    pub fn decode(bytes: &[u8; REQUEST_LEN]) -> Option<Self> {
        let [flags, ..] = get::<4>(bytes, 4);
        (u32::from_le_bytes(get(bytes, 0)) == KIND).then(|| Self {
            id: u64::from_le_bytes(get(bytes, 8)),
            payload: u64::from_le_bytes(get(bytes, 16)),
            context: TraceContext { trace_id: get(bytes, 24), span_id: get(bytes, 40), flags },
        })
    }
}
