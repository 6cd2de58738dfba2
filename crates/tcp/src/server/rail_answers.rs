//! Answers of a rail lane on their way out, payload of reads straight from held memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use moonrail_memory::HoldSet;
use moonrail_memory::io::HeldIov;
use moonrail_wire::rail::{ANSWER_LEN, Range, WELCOME_LEN};

/// Vectors given to one send.
const VECTORS: usize = 1000;
/// Payload gathered into one send.
const BYTES_PER_CALL: u64 = 4 << 20;

// Both heads are sent from the same place.
const _: () = assert!(ANSWER_LEN == WELCOME_LEN);

struct Reply {
    head: [u8; ANSWER_LEN],
    ranges: Vec<Range>,
    holds: HoldSet,
}

/// The answers that a lane still owes, in order.
#[derive(Default)]
pub(super) struct Answers {
    queue: VecDeque<Reply>,
    /// Bytes of the front answer's head that are out; then its range being sent, and how much of it is out.
    head_sent: usize,
    index: usize,
    offset: u64,
}

impl Answers {
    pub(super) fn push(&mut self, head: [u8; ANSWER_LEN]) {
        self.push_read(head, Vec::new(), HoldSet::default());
    }

    pub(super) fn push_welcome(&mut self, head: [u8; WELCOME_LEN]) {
        self.push(head);
    }

    pub(super) fn push_read(&mut self, head: [u8; ANSWER_LEN], ranges: Vec<Range>, holds: HoldSet) {
        self.queue.push_back(Reply { head, ranges, holds });
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn revoked(&self) -> bool {
        self.queue.iter().any(|reply| reply.holds.any_revoked())
    }

    /// Hands as much as one call takes to the socket; returns the number of bytes.
    pub(super) fn send(&mut self, fd: BorrowedFd<'_>) -> io::Result<u64> {
        let sent = {
            let mut iov = HeldIov::new();
            self.gather(&mut iov)?;
            iov.send(fd)? as u64
        };
        self.advance(sent);
        Ok(sent)
    }

    fn gather<'a>(&'a self, iov: &mut HeldIov<'a>) -> io::Result<()> {
        let (mut head_sent, mut index, mut offset, mut bytes) = (self.head_sent, self.index, self.offset, 0);
        for reply in &self.queue {
            if head_sent < ANSWER_LEN {
                iov.push_bytes(&reply.head[head_sent..]);
            }
            let mut hint = 0;
            for range in &reply.ranges[index..] {
                if iov.len() >= VECTORS || bytes >= BYTES_PER_CALL {
                    return Ok(());
                }
                let (addr, len) = (range.addr + offset, range.len - offset);
                let hold = reply
                    .holds
                    .find(addr, len, &mut hint)
                    .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
                iov.push_held(hold, addr, len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
                bytes += len;
                offset = 0;
            }
            if iov.len() >= VECTORS || bytes >= BYTES_PER_CALL {
                return Ok(());
            }
            (head_sent, index, offset) = (0, 0, 0);
        }
        Ok(())
    }

    fn advance(&mut self, mut sent: u64) {
        while let Some(front) = self.queue.front() {
            let head_left = (ANSWER_LEN - self.head_sent) as u64;
            if sent < head_left {
                self.head_sent += sent as usize;
                return;
            }
            self.head_sent = ANSWER_LEN;
            sent -= head_left;
            while let Some(range) = front.ranges.get(self.index) {
                let left = range.len - self.offset;
                if sent < left {
                    self.offset += sent;
                    return;
                }
                sent -= left;
                self.offset = 0;
                self.index += 1;
            }
            self.queue.pop_front();
            (self.head_sent, self.index, self.offset) = (0, 0, 0);
            if sent == 0 {
                return;
            }
        }
    }
}
