//! One batch on one rail lane (docs/rail-protocol.md): frames of many descriptors, pipelined, one answer each.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use moonrail_memory::io::{HeldIov, IovStorage};
use moonrail_transport::{Entry, Opcode, Work};
use moonrail_wire::rail::{
    ANSWER_LEN, Answer, AnswerStatus, HELLO_LEN, Hello as WireHello, REQUEST_LEN, Range, Request,
    RequestKind, SAFE_PAYLOAD, VERSION, WELCOME_LEN, Welcome, WelcomeStatus,
};

use super::exchange::{Exchange, Received, push_local};

/// Descriptors in one frame: with the head they fit one system call.
const PIECES: usize = 1000;
/// Frames sent ahead of their answers.
const FRAMES_AHEAD: usize = 64;

/// A frame that was sent, in whole or in part, and has no answer yet.
struct Frame {
    id: u64,
    /// Where in the batch it begins.
    index: usize,
    offset: u64,
    pieces: usize,
    payload: u64,
}

/// The frame being sent.
struct Sending {
    /// Head and table.
    head: Vec<u8>,
    head_sent: usize,
    /// The piece being sent, and how much of it is out.
    index: usize,
    offset: u64,
    left: u64,
}

/// What a lane remembers from one batch to the next.
pub(super) struct LaneState {
    /// Epoch of the target, as in its descriptor.
    pub epoch: u64,
    pub next_id: u64,
    /// How far the opening of the lane has come.
    pub hello: Hello,
}

/// The opening of a lane: the hello goes out in front of the first frame, the welcome comes before its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hello {
    Unsent,
    /// Sent; the welcome has not come yet.
    Sent,
    Welcomed,
}

/// The exchange of one batch.
pub(super) struct RailExchange<'a> {
    work: &'a Work<'a>,
    state: &'a mut LaneState,
    /// The next byte of the batch to be framed.
    next: Position,
    sending: Option<Sending>,
    started: bool,
    waiting: VecDeque<Frame>,
    /// Bytes of the front frame's answer that are here: welcome or head first, then payload.
    head: [u8; ANSWER_LEN],
    head_have: usize,
    payload_have: u64,
    hints: [usize; 2],
    storage: IovStorage,
}

/// A place in the batch: entry and byte.
#[derive(Clone, Copy)]
struct Position {
    index: usize,
    offset: u64,
}

// The welcome is received where an answer's head is.
const _: () = assert!(ANSWER_LEN == WELCOME_LEN);

impl<'a> RailExchange<'a> {
    pub(super) fn new(work: &'a Work<'a>, state: &'a mut LaneState) -> Self {
        let mut exchange = Self {
            work,
            state,
            next: Position { index: 0, offset: 0 },
            sending: None,
            started: false,
            waiting: VecDeque::new(),
            head: [0; ANSWER_LEN],
            head_have: 0,
            payload_have: 0,
            hints: [0; 2],
            storage: IovStorage::default(),
        };
        exchange.next = exchange.settled(exchange.next);
        exchange
    }

    /// The same place, behind entries of length 0 and entries that are done.
    fn settled(&self, mut at: Position) -> Position {
        while self.work.entries.get(at.index).is_some_and(|entry| at.offset >= entry.len) {
            at = Position { index: at.index + 1, offset: 0 };
        }
        at
    }

    /// The pieces of the batch from `at` on: parts of entries, none empty.
    fn pieces(&self, at: Position) -> impl Iterator<Item = Entry> + use<'_, 'a> {
        let first = at.offset;
        let entries = self.work.entries[at.index.min(self.work.entries.len())..].iter();
        entries.enumerate().filter(|(_, entry)| entry.len > 0).map(move |(nth, entry)| {
            let skip = if nth == 0 { first } else { 0 };
            Entry { local: entry.local + skip, remote: entry.remote + skip, len: entry.len - skip }
        })
    }

