//! Mooncake's data protocol: requests pipelined, since its server serves them in order.

use std::io;

use super::exchange::{Exchange, Received};
use super::receive::Incoming;
use super::send::Outgoing;
use crate::stream::Stream;

/// Answers that may be awaited while looking for them. With more, each look would get in the way of a peer that answers
/// one by one.
const NEARLY_DONE: usize = 4;

/// A batch in data protocol v2, or the reads of v1.
pub(super) struct Pipelined<'a> {
    outgoing: Outgoing<'a>,
    incoming: Incoming<'a>,
    refused: bool,
}

impl<'a> Pipelined<'a> {
    pub(super) fn new(outgoing: Outgoing<'a>, incoming: Incoming<'a>) -> Self {
        Self { outgoing, incoming, refused: false }
    }
}

impl Exchange for Pipelined<'_> {
    fn sent_all(&self) -> bool {
        self.outgoing.done()
    }

    fn may_send(&self) -> bool {
        self.outgoing.may_send(self.incoming.next_index())
    }

    fn sending_index(&self) -> usize {
        self.outgoing.index()
    }

    fn next_index(&self) -> usize {
        self.incoming.next_index()
    }

    fn worth_waking(&self) -> usize {
        self.incoming.worth_waking(self.outgoing.index())
    }

    fn nearly_done(&self) -> bool {
        self.outgoing.index() - self.incoming.next_index() <= NEARLY_DONE
    }

    fn untouched(&self) -> bool {
        // A refused request was not applied, and nothing behind it in the pipeline is served.
        !self.outgoing.started() || (self.refused && self.incoming.next_index() == 0)
    }

    fn send(&mut self, stream: &mut Stream) -> io::Result<usize> {
        self.outgoing.send(stream)
    }

    fn receive(&mut self, stream: &mut Stream) -> io::Result<Received> {
        let received = self.incoming.receive(stream);
        self.refused |= matches!(received, Ok(Received::Refused(_)));
        received
    }
}
