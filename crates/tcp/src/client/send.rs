//! The bytes of a batch on their way out: headers, and for writes the payload straight from held memory.

use std::io;

use moonrail_memory::io::{HeldIov, IovStorage};
use moonrail_transport::{Opcode, Work};
use moonrail_wire::data::{DataVersion, HEADER_LEN, Op, RequestHeader};

use super::exchange::push_local;
use crate::stream::Stream;

/// Requests gathered into one system call: two vectors each, within IOV_MAX.
const REQUESTS_PER_CALL: usize = 512;
/// Payload gathered into one system call; more would only be cut by the socket buffer.
const BYTES_PER_CALL: u64 = 2 << 20;
/// Requests sent ahead of their answers.
const IN_FLIGHT: usize = 8192;

/// A cursor over the batch's outgoing bytes.
pub(super) struct Outgoing<'a> {
    work: &'a Work<'a>,
    version: DataVersion,
    /// The entry being sent, and how many of its bytes (header first) are out.
    index: usize,
    offset: u64,
    end: usize,
    started: bool,
    hint: usize,
    storage: IovStorage,
    headers: Vec<[u8; HEADER_LEN]>,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new(work: &'a Work<'a>, version: DataVersion) -> Self {
        Self::range(work, version, 0, work.entries.len())
    }

    /// Only the entries `from..to`.
    pub(super) fn range(work: &'a Work<'a>, version: DataVersion, from: usize, to: usize) -> Self {
        let mut outgoing = Self {
            work,
            version,
            index: from,
            offset: 0,
            end: to,
            started: false,
            hint: 0,
            storage: IovStorage::default(),
            headers: Vec::with_capacity((to - from).min(REQUESTS_PER_CALL)),
        };
        outgoing.skip_empty();
        outgoing
    }

    /// Everything was handed to the socket.
    pub(super) fn done(&self) -> bool {
        self.index >= self.end
    }

    /// Any byte was handed to the socket.
    pub(super) fn started(&self) -> bool {
        self.started
    }

    /// The entry being sent.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Whether the window allows the next request, when `answered` entries have their answer.
    pub(super) fn may_send(&self, answered: usize) -> bool {
        self.index.saturating_sub(answered) < IN_FLIGHT
    }

    /// Hands as much as one call takes to the socket; returns the number of bytes.
    pub(super) fn send(&mut self, stream: &mut Stream) -> io::Result<usize> {
        self.fill_headers();
        let sent = self.gather_and_send(stream)?;
        self.started = true;
        self.advance(sent as u64);
        Ok(sent)
    }

    fn fill_headers(&mut self) {
        self.headers.clear();
        let mut bytes = 0;
        for entry in &self.work.entries[self.index..self.end] {
            if self.headers.len() == REQUESTS_PER_CALL || bytes >= BYTES_PER_CALL {
                break;
            }
            if entry.len == 0 {
                continue;
            }
            let op = match self.work.opcode {
                Opcode::Read => Op::Read,
                Opcode::Write => Op::Write,
            };
            let header = RequestHeader { size: entry.len, addr: entry.remote, op, version: self.version };
            self.headers.push(header.encode());
            if self.work.opcode == Opcode::Write {
                bytes += entry.len;
            }
        }
    }

    fn gather_and_send(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let mut iov = HeldIov::from_storage(std::mem::take(&mut self.storage));
        let entries = self.work.entries[self.index..self.end].iter().filter(|entry| entry.len > 0);
        let mut offset = self.offset;
        for (header, entry) in self.headers.iter().zip(entries) {
            if offset < HEADER_LEN as u64 {
                iov.push_bytes(&header[offset as usize..]);
                offset = HEADER_LEN as u64;
            }
            if self.work.opcode == Opcode::Write {
                let skip = offset - HEADER_LEN as u64;
                push_local(&mut iov, self.work, entry.local + skip, entry.len - skip, &mut self.hint)?;
            }
            offset = 0;
        }
        let outcome = stream.send(&iov);
        self.storage = iov.into_storage();
        outcome
    }

    fn advance(&mut self, mut sent: u64) {
        while sent > 0 {
            let entry = &self.work.entries[self.index];
            let payload = if self.work.opcode == Opcode::Write { entry.len } else { 0 };
            let left = HEADER_LEN as u64 + payload - self.offset;
            if sent < left {
                self.offset += sent;
                return;
            }
            sent -= left;
            self.offset = 0;
            self.index += 1;
            self.skip_empty();
        }
    }

    fn skip_empty(&mut self) {
        while self.index < self.end && self.work.entries[self.index].len == 0 {
            self.index += 1;
        }
    }
}