    /// Frames the next pieces, up to [`PIECES`] and [`SAFE_PAYLOAD`].
    fn frame_next(&mut self) {
        let begin = self.next;
        let mut table = Vec::new();
        let (mut count, mut payload) = (0usize, 0u64);
        let mut first = Range { addr: 0, len: 0 };
        let mut end = begin;
        for piece in self.pieces(begin) {
            let len = piece.len.min(SAFE_PAYLOAD - payload);
            let range = Range { addr: piece.remote, len };
            if count == 0 {
                first = range;
            } else {
                table.extend_from_slice(&range.encode());
            }
            count += 1;
            payload += len;
            end = self.settled(Position { index: end.index, offset: end.offset + len });
            if count == PIECES || payload == SAFE_PAYLOAD {
                break;
            }
        }
        let id = self.state.next_id;
        self.state.next_id += 1;
        let kind = match self.work.opcode {
            Opcode::Read => RequestKind::Read,
            Opcode::Write => RequestKind::Write,
        };
        let request = Request { kind, count: count as u32, id, payload, epoch: self.state.epoch, first };
        let mut head = Vec::with_capacity(HELLO_LEN + REQUEST_LEN + table.len());
        if self.state.hello == Hello::Unsent {
            let hello = WireHello { version: VERSION, features: 0, target_epoch: self.state.epoch };
            head.extend_from_slice(&hello.encode());
            self.state.hello = Hello::Sent;
        }
        head.extend_from_slice(&request.encode());
        head.extend_from_slice(&table);
        let left = if kind == RequestKind::Write { payload } else { 0 };
        self.sending = Some(Sending { head, head_sent: 0, index: begin.index, offset: begin.offset, left });
        self.waiting.push_back(Frame {
            id,
            index: begin.index,
            offset: begin.offset,
            pieces: count,
            payload,
        });
        self.next = end;
    }

    fn gather_and_send(&mut self, sending: &Sending, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let mut iov = HeldIov::from_storage(std::mem::take(&mut self.storage));
        iov.push_bytes(&sending.head[sending.head_sent..]);
        let mut left = sending.left;
        let [mut hint, _] = self.hints;
        for piece in self.pieces(Position { index: sending.index, offset: sending.offset }) {
            if left == 0 {
                break;
            }
            let len = piece.len.min(left);
            push_local(&mut iov, self.work, piece.local, len, &mut hint)?;
            left -= len;
        }
        let outcome = iov.send(fd);
        self.storage = iov.into_storage();
        self.hints[0] = hint;
        outcome
    }

    /// Counts `sent` bytes of the frame being sent; forgets it once it is out.
    fn advance_sending(&mut self, mut sending: Sending, sent: usize) {
        let of_head = sent.min(sending.head.len() - sending.head_sent);
        sending.head_sent += of_head;
        let mut payload = (sent - of_head) as u64;
        sending.left -= payload;
        let mut at = Position { index: sending.index, offset: sending.offset };
        while payload > 0 {
            let step = payload.min(self.work.entries[at.index].len - at.offset);
            payload -= step;
            at = self.settled(Position { index: at.index, offset: at.offset + step });
        }
        (sending.index, sending.offset) = (at.index, at.offset);
        let done = sending.head_sent == sending.head.len() && sending.left == 0;
        self.sending = (!done).then_some(sending);
    }

    fn receive_welcome(&mut self, fd: BorrowedFd<'_>) -> io::Result<Received> {
        let mut iov = HeldIov::new();
        iov.push_bytes_mut(&mut self.head[self.head_have..]);
        let got = iov.recv(fd)?;
        if got == 0 {
            return Ok(Received::End);
        }
        self.head_have += got;
        if self.head_have < WELCOME_LEN {
            return Ok(Received::Some);
        }
        self.head_have = 0;
        match Welcome::decode(&self.head) {
            Ok(Welcome { status: WelcomeStatus::Open, .. }) => {
                self.state.hello = Hello::Welcomed;
                Ok(Received::Some)
            }
            Ok(Welcome { status: WelcomeStatus::Epoch, .. }) => Ok(Received::Restarted),
            _ => Ok(self.malformed()),
        }
    }

