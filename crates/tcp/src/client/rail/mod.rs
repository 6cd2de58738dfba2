//! One batch on one rail lane (docs/rail-protocol.md): frames of many descriptors, pipelined, one answer each.
//!
//! Owns what is asked of the peer and what is still owed by it. `framing` makes the frames, `answers` takes what comes
//! back. Must not know how long anyone waits.

mod answers;
mod framing;

use std::collections::VecDeque;
use std::io;

use moonrail_memory::io::IovStorage;
use moonrail_transport::Work;
use moonrail_wire::TraceContext;
use moonrail_wire::rail::{ANSWER_LEN, AnswerKind, CANCEL, TRACE, WELCOME_LEN};

use self::framing::Sending;
use super::exchange::{Exchange, Received};
use crate::run::{Expect, Run};
use crate::stream::Stream;

/// Frames sent ahead of their answers; a target takes one more before it reads no further.
const FRAMES_AHEAD: usize = 60;
/// Payload sent or asked for ahead of its answers, in bytes: what one lane may have in flight.
const BYTES_AHEAD: u64 = 16 << 20;

/// A frame that was sent, in whole or in part, and has no answer yet.
struct Frame {
    id: u64,
    kind: AnswerKind,
    /// Where its part of the batch begins; for a read, what of it has not come yet.
    run: Run,
    pieces: usize,
    payload: u64,
}

/// What a lane remembers from one batch to the next.
pub(super) struct LaneState {
    /// Epoch of the target, as in its descriptor.
    epoch: u64,
    next_id: u64,
    hello: Hello,
    /// Feature bits in force, once welcomed.
    features: u32,
    /// The trace of the next batch, to be named in front of its first frame.
    trace: Option<TraceContext>,
    /// Of a receive of payload.
    expect: Expect,
    scratch: Scratch,
}

/// Memory that serves one batch after the other.
#[derive(Default)]
struct Scratch {
    head: Vec<u8>,
    waiting: VecDeque<Frame>,
    iov: IovStorage,
}

/// The opening of a lane: the hello goes out in front of the first frame, the welcome comes before its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hello {
    Unsent,
    /// Sent; the welcome has not come yet.
    Sent,
    Welcomed,
}

/// How a batch ends before its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cancelling {
    No,
    /// Nothing of the batch is framed any more; what was sent is waited for.
    Wanted,
    /// As before, and the target was asked to drop what it can.
    Asked,
}

/// The exchange of one batch.
pub(super) struct RailExchange<'a> {
    work: &'a Work<'a>,
    state: &'a mut LaneState,
    /// The next byte of the batch to be framed, and how many are left.
    next: Position,
    to_frame: u64,
    /// Whether this is the whole batch.
    whole: bool,
    /// The target looked at nothing.
    turned_away: bool,
    sending: Option<Sending>,
    started: bool,
    waiting: VecDeque<Frame>,
    /// Payload of the frames that wait.
    ahead: u64,
    /// The head being received (the welcome at first), and the one behind it.
    heads: [[u8; ANSWER_LEN]; 2],
    head_have: usize,
    /// The front frame's head is here and says that it was served.
    judged: bool,
    /// Of the first frame that was not served, the entry to blame.
    failed: Option<Blamed>,
    /// A frame of a write was served, or may have been in part.
    touched: bool,
    /// Bytes of another frame went where payload was expected.
    overran: bool,
    cancelling: Cancelling,
    first_id: u64,
    hints: [usize; 2],
    iov: IovStorage,
}

/// An entry because of which a frame was not served, and the first entry of that frame: none of the frame's is applied.
#[derive(Clone, Copy)]
struct Blamed {
    entry: usize,
    frame: usize,
}

/// A place in the batch: entry and byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub index: usize,
    pub offset: u64,
}

/// Bytes of a batch that go over one lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub begin: Position,
    pub bytes: u64,
}

// The welcome is received where an answer's head is.
const _: () = assert!(ANSWER_LEN == WELCOME_LEN);

impl LaneState {
    /// A lane on which nothing was sent yet.
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            next_id: 1,
            hello: Hello::Unsent,
            features: 0,
            trace: None,
            expect: Expect::default(),
            scratch: Scratch::default(),
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the opening is still to come.
    pub(super) fn is_new(&self) -> bool {
        self.hello == Hello::Unsent
    }

    /// The target's and this side's feature bits, once welcomed.
    pub(super) fn features(&self) -> u32 {
        self.features
    }

    pub(super) fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// The next batch is part of this trace, or of none; said only to a target that wants to know.
    pub(super) fn join(&mut self, trace: Option<TraceContext>) {
        self.trace = trace.filter(|_| self.features & TRACE != 0);
    }

