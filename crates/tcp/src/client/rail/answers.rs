//! What comes back: the welcome, the heads of answers, and the payload of reads straight into held memory.

use std::io;

use moonrail_memory::io::HeldIov;
use moonrail_wire::rail::{
    ANSWER_LEN, Answer, AnswerKind, AnswerStatus, WELCOME_LEN, Welcome, WelcomeStatus,
};

use super::{Blamed, Cancelling, Frame, Hello, RailExchange};
use crate::client::exchange::{NO_TOKEN, PERMISSION, Received};
use crate::run::Limit;
use crate::stream::Stream;

/// Vectors for payload in one receive.
const VECTORS: usize = 1000;

impl RailExchange<'_> {
    pub(super) fn receive_welcome(&mut self, stream: &mut Stream) -> io::Result<Received> {
        let got = stream.receive_bytes(&mut self.heads[0][self.head_have..])?;
        if got == 0 {
            return Ok(Received::End);
        }
        self.head_have += got;
        if self.head_have < WELCOME_LEN {
            return Ok(Received::Some);
        }
        self.head_have = 0;
        match Welcome::decode(&self.heads[0]) {
            Ok(Welcome { status: WelcomeStatus::Open, features, .. }) => {
                self.state.hello = Hello::Welcomed;
                self.state.features = features;
                Ok(Received::Some)
            }
            Ok(Welcome { status: WelcomeStatus::Epoch, .. }) => {
                self.turned_away = true;
                Ok(Received::Restarted)
            }
            Ok(Welcome { status: WelcomeStatus::KeyRequired, .. }) => Ok(Received::KeyRequired),
            Ok(Welcome { status: WelcomeStatus::TlsRequired, .. }) => Ok(Received::TlsRequired),
            _ => Ok(self.malformed()),
        }
    }

    /// One receive: the head of the answer awaited, for reads as much of its payload as may be there, and the head
    /// behind it.
    pub(super) fn receive_answers(&mut self, stream: &mut Stream) -> io::Result<Received> {
        let Some(front) = self.waiting.front() else { return Ok(Received::Nothing) };
        let missing = payload_of(front);
        // What a cancelled read sends is only known from its head.
        let head_only = self.cancelling != Cancelling::No && !self.judged;
        let had_head = self.head_have;
        let [mut head, mut behind] = self.heads;
        let mut iov = HeldIov::from_storage(std::mem::take(&mut self.iov));
        iov.push_bytes_mut(&mut head[had_head..]);
        let mut listed = 0;
        // Behind a refusal stands the next answer, which must not be taken for payload.
        let sure = self.judged || self.waiting.len() == 1;
        if !head_only && sure && missing > 0 {
            let limit = Limit { vectors: VECTORS, bytes: self.state.expect.bytes() };
            listed =
                front.run.gather(self.work.entries, self.work.holds, &mut self.hints[1], limit, &mut iov)?;
        }
        if !head_only && listed == missing && self.waiting.len() > 1 {
            iov.push_bytes_mut(&mut behind);
        }
        let outcome = stream.receive(&mut iov);
        self.iov = iov.into_storage();
        let got = outcome?;
        if got == 0 {
            return Ok(Received::End);
        }
        self.heads = [head, behind];
        self.head_have = (had_head + got).min(ANSWER_LEN);
        let payload = (had_head + got - self.head_have) as u64;
        if listed > 0 {
            self.state.expect.learn(listed, payload.min(listed));
        }
        Ok(self.take(payload))
    }

    /// Counts what lies behind the head being received, and takes every answer that is whole.
    fn take(&mut self, mut behind: u64) -> Received {
        while self.head_have == ANSWER_LEN {
            if !self.judged {
                match self.judge() {
                    None => self.judged = true,
                    Some(bad) => {
                        if let Some(front) = self.waiting.front() {
                            self.overran |= payload_of(front) > 0 && behind > 0;
                            let index = front.run.index;
                            self.failed = self.failed.or(Some(Blamed { entry: index, frame: index }));
                        }
                        self.next_answer(behind);
                        if self.cancelling == Cancelling::No || !matches!(bad, Received::Refused(_)) {
                            return bad;
                        }
                        behind = 0;
                        continue;
                    }
                }
            }
            let Some(front) = self.waiting.front_mut() else { break };
            let payload = payload_of(front).min(behind);
            if payload > 0 {
                front.run.advance(self.work.entries, payload);
                behind -= payload;
            }
            if payload_of(front) > 0 {
                return Received::Some;
            }
            self.touched |= front.kind == AnswerKind::Write;
            self.next_answer(behind);
            behind = 0;
        }
        if self.done() { Received::Finished } else { Received::Some }
    }

    /// The front frame is dealt with; `have` bytes of the next head are here.
    fn next_answer(&mut self, have: u64) {
        if let Some(frame) = self.waiting.pop_front() {
            self.ahead -= frame.payload;
        }
        self.heads.swap(0, 1);
        self.head_have = (have as usize).min(ANSWER_LEN);
        self.judged = false;
    }

    /// What is wrong with the head of the front frame's answer, if anything.
    fn judge(&mut self) -> Option<Received> {
        let front = self.waiting.front()?;
        let Ok(answer) = Answer::decode(&self.heads[0]) else { return Some(self.malformed()) };
        if answer.id != front.id || answer.kind != front.kind {
            return Some(self.malformed());
        }
        let code = match answer.status {
            AnswerStatus::Ok if answer.payload == payload_of(front) => return None,
            AnswerStatus::Ok => return Some(self.malformed()),
            AnswerStatus::Epoch => return Some(Received::Restarted),
            AnswerStatus::Refused => 1,
            AnswerStatus::Fault => 2,
            AnswerStatus::Cancelled => 4,
            AnswerStatus::Permission => PERMISSION,
            AnswerStatus::Token => NO_TOKEN,
            AnswerStatus::Other(code) => code,
        };
        self.touched |= front.kind == AnswerKind::Write && !matches!(code, 1 | 4 | PERMISSION | NO_TOKEN);
        if self.failed.is_none() {
            let frame = self.waiting.front().map_or(self.next.index, |frame| frame.run.index);
            self.failed = Some(Blamed { entry: self.blamed(answer), frame });
        }
        Some(Received::Refused(code))
    }

    /// The entry that the answer to the front frame blames.
    fn blamed(&self, answer: Answer) -> usize {
        let Some(frame) = self.waiting.front() else { return self.next.index };
        if answer.status == AnswerStatus::Cancelled {
            return frame.run.index;
        }
        let nth = (answer.index as usize).min(frame.pieces.saturating_sub(1));
        let entries = self.work.entries.iter().enumerate().skip(frame.run.index);
        entries.filter(|(_, entry)| entry.len > 0).nth(nth).map_or(frame.run.index, |(index, _)| index)
    }

    fn malformed(&self) -> Received {
        Received::Malformed(*self.heads[0].first_chunk().expect("invariant: a head has more than 8 bytes"))
    }
}

/// Payload of the answer to a frame that was served, as far as it has not come yet.
fn payload_of(frame: &Frame) -> u64 {
    if frame.kind == AnswerKind::Read { frame.run.left } else { 0 }
}
