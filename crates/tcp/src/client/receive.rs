//! The answers to a batch: status frames, and for reads the payload straight into held memory.

use std::io;

use moonrail_memory::io::{HeldIov, IovStorage};
use moonrail_transport::{Opcode, Work};
use moonrail_wire::data::{STATUS_LEN, STATUS_OK, decode_status};

use super::exchange::{Received, push_local};
use crate::stream::Stream;

/// Answers gathered into one system call: two vectors each for reads, within IOV_MAX.
const ANSWERS_PER_CALL: usize = 512;
/// Payload asked for in one system call.
const BYTES_PER_CALL: u64 = 4 << 20;

/// Answers, and bytes, that one wake-up may wait for.
const WAKING_ANSWERS: usize = 256;
const WAKING_BYTES: u64 = 256 << 10;

/// A cursor over the batch's answers.
pub(super) struct Incoming<'a> {
    work: &'a Work<'a>,
    /// Bytes of status before each payload: 0 in v1.
    status_len: u64,
    /// The entry whose answer comes next, and how many of its bytes (status first) are here.
    index: usize,
    offset: u64,
    end: usize,
    hint: usize,
    storage: IovStorage,
    statuses: Vec<[u8; STATUS_LEN]>,
}

impl<'a> Incoming<'a> {
    /// The v2 answers to the whole batch.
    pub(super) fn new(work: &'a Work<'a>) -> Self {
        Self::range(work, STATUS_LEN as u64, 0, work.entries.len())
    }

    /// The v1 answers to the entries `from..to` of a read: payload without status.
    pub(super) fn payload_only(work: &'a Work<'a>, from: usize, to: usize) -> Self {
        Self::range(work, 0, from, to)
    }

    fn range(work: &'a Work<'a>, status_len: u64, from: usize, to: usize) -> Self {
        let statuses = vec![[0; STATUS_LEN]; (to - from).min(ANSWERS_PER_CALL)];
        let mut incoming = Self {
            work,
            status_len,
            index: from,
            offset: 0,
            end: to,
            hint: 0,
            storage: IovStorage::default(),
            statuses,
        };
        incoming.skip_empty();
        incoming
    }

    /// The first entry not known to be applied.
    pub(super) fn next_index(&self) -> usize {
        self.index
    }

    /// Bytes that are worth waking up for when the entries before `sent` are sent: each answer wakes this thread at the
    /// peer's cost, and a genuine peer answers every request by itself.
    pub(super) fn worth_waking(&self, sent: usize) -> usize {
        let payload = self.work.opcode == Opcode::Read;
        let mut bytes = 0;
        let entries = self.work.entries[self.index..sent.clamp(self.index, self.end)].iter();
        for entry in entries.filter(|entry| entry.len > 0).take(WAKING_ANSWERS) {
            bytes += self.status_len + if payload { entry.len } else { 0 };
            if bytes > WAKING_BYTES {
                break;
            }
        }
        bytes.saturating_sub(self.offset).clamp(1, WAKING_BYTES) as usize
    }

    /// Takes what one system call gives.
    pub(super) fn receive(&mut self, stream: &mut Stream) -> io::Result<Received> {
        if self.index >= self.end {
            return Ok(Received::Finished);
        }
        let got = match self.gather_and_receive(stream) {
            Ok(0) => return Ok(Received::End),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
            Err(error) => return Err(error),
        };
        Ok(self.advance(got as u64))
    }

    /// Vectors for as many answers as one call may take. A refusal is followed by the end of the
    /// connection, so a payload vector behind a failed status never receives anything.
    fn gather_and_receive(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let payload = self.work.opcode == Opcode::Read;
        let mut iov = HeldIov::from_storage(std::mem::take(&mut self.storage));
        let entries = self.work.entries[self.index..self.end].iter().filter(|entry| entry.len > 0);
        let mut offset = self.offset;
        let mut bytes = 0;
        for (status, entry) in self.statuses.iter_mut().zip(entries) {
            if bytes >= BYTES_PER_CALL {
                break;
            }
            if offset < self.status_len {
                iov.push_bytes_mut(&mut status[offset as usize..]);
                offset = self.status_len;
            }
            if payload {
                let skip = offset - self.status_len;
                push_local(&mut iov, self.work, entry.local + skip, entry.len - skip, &mut self.hint)?;
                bytes += entry.len - skip;
            }
            offset = 0;
        }
        let outcome = stream.receive(&mut iov);
        self.storage = iov.into_storage();
        outcome
    }

    fn advance(&mut self, mut got: u64) -> Received {
        let mut slot = 0;
        loop {
            let entry = &self.work.entries[self.index];
            let payload = if self.work.opcode == Opcode::Read { entry.len } else { 0 };
            let left = self.status_len + payload - self.offset;
            let before = self.offset;
            let taken = got.min(left);
            self.offset += taken;
            got -= taken;
            let status_is_new = before < self.status_len && self.offset >= self.status_len;
            if status_is_new && let Some(bad) = judge(self.statuses[slot]) {
                return bad;
            }
            if self.offset < self.status_len + payload {
                // A status cut in two goes on in the first slot of the next call.
                self.statuses.swap(0, slot);
                return Received::Some;
            }
            self.offset = 0;
            self.index += 1;
            self.skip_empty();
            slot += 1;
            if self.index >= self.end {
                return Received::Finished;
            }
            if got == 0 {
                return Received::Some;
            }
        }
    }

    fn skip_empty(&mut self) {
        while self.index < self.end && self.work.entries[self.index].len == 0 {
            self.index += 1;
        }
    }
}

fn judge(status: [u8; STATUS_LEN]) -> Option<Received> {
    match decode_status(&status) {
        Ok(STATUS_OK) => None,
        Ok(code) => Some(Received::Refused(code)),
        Err(_) => Some(Received::Malformed(status)),
    }
}
