//! One rail lane of a client (docs/rail-protocol.md): frames in, answers out, in order.

mod opening;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use moonrail_access::Target;
use moonrail_memory::io::{HeldIov, IovStorage};
use moonrail_memory::{HoldMiss, HoldSet, Want};
use moonrail_sys::errno;
use moonrail_wire::auth::PROOF_LEN;
use moonrail_wire::rail::{
    Answer, AnswerKind, AnswerStatus, Cancel, HELLO_LEN, Head, Present, RANGE_LEN, REQUEST_LEN, Range,
    Request, RequestKind, TOKEN_LEN,
};

use super::Shared;
use super::rail_answers::Answers;
use super::reception::Admission;
use super::tokens::{self, Grants};
use super::trace::UnderWay;
use super::turn::{TURN_BYTES, Turn, flush, nothing_yet, unreadable, untrusted};
use crate::checked::Checked;
use crate::run::{Expect, Limit, Run};
use crate::stream::Stream;

/// Largest payload taken in one frame.
pub(super) const MAX_PAYLOAD: u64 = 64 << 20;
/// Answers a lane may owe before its requests are left in the socket.
const MAX_ANSWERS: usize = 64;
/// Vectors given to one receive.
const VECTORS: usize = 1000;

/// The lane's place in the stream.
enum Place {
    /// Inside the hello: this many bytes of it are here.
    Hello(usize),
    /// Inside the proof of a key, which goes where the hello was.
    Proof(usize, Target),
    /// Inside the head of a request.
    Head(usize),
    /// Inside the table behind the head.
    Table(Request, usize),
    /// Inside a region token, which goes where the table is.
    Token(Present, usize),
    /// Inside the payload of a write whose ranges are held.
    Payload(Incoming),
    /// Dropping the payload of a refused write.
    Discard(u64),
}

struct Incoming {
    request: Request,
    ranges: Vec<Range>,
    holds: HoldSet,
    /// What has not come yet.
    run: Run,
}

pub(super) struct RailLane {
    stream: Stream,
    peer: SocketAddr,
    place: Place,
    hello: [u8; HELLO_LEN],
    head: [u8; REQUEST_LEN],
    table: Vec<u8>,
    iov: IovStorage,
    /// Of a receive of payload.
    expect: Expect,
    answers: Answers,
    grants: Grants,
    /// Of a client that brought a key.
    admission: Option<Admission>,
    /// The traced call that requests belong to now.
    traced: Option<Box<UnderWay>>,
    /// Feature bits in force.
    features: u32,
    /// What follows the welcome that is on its way travels with checksums.
    checks: bool,
    finishing: bool,
    pub last_progress: Instant,
}

impl RailLane {
    /// Takes over a connection whose first bytes, `begun`, were the beginning of a hello.
    pub(super) fn new(stream: Stream, peer: SocketAddr, begun: &[u8], now: Instant) -> Self {
        let mut hello = [0; HELLO_LEN];
        hello[..begun.len()].copy_from_slice(begun);
        Self {
            stream,
            peer,
            place: Place::Hello(begun.len()),
            hello,
            head: [0; REQUEST_LEN],
            table: Vec::new(),
            iov: IovStorage::default(),
            expect: Expect::default(),
            answers: Answers::default(),
            grants: Grants::default(),
            admission: None,
            traced: None,
            features: 0,
            checks: false,
            finishing: false,
            last_progress: now,
        }
    }

