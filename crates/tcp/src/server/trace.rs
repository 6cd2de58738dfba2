//! What a traced call of a client came to here (docs/rail-protocol.md, section 11).
//!
//! Owns the counting of the requests that belong to it. Must not know what a span is, nor who collects it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use moonrail_transport::Opcode;
use moonrail_wire::TraceContext;
use moonrail_wire::rail::{AnswerStatus, Request, RequestKind, Trace};

/// The requests on one lane that belong to one call of a client.
#[derive(Debug, Clone)]
pub struct TracedRequests {
    /// The client's span.
    pub context: TraceContext,
    /// Where the client's end of the lane is.
    pub client: SocketAddr,
    /// Direction, seen from the client; `None` if no request came.
    pub opcode: Option<Opcode>,
    /// When the trace was named, ahead of the first request.
    pub began: SystemTime,
    /// When the last write was applied, or the answer to the last read begun.
    pub ended: SystemTime,
    /// Frames.
    pub requests: u64,
    /// Ranges in them.
    pub descriptors: u64,
    /// Payload of those that were served.
    pub bytes: u64,
    /// Frames that were not served.
    pub refused: u64,
    /// Whether the client ended the call early, or was lost.
    pub unfinished: bool,
}

/// Takes what became of traced calls, on the data thread: it must not wait.
#[derive(Clone)]
pub struct TraceSink(Arc<dyn Fn(TracedRequests) + Send + Sync>);

impl TraceSink {
    /// A sink that calls `take`.
    pub fn new(take: impl Fn(TracedRequests) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }
}

impl fmt::Debug for TraceSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceSink")
    }
}

/// A traced call under way. Given to the sink when it is dropped, whatever ended it.
pub(super) struct UnderWay {
    sink: TraceSink,
    so_far: TracedRequests,
    /// Payload of the requests that are still to be answered.
    left: u64,
}

impl UnderWay {
    /// `None` for a frame that names no trace.
    pub(super) fn begin(sink: &TraceSink, trace: &Trace, client: SocketAddr) -> Option<Self> {
        let now = SystemTime::now();
        let so_far = TracedRequests {
            context: trace.context,
            client,
            opcode: None,
            began: now,
            ended: now,
            requests: 0,
            descriptors: 0,
            bytes: 0,
            refused: 0,
            unfinished: false,
        };
        trace.context.is_valid().then(|| Self { sink: sink.clone(), so_far, left: trace.payload })
    }

    /// Counts a request whose answer is made; true once it was the last.
    pub(super) fn answered(&mut self, request: &Request, status: AnswerStatus) -> bool {
        let so_far = &mut self.so_far;
        so_far.opcode = Some(match request.kind {
            RequestKind::Read => Opcode::Read,
            RequestKind::Write => Opcode::Write,
        });
        so_far.requests += 1;
        so_far.descriptors += u64::from(request.count);
        if status == AnswerStatus::Ok {
            so_far.bytes += request.payload;
        } else {
            so_far.refused += 1;
        }
        self.left = self.left.saturating_sub(request.payload);
        self.left == 0
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.so_far.ended = SystemTime::now();
        self.so_far.unfinished = self.left > 0;
        (self.sink.0)(self.so_far.clone());
    }
}