    /// One receive: the head of the answer awaited, for reads its payload too, and the head behind it.
    fn receive_answer(&mut self, fd: BorrowedFd<'_>) -> io::Result<Received> {
        let Some(front) = self.waiting.front() else { return Ok(Received::Nothing) };
        let payload = if self.work.opcode == Opcode::Read { front.payload } else { 0 };
        let (at, payload_have) = (Position { index: front.index, offset: front.offset }, self.payload_have);
        let mut head = self.head;
        let mut iov = HeldIov::from_storage(std::mem::take(&mut self.storage));
        iov.push_bytes_mut(&mut head[self.head_have..]);
        let [_, mut hint] = self.hints;
        let (mut skip, mut left) = (payload_have, payload - payload_have);
        for piece in self.pieces(at) {
            if left == 0 {
                break;
            }
            let whole = piece.len.min(skip + left);
            if whole <= skip {
                skip -= whole;
                continue;
            }
            push_local(&mut iov, self.work, piece.local + skip, whole - skip, &mut hint)?;
            left -= whole - skip;
            skip = 0;
        }
        let outcome = iov.recv(fd);
        self.storage = iov.into_storage();
        self.hints[1] = hint;
        self.head = head;
        let got = outcome?;
        if got == 0 {
            return Ok(Received::End);
        }
        let of_head = got.min(ANSWER_LEN - self.head_have);
        let had_head = self.head_have == ANSWER_LEN;
        self.head_have += of_head;
        self.payload_have += (got - of_head) as u64;
        if self.head_have < ANSWER_LEN {
            return Ok(Received::Some);
        }
        if !had_head && let Some(bad) = self.judge() {
            return Ok(bad);
        }
        if self.payload_have < payload {
            return Ok(Received::Some);
        }
        self.waiting.pop_front();
        (self.head_have, self.payload_have) = (0, 0);
        Ok(if self.done() { Received::Finished } else { Received::Some })
    }

    /// What is wrong with the answer's head, if anything.
    fn judge(&mut self) -> Option<Received> {
        let front = self.waiting.front()?;
        let expected = if self.work.opcode == Opcode::Read { front.payload } else { 0 };
        let Ok(answer) = Answer::decode(&self.head) else { return Some(self.malformed()) };
        match answer.status {
            _ if answer.id != front.id => Some(self.malformed()),
            AnswerStatus::Ok if answer.payload == expected => None,
            AnswerStatus::Ok => Some(self.malformed()),
            AnswerStatus::Epoch => Some(Received::Restarted),
            AnswerStatus::Refused => Some(self.refused(answer.index, 1)),
            AnswerStatus::Fault => Some(self.refused(answer.index, 2)),
            AnswerStatus::Other(code) => Some(self.refused(answer.index, code)),
        }
    }

    fn malformed(&self) -> Received {
        Received::Malformed(*self.head.first_chunk().expect("invariant: a head has more than 8 bytes"))
    }

    /// The refusal of the front frame, which is answered then: moves to the entry that the peer blames.
    fn refused(&mut self, blamed: u32, code: u32) -> Received {
        if let Some(frame) = self.waiting.front_mut() {
            let nth = (blamed as usize).min(frame.pieces.saturating_sub(1));
            let entries = self.work.entries.iter().enumerate().skip(frame.index);
            if let Some((index, _)) = entries.filter(|(_, entry)| entry.len > 0).nth(nth) {
                frame.index = index;
            }
        }
        Received::Refused(code)
    }

    fn done(&self) -> bool {
        self.sending.is_none() && self.waiting.is_empty() && self.next.index >= self.work.entries.len()
    }
}

impl Exchange for RailExchange<'_> {
    fn sent_all(&self) -> bool {
        self.sending.is_none() && self.next.index >= self.work.entries.len()
    }

    fn may_send(&self) -> bool {
        self.sending.is_some() || self.waiting.len() < FRAMES_AHEAD
    }

    fn started(&self) -> bool {
        self.started
    }

    fn sending_index(&self) -> usize {
        self.sending.as_ref().map_or(self.next.index, |sending| sending.index)
    }

    fn next_index(&self) -> usize {
        self.waiting.front().map_or(self.next.index, |frame| frame.index)
    }

    fn in_step(&self) -> bool {
        // A refused write's answer is the last one owed, and nothing more is on its way.
        let only_one = self.waiting.len() == 1 && self.head_have == ANSWER_LEN;
        self.work.opcode == Opcode::Write
            && only_one
            && self.sending.is_none()
            && self.state.hello == Hello::Welcomed
    }

    fn send(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        if self.sending.is_none() {
            self.frame_next();
        }
        let Some(sending) = self.sending.take() else { return Ok(0) };
        match self.gather_and_send(&sending, fd) {
            Ok(sent) => {
                self.started = true;
                self.advance_sending(sending, sent);
                Ok(sent)
            }
            Err(error) => {
                self.sending = Some(sending);
                Err(error)
            }
        }
    }

    fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<Received> {
        if self.done() {
            return Ok(Received::Finished);
        }
        let outcome = if self.state.hello != Hello::Welcomed {
            self.receive_welcome(fd)
        } else {
            self.receive_answer(fd)
        };
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
            outcome => outcome,
        }
    }
}