    pub(super) fn at_rest(&self) -> bool {
        matches!(self.place, Place::Head(0)) && self.answers.is_empty() && !self.stream.wants_write()
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn reset_on_close(&self) {
        self.stream.reset_on_close();
    }

    pub(super) fn revoked(&self) -> bool {
        matches!(&self.place, Place::Payload(incoming) if incoming.holds.any_revoked())
            || self.answers.revoked()
    }

    /// Moves what can be moved now, up to [`TURN_BYTES`].
    pub(super) fn turn(&mut self, shared: &Shared, now: Instant) -> Turn {
        if let Some((access, admission)) = shared.options.access.as_ref().zip(self.admission.as_mut()) {
            admission.look(access, now);
        }
        let mut budget = TURN_BYTES;
        loop {
            let moved =
                self.take(shared, budget).and_then(|got| Ok(got + self.send_answers(shared, budget)?));
            let moved = match moved {
                Ok(moved) => moved,
                Err(error) => {
                    untrusted(shared, self.peer, &error);
                    return Turn::Closed;
                }
            };
            let flushed = self.stream.flush().is_ok();
            if self.checks && self.answers.is_empty() {
                self.checks = false;
                self.stream.seal(Checked::default(), &[]);
            }
            if moved > 0 || self.stream.progressed() {
                self.last_progress = now;
            }
            let unsent = !self.answers.is_empty() || (flushed && self.stream.wants_write());
            if self.finishing && !unsent {
                return Turn::Closed;
            }
            budget = budget.saturating_sub(moved);
            // No event tells of what the socket has handed over already.
            let held = moved > 0 && self.stream.holds_received() && self.may_take();
            if (budget == 0 && !held) || moved == 0 {
                return Turn::Open { read: self.may_take(), write: unsent };
            }
            budget = budget.max(1);
        }
    }

    fn may_take(&self) -> bool {
        !self.finishing && !self.checks && self.answers.len() < MAX_ANSWERS
    }

    fn take(&mut self, shared: &Shared, budget: u64) -> io::Result<u64> {
        let mut total = 0;
        while total < budget && self.may_take() {
            match nothing_yet(self.take_some(shared))? {
                None => break,
                Some(0) => {
                    self.finishing = true;
                    break;
                }
                Some(got) => total += got as u64,
            }
        }
        Ok(total)
    }

    fn take_some(&mut self, shared: &Shared) -> io::Result<usize> {
        match &mut self.place {
            Place::Hello(have) => {
                let have = *have;
                let got = self.stream.receive_bytes(&mut self.hello[have..])?;
                self.place = Place::Hello(have + got);
                if have + got == HELLO_LEN {
                    self.welcome(shared);
                }
                Ok(got)
            }
            Place::Proof(have, _) => {
                let got = self.stream.receive_bytes(&mut self.hello[*have..PROOF_LEN])?;
                *have += got;
                if *have == PROOF_LEN
                    && let Place::Proof(_, target) = std::mem::replace(&mut self.place, Place::Head(0))
                {
                    self.judge(shared, target);
                }
                Ok(got)
            }
            Place::Head(have) => {
                let have = *have;
                let got = self.stream.receive_bytes(&mut self.head[have..])?;
                self.have_head(shared, have + got);
                Ok(got)
            }
            Place::Table(request, have) => {
                let (request, have) = (*request, *have);
                let got = self.stream.receive_bytes(&mut self.table[have..])?;
                self.place = Place::Table(request, have + got);
                if have + got == self.table.len() {
                    self.begin(shared, request);
                }
                Ok(got)
            }
            Place::Token(present, have) => {
                let (present, have) = (*present, *have);
                let got = self.stream.receive_bytes(&mut self.table[have..])?;
                self.place = Place::Token(present, have + got);
                if have + got == self.table.len() {
                    self.take_token(shared, present);
                }
                Ok(got)
            }
            Place::Payload(_) => self.take_payload(shared),
            Place::Discard(left) => {
                let got = self.stream.discard((*left).min(1 << 20) as usize)?;
                *left -= got as u64;
                if *left == 0 {
                    self.place = Place::Head(0);
                }
                Ok(got)
            }
        }
    }

    fn have_head(&mut self, shared: &Shared, have: usize) {
        self.place = Place::Head(have);
        if have < REQUEST_LEN {
            return;
        }
        match Head::decode(&self.head, self.features) {
            Err(error) => self.give_up(shared, format_args!("{error}")),
            Ok(Head::Cancel(cancel)) => self.cancel(shared, cancel),
            Ok(Head::Present(present)) => {
                self.table.clear();
                self.table.resize(TOKEN_LEN, 0);
                self.place = Place::Token(present, 0);
            }
            Ok(Head::Trace(trace)) => {
                self.place = Place::Head(0);
                let sink = shared.options.traces.as_ref();
                // The call before it, if it is not through, has ended early.
                self.traced = None;
                self.traced = sink.and_then(|sink| UnderWay::begin(sink, &trace, self.peer)).map(Box::new);
            }
            Ok(Head::Request(request)) if request.payload > MAX_PAYLOAD => {
                self.give_up(shared, format_args!("a frame of {} bytes", request.payload));
            }
            Ok(Head::Request(request)) => {
                self.table.clear();
                self.table.resize(request.table_len(), 0);
                self.place = Place::Table(request, 0);
                if self.table.is_empty() {
                    self.begin(shared, request);
                }
            }
        }
    }

    /// Everything in front of the cancel was taken already: reads whose answers have not begun are dropped.
    fn cancel(&mut self, shared: &Shared, cancel: Cancel) {
        self.place = Place::Head(0);
        self.traced = None;
        let meant = cancel.epoch == shared.options.epoch;
        if meant {
            self.answers.cancel(cancel.from, cancel.id);
        }
        let status = if meant { AnswerStatus::Ok } else { AnswerStatus::Epoch };
        self.answers.push(Answer { kind: AnswerKind::Cancel, status, id: cancel.id, index: 0, payload: 0 });
    }

    /// Head and table are here: checks the frame, holds its ranges, and goes on to the payload or the answer.
    fn begin(&mut self, shared: &Shared, request: Request) {
        let further = self.table.chunks_exact(RANGE_LEN);
        let ranges: Vec<Range> = std::iter::once(request.first)
            .chain(further.map(|bytes| Range::decode(bytes.try_into().expect("invariant: chunks_exact"))))
            .collect();
        let sum = ranges.iter().try_fold(0u64, |sum, range| sum.checked_add(range.len));
        if sum != Some(request.payload) || ranges.iter().any(|range| range.len == 0) {
            self.give_up(shared, format_args!("a frame whose lengths do not add up"));
            return;
        }
        // A client that may still come opens another lane then; one that may not is told so there.
        let barred = self.admission.as_ref().is_some_and(Admission::has_ended);
        if request.epoch != shared.options.epoch || barred {
            self.refuse(shared, &request, AnswerStatus::Epoch, 0);
            return;
        }
        let want = if request.kind == RequestKind::Write { Want::Write } else { Want::Read };
        match shared.regions.hold_all(ranges.iter().map(|range| (range.addr, range.len)), want) {
            Err((index, error)) => {
                tokens::tell_refusal(shared, self.peer, &error);
                let barred = matches!(error.miss, HoldMiss::ReadOnly { .. });
                let status = if barred { AnswerStatus::Permission } else { AnswerStatus::Refused };
                self.refuse(shared, &request, status, index as u32);
            }
            Ok(holds) => self.serve(shared, request, ranges, holds),
        }
    }

    /// The frame's ranges are held: goes on to the payload or the answer, if tokens are not missing.
    fn serve(&mut self, shared: &Shared, request: Request, ranges: Vec<Range>, holds: HoldSet) {
        if let Some(index) = self.grants.first_missing(shared, &holds, &ranges) {
            tokens::tell_refusal(shared, self.peer, &"no token for a region that needs one");
            self.refuse(shared, &request, AnswerStatus::Token, index as u32);
            return;
        }
        match request.kind {
            RequestKind::Read => {
                shared.counters.requests.fetch_add(1, Relaxed);
                shared.counters.bytes_out.fetch_add(request.payload, Relaxed);
                self.place = Place::Head(0);
                self.count_traced(&request, AnswerStatus::Ok);
                let answer = answer(&request, AnswerStatus::Ok, 0, request.payload);
                self.answers.push_read(answer, ranges, holds);
            }
            RequestKind::Write => {
                let run = Run { index: 0, offset: 0, left: request.payload };
                self.place = Place::Payload(Incoming { request, ranges, holds, run });
            }
        }
    }

    fn take_payload(&mut self, shared: &Shared) -> io::Result<usize> {
        let Place::Payload(incoming) = &mut self.place else { return Ok(0) };
        let mut iov = HeldIov::from_storage(std::mem::take(&mut self.iov));
        let limit = Limit { vectors: VECTORS, bytes: self.expect.bytes() };
        let Incoming { ranges, holds, run, .. } = &*incoming;
        let gathered = run.gather(ranges, holds, &mut 0, limit, &mut iov)?;
        if gathered == run.left {
            // The next head comes with the end of the payload.
            iov.push_bytes_mut(&mut self.head);
        }
        // Last of all, as this process may be stopped anywhere.
        let outcome = self.stream.check().and_then(|()| self.stream.receive(&mut iov));
        self.iov = iov.into_storage();
        let got = match outcome {
            Ok(got) => got as u64,
            Err(error) if errno::is_bad_address(&error) => {
                // What is left of the payload is dropped; the lane stays in step.
                let (request, left, index) = (incoming.request, incoming.run.left, incoming.run.index);
                let peer = self.peer;
                shared.warn(format_args!(
                    "registered memory written by {peer} is not mapped: freed without unregister?"
                ));
                self.answers.push(answer(&request, AnswerStatus::Fault, index as u32, 0));
                shared.counters.refused.fetch_add(1, Relaxed);
                self.place = Place::Discard(left);
                self.count_traced(&request, AnswerStatus::Fault);
                return Err(io::ErrorKind::Interrupted.into());
            }
            Err(error) => return Err(error),
        };
        let stored = got.min(incoming.run.left);
        self.expect.learn(gathered, stored);
        incoming.run.advance(&incoming.ranges, stored);
        shared.counters.bytes_in.fetch_add(stored, Relaxed);
        if incoming.run.left == 0 && got > 0 {
            let request = incoming.request;
            let done = answer(&request, AnswerStatus::Ok, 0, 0);
            shared.counters.requests.fetch_add(1, Relaxed);
            self.answers.push(done);
            self.count_traced(&request, AnswerStatus::Ok);
            self.have_head(shared, (got - stored) as usize);
        }
        Ok(got as usize)
    }

    fn refuse(&mut self, shared: &Shared, request: &Request, status: AnswerStatus, index: u32) {
        shared.counters.refused.fetch_add(1, Relaxed);
        self.answers.push(answer(request, status, index, 0));
        self.count_traced(request, status);
        self.place = match request.kind {
            RequestKind::Write => Place::Discard(request.payload),
            RequestKind::Read => Place::Head(0),
        };
    }

    fn count_traced(&mut self, request: &Request, status: AnswerStatus) {
        if self.traced.as_mut().is_some_and(|traced| traced.answered(request, status)) {
            self.traced = None;
        }
    }

    /// The stream cannot be understood any further.
    fn give_up(&mut self, shared: &Shared, why: std::fmt::Arguments<'_>) {
        shared.counters.refused.fetch_add(1, Relaxed);
        shared.warn(format_args!("closed the rail lane of {}: {why}", self.peer));
        self.finishing = true;
    }

    fn send_answers(&mut self, shared: &Shared, budget: u64) -> io::Result<u64> {
        let Self { stream, answers, .. } = self;
        let outcome = flush(budget, || if answers.is_empty() { Ok(0) } else { answers.send(stream) });
        outcome.inspect_err(|error| unreadable(shared, self.peer, error))
    }
}

impl AsFd for RailLane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn answer(request: &Request, status: AnswerStatus, index: u32, payload: u64) -> Answer {
    Answer { kind: request.kind.into(), status, id: request.id, index, payload }
}
