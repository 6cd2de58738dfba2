//! Answers on their way out: status frames, and payload of reads straight from held memory.

use std::collections::VecDeque;
use std::io;

use moonrail_memory::Hold;
use moonrail_memory::io::HeldIov;
use moonrail_wire::data::STATUS_LEN;

use crate::stream::Stream;

/// Answers gathered into one system call.
const PER_CALL: usize = 512;
/// Payload gathered into one system call.
const BYTES_PER_CALL: u64 = 1 << 20;

/// A range of held memory that a read asked for.
pub(super) struct Payload {
    pub hold: Hold,
    pub addr: u64,
    pub len: u64,
}

struct Reply {
    status: [u8; STATUS_LEN],
    status_len: u64,
    payload: Option<Payload>,
}

impl Reply {
    fn len(&self) -> u64 {
        self.status_len + self.payload.as_ref().map_or(0, |payload| payload.len)
    }
}

/// The answers that a connection still owes, in order.
#[derive(Default)]
pub(super) struct Replies {
    queue: VecDeque<Reply>,
    /// Bytes of the front answer that are out.
    offset: u64,
}

impl Replies {
    pub(super) fn push(&mut self, status: Option<[u8; STATUS_LEN]>, payload: Option<Payload>) {
        let status_len = if status.is_some() { STATUS_LEN as u64 } else { 0 };
        self.queue.push_back(Reply { status: status.unwrap_or_default(), status_len, payload });
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether memory of a waiting answer is being unregistered.
    pub(super) fn revoked(&self) -> bool {
        self.queue.iter().any(|reply| reply.payload.as_ref().is_some_and(|payload| payload.hold.revoked()))
    }

    /// Hands as much as one call takes to the socket; returns the number of bytes and of payload bytes.
    pub(super) fn send(&mut self, stream: &mut Stream) -> io::Result<u64> {
        let mut iov = HeldIov::new();
        let mut offset = self.offset;
        let mut bytes = 0;
        for reply in self.queue.iter().take(PER_CALL) {
            if bytes >= BYTES_PER_CALL {
                break;
            }
            if offset < reply.status_len {
                iov.push_bytes(&reply.status[offset as usize..]);
                offset = reply.status_len;
            }
            if let Some(payload) = &reply.payload {
                let skip = offset - reply.status_len;
                iov.push_held(&payload.hold, payload.addr + skip, payload.len - skip)
                    .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
                bytes += payload.len - skip;
            }
            offset = 0;
        }
        let sent = stream.send(&iov)? as u64;
        drop(iov);
        self.advance(sent);
        Ok(sent)
    }

    fn advance(&mut self, mut sent: u64) {
        while let Some(front) = self.queue.front() {
            let left = front.len() - self.offset;
            if sent < left {
                self.offset += sent;
                return;
            }
            sent -= left;
            self.offset = 0;
            self.queue.pop_front();
        }
    }
}
