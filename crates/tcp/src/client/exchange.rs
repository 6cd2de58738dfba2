//! What the loop in `drive` asks of an exchange, whichever protocol it is in.

use std::io;

use moonrail_memory::io::HeldIov;
use moonrail_transport::Work;
use moonrail_wire::data::STATUS_LEN;

use crate::stream::Stream;

/// The code of a refusal for want of permission.
pub(super) const PERMISSION: u32 = 5;
/// The code of a refusal for want of a token.
pub(super) const NO_TOKEN: u32 = 6;

/// What one attempt to receive gave.
pub(super) enum Received {
    /// The socket had nothing.
    Nothing,
    /// Some bytes; more are expected.
    Some,
    /// Every answer to what was sent is here.
    Finished,
    /// The peer ended the connection.
    End,
    /// The entry at `failing_index` was refused with this code.
    Refused(u32),
    /// The peer is another process than the one meant; nothing was looked at.
    Restarted,
    /// The peer wants a shared key; nothing was looked at.
    KeyRequired,
    /// The peer wants TLS; nothing was looked at.
    TlsRequired,
    /// Where the answer to the entry at `next_index` belongs stand these bytes.
    Malformed([u8; STATUS_LEN]),
}

/// One batch on its way over one lane.
pub(super) trait Exchange {
    /// Everything was handed to the socket.
    fn sent_all(&self) -> bool;
    /// The window allows more to be sent.
    fn may_send(&self) -> bool;
    /// The entry being sent.
    fn sending_index(&self) -> usize;
    /// The first entry not known to be applied.
    fn next_index(&self) -> usize;
    /// The entry that a failure now would be about.
    fn failing_index(&self) -> usize {
        self.next_index()
    }
    /// No byte of the batch can have reached the peer's memory, as far as is known now.
    fn untouched(&self) -> bool;
    /// Whether the exchange is of all entries of the batch.
    fn whole(&self) -> bool {
        true
    }
    /// Nothing is owed in either direction: the lane can serve the next call, however this one ended.
    fn in_step(&self) -> bool {
        false
    }
    /// Bytes that are worth waking up for while waiting, at least 1. Never more than what must come by itself.
    fn worth_waking(&self) -> usize {
        1
    }
    /// Whether what is awaited is little enough to look for it before sleeping.
    fn nearly_done(&self) -> bool {
        true
    }
    /// Ends the batch early but in order: from now on only what was begun is sent, and [`Received::Finished`] comes
    /// once the peer has said what became of all that it was sent. False: it cannot be, the lane must be reset.
    fn cancel(&mut self) -> bool {
        false
    }
    /// Hands as much as one call takes to the socket.
    fn send(&mut self, stream: &mut Stream) -> io::Result<usize>;
    /// Takes what one system call gives.
    fn receive(&mut self, stream: &mut Stream) -> io::Result<Received>;
}

/// Adds local memory of the batch to a gather list. `hint` remembers the region between calls.
pub(super) fn push_local<'a>(
    iov: &mut HeldIov<'a>,
    work: &'a Work<'a>,
    local: u64,
    len: u64,
    hint: &mut usize,
) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let hold = work.holds.find(local, len, hint).ok_or_else(invalid)?;
    iov.push_held(hold, local, len).map_err(|_| invalid())
}
