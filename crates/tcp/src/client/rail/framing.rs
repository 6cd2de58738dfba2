//! Frames on their way out.

use std::io;

use moonrail_memory::io::HeldIov;
use moonrail_transport::{Entry, Opcode};
use moonrail_wire::rail::{
    AnswerKind, Cancel, FEATURES, Hello as WireHello, REQUEST_LEN, Range, Request, RequestKind, SAFE_PAYLOAD,
    Trace, VERSION,
};

use super::{Cancelling, Frame, Hello, Position, RailExchange};
use crate::run::{Limit, Run};
use crate::stream::Stream;

/// Descriptors in one frame: with the head they fit one system call.
const PIECES: usize = 1000;

/// The frame being sent.
pub(super) struct Sending {
    /// Head and table, with the lane's hello before the first.
    pub head: Vec<u8>,
    head_sent: usize,
    /// What of a write's payload is not out yet.
    pub payload: Run,
}

impl Sending {
    /// Counts `sent` bytes; true once the whole frame is out.
    pub(super) fn advance(&mut self, entries: &[Entry], sent: usize) -> bool {
        let of_head = sent.min(self.head.len() - self.head_sent);
        self.head_sent += of_head;
        self.payload.advance(entries, (sent - of_head) as u64);
        self.head_sent == self.head.len() && self.payload.left == 0
    }
}

impl RailExchange<'_> {
    /// Frames the next pieces, up to [`PIECES`] and [`SAFE_PAYLOAD`].
    pub(super) fn frame_next(&mut self) {
        let mut head = self.begin_frame();
        if let Some(context) = self.state.trace.take() {
            let trace = Trace { id: self.state.next_id, payload: self.to_frame, context };
            head.extend_from_slice(&trace.encode());
        }
        let at = head.len();
        head.resize(at + REQUEST_LEN, 0);
        let begin = self.next;
        let Position { mut index, mut offset } = begin;
        let (mut count, mut payload) = (0usize, 0u64);
        let most = SAFE_PAYLOAD.min(self.to_frame);
        let mut first = Range { addr: 0, len: 0 };
        for entry in &self.work.entries[index..] {
            let len = (entry.len - offset).min(most - payload);
            if len > 0 {
                if count == PIECES {
                    break;
                }
                let range = Range { addr: entry.remote + offset, len };
                if count == 0 {
                    first = range;
                } else {
                    head.extend_from_slice(&range.encode());
                }
                count += 1;
                payload += len;
                if offset + len < entry.len {
                    offset += len;
                    break;
                }
            } else if entry.len > offset {
                break;
            }
            index += 1;
            offset = 0;
        }
        self.next = Position { index, offset };
        self.to_frame -= payload;
        let kind = match self.work.opcode {
            Opcode::Read => RequestKind::Read,
            Opcode::Write => RequestKind::Write,
        };
        let id = self.state.take_id();
        let request = Request { kind, count: count as u32, id, payload, epoch: self.state.epoch, first };
        head[at..at + REQUEST_LEN].copy_from_slice(&request.encode());
        let run = Run { index: begin.index, offset: begin.offset, left: payload };
        let out = if kind == RequestKind::Write { run } else { Run { left: 0, ..run } };
        self.sending = Some(Sending { head, head_sent: 0, payload: out });
        self.ahead += payload;
        self.waiting.push_back(Frame { id, kind: kind.into(), run, pieces: count, payload });
    }

    /// Asks the target to drop what it has not served yet.
    pub(super) fn frame_cancel(&mut self) {
        if self.cancelling != Cancelling::Wanted || self.framed() {
            return;
        }
        self.cancelling = Cancelling::Asked;
        let mut head = self.begin_frame();
        let id = self.state.take_id();
        head.extend_from_slice(&Cancel { id, from: self.first_id, epoch: self.state.epoch }.encode());
        let run = Run { index: self.next.index, offset: 0, left: 0 };
        self.sending = Some(Sending { head, head_sent: 0, payload: run });
        self.waiting.push_back(Frame { id, kind: AnswerKind::Cancel, run, pieces: 0, payload: 0 });
    }

    /// Room for a frame's head; on a new lane the hello is in front of it.
    fn begin_frame(&mut self) -> Vec<u8> {
        let mut head = std::mem::take(&mut self.state.scratch.head);
        head.clear();
        if self.state.hello == Hello::Unsent {
            let hello = WireHello { version: VERSION, features: FEATURES, target_epoch: self.state.epoch };
            head.extend_from_slice(&hello.encode());
            self.state.hello = Hello::Sent;
        }
        head
    }

    pub(super) fn gather_and_send(&mut self, sending: &Sending, stream: &mut Stream) -> io::Result<usize> {
        let mut iov = HeldIov::from_storage(std::mem::take(&mut self.iov));
        iov.push_bytes(&sending.head[sending.head_sent..]);
        let limit = Limit { vectors: PIECES + 1, bytes: SAFE_PAYLOAD };
        sending.payload.gather(self.work.entries, self.work.holds, &mut self.hints[0], limit, &mut iov)?;
        let outcome = stream.send(&iov);
        self.iov = iov.into_storage();
        outcome
    }
}