    /// The lane was opened before its first batch, with these feature bits.
    pub(super) fn welcomed(&mut self, features: u32) {
        self.hello = Hello::Welcomed;
        self.features = features;
    }
}

impl<'a> RailExchange<'a> {
    /// The whole batch, or the part of it that this lane takes.
    pub(super) fn new(work: &'a Work<'a>, state: &'a mut LaneState, part: Option<Part>) -> Self {
        let Scratch { head, mut waiting, iov } = std::mem::take(&mut state.scratch);
        state.scratch.head = head;
        waiting.clear();
        let begin = Position { index: 0, offset: 0 };
        let Part { begin, bytes } = part.unwrap_or_else(|| Part { begin, bytes: work.bytes() });
        let skipped = work.entries[begin.index..].iter().take_while(|entry| entry.len == 0).count();
        Self {
            work,
            next: Position { index: begin.index + skipped, offset: begin.offset },
            to_frame: bytes,
            whole: part.is_none(),
            turned_away: false,
            sending: None,
            started: false,
            waiting,
            ahead: 0,
            heads: [[0; ANSWER_LEN]; 2],
            head_have: 0,
            judged: false,
            failed: None,
            touched: false,
            overran: false,
            cancelling: Cancelling::No,
            first_id: state.next_id,
            hints: [0; 2],
            iov,
            state,
        }
    }

    /// Whether all that is to be framed was framed.
    fn framed(&self) -> bool {
        match self.cancelling {
            Cancelling::No => self.to_frame == 0,
            Cancelling::Wanted => self.waiting.is_empty() || !self.may_ask(),
            Cancelling::Asked => true,
        }
    }

    /// Whether the target takes a cancel frame.
    fn may_ask(&self) -> bool {
        self.state.features & CANCEL != 0
    }

    fn done(&self) -> bool {
        self.sending.is_none() && self.waiting.is_empty() && self.framed()
    }
}

impl Drop for RailExchange<'_> {
    fn drop(&mut self) {
        self.state.scratch.waiting = std::mem::take(&mut self.waiting);
        self.state.scratch.iov = std::mem::take(&mut self.iov);
        if let Some(sending) = self.sending.take() {
            self.state.scratch.head = sending.head;
        }
    }
}

impl Exchange for RailExchange<'_> {
    fn sent_all(&self) -> bool {
        self.sending.is_none() && self.framed()
    }

    fn may_send(&self) -> bool {
        let room = self.waiting.len() < FRAMES_AHEAD && self.ahead < BYTES_AHEAD;
        self.sending.is_some() || room || self.cancelling != Cancelling::No
    }

    fn sending_index(&self) -> usize {
        self.sending.as_ref().map_or(self.next.index, |sending| sending.payload.index)
    }

    fn next_index(&self) -> usize {
        let unanswered = self.waiting.front().map_or(self.next.index, |frame| frame.run.index);
        self.failed.map_or(unanswered, |failed| failed.frame)
    }

    fn failing_index(&self) -> usize {
        self.failed.map_or_else(|| self.next_index(), |failed| failed.entry)
    }

    fn untouched(&self) -> bool {
        !self.started || self.turned_away || (self.in_step() && !self.touched)
    }

    fn whole(&self) -> bool {
        self.whole
    }

    fn in_step(&self) -> bool {
        // No answer is owed, and nothing more is on its way in either direction.
        let nothing_owed = self.waiting.is_empty() && self.sending.is_none() && self.head_have == 0;
        nothing_owed && !self.overran && self.state.hello == Hello::Welcomed
    }

    fn cancel(&mut self) -> bool {
        if self.overran || self.turned_away || self.state.hello == Hello::Unsent {
            return false;
        }
        self.cancelling = Cancelling::Wanted;
        true
    }

    fn send(&mut self, stream: &mut Stream) -> io::Result<usize> {
        if self.sending.is_none() {
            match self.cancelling {
                Cancelling::No => self.frame_next(),
                Cancelling::Wanted | Cancelling::Asked => self.frame_cancel(),
            }
        }
        let Some(mut sending) = self.sending.take() else { return Ok(0) };
        let outcome = self.gather_and_send(&sending, stream);
        match outcome {
            Ok(sent) => {
                self.started = true;
                if sending.advance(self.work.entries, sent) {
                    self.state.scratch.head = sending.head;
                } else {
                    self.sending = Some(sending);
                }
            }
            Err(_) => self.sending = Some(sending),
        }
        outcome
    }

    fn receive(&mut self, stream: &mut Stream) -> io::Result<Received> {
        if self.done() {
            return Ok(Received::Finished);
        }
        let outcome = if self.state.hello != Hello::Welcomed {
            self.receive_welcome(stream)
        } else {
            self.receive_answers(stream)
        };
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
            outcome => outcome,
        }
    }
}
