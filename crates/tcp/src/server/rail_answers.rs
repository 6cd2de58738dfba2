//! Answers of a rail lane on their way out, payload of reads straight from held memory.

use std::collections::VecDeque;
use std::io;

use moonrail_memory::HoldSet;
use moonrail_memory::io::{HeldIov, IovStorage};
use moonrail_wire::rail::{ANSWER_LEN, Answer, AnswerKind, AnswerStatus, Range, WELCOME_LEN};

use crate::run::{Limit, Run};
use crate::stream::Stream;

/// Vectors given to one send.
const VECTORS: usize = 1000;
/// Payload gathered into one send.
const BYTES_PER_CALL: u64 = 4 << 20;

// Both heads are sent from the same place.
const _: () = assert!(ANSWER_LEN == WELCOME_LEN);

struct Reply {
    /// The request's id; 0 for the welcome.
    id: u64,
    head: [u8; ANSWER_LEN],
    /// Bytes of the head that are out.
    head_sent: usize,
    /// What of the payload is not out yet.
    run: Run,
    ranges: Vec<Range>,
    holds: HoldSet,
}

/// The answers that a lane still owes, in order.
#[derive(Default)]
pub(super) struct Answers {
    queue: VecDeque<Reply>,
    iov: IovStorage,
}

impl Answers {
    /// An answer without payload.
    pub(super) fn push(&mut self, answer: Answer) {
        self.push_read(answer, Vec::new(), HoldSet::default());
    }

    pub(super) fn push_welcome(&mut self, head: [u8; WELCOME_LEN]) {
        self.push_head(0, head, 0, Vec::new(), HoldSet::default());
    }

    /// A welcome, and the nonce or proof behind it, which is as long.
    pub(super) fn push_double(&mut self, bytes: [u8; 2 * WELCOME_LEN]) {
        for half in bytes.as_chunks().0 {
            self.push_welcome(*half);
        }
    }

    /// The answer to a read, with the memory that it sends.
    pub(super) fn push_read(&mut self, answer: Answer, ranges: Vec<Range>, holds: HoldSet) {
        self.push_head(answer.id, answer.encode(), answer.payload, ranges, holds);
    }

    fn push_head(&mut self, id: u64, head: [u8; ANSWER_LEN], left: u64, ranges: Vec<Range>, holds: HoldSet) {
        let run = Run { index: 0, offset: 0, left };
        self.queue.push_back(Reply { id, head, head_sent: 0, run, ranges, holds });
    }

    /// Takes back the payload of reads with an id in `from..below` whose answer has not begun, and lets go of their memory.
    pub(super) fn cancel(&mut self, from: u64, below: u64) {
        for reply in &mut self.queue {
            if reply.head_sent == 0 && reply.run.left > 0 && (from..below).contains(&reply.id) {
                let answer = Answer {
                    kind: AnswerKind::Read,
                    status: AnswerStatus::Cancelled,
                    id: reply.id,
                    index: 0,
                    payload: 0,
                };
                reply.head = answer.encode();
                (reply.run, reply.ranges, reply.holds) = Default::default();
            }
        }
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
    pub(super) fn send(&mut self, stream: &mut Stream) -> io::Result<u64> {
        let mut iov = HeldIov::from_storage(std::mem::take(&mut self.iov));
        let gathered = gather(&self.queue, &mut iov);
        let sent = gathered.and_then(|()| stream.send(&iov));
        self.iov = iov.into_storage();
        let sent = sent? as u64;
        self.advance(sent);
        Ok(sent)
    }

    fn advance(&mut self, mut sent: u64) {
        while let Some(front) = self.queue.front_mut() {
            let of_head = sent.min((ANSWER_LEN - front.head_sent) as u64);
            front.head_sent += of_head as usize;
            let of_payload = (sent - of_head).min(front.run.left);
            front.run.advance(&front.ranges, of_payload);
            sent -= of_head + of_payload;
            if front.head_sent < ANSWER_LEN || front.run.left > 0 {
                return;
            }
            self.queue.pop_front();
        }
    }
}

fn gather<'a>(queue: &'a VecDeque<Reply>, iov: &mut HeldIov<'a>) -> io::Result<()> {
    let mut bytes = 0;
    for reply in queue {
        if iov.len() >= VECTORS || bytes >= BYTES_PER_CALL {
            break;
        }
        iov.push_bytes(&reply.head[reply.head_sent..]);
        let limit = Limit { vectors: VECTORS, bytes: BYTES_PER_CALL - bytes };
        let gathered = reply.run.gather(&reply.ranges, &reply.holds, &mut 0, limit, iov)?;
        if gathered < reply.run.left {
            break;
        }
        bytes += gathered;
    }
    Ok(())
}
