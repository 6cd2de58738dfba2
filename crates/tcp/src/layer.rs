//! What can stand between the bytes of a connection and its socket: TLS, or checksums.

use std::io::{self, Write};

use moonrail_access::Binding;
use moonrail_access::tls::Channel;

/// Bytes in one form on one side and in another on the other, without a socket. What waits inside is bounded.
pub(crate) trait Layer: Send {
    /// Takes received bytes from the front of `bytes`; returns how many. Fewer than all: some are [`Layer::ready`], and are to be
    /// taken before more is fed.
    fn feed(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Whether it can be used; until then it is fed, and what it writes is sent.
    fn established(&self) -> bool;
    /// Whether the peer has ended the connection in order.
    fn ended(&self) -> bool;
    /// Bytes that wait to be taken.
    fn ready(&self) -> usize;
    /// The next of them; empty if there are none.
    fn plaintext(&mut self) -> &[u8];
    /// Takes `count` bytes of what [`Layer::plaintext`] has given.
    fn consume(&mut self, count: usize);
    /// Takes bytes to send from the front of `plaintext`; returns how many, 0 while too much waits to be sent.
    fn write(&mut self, plaintext: &[u8]) -> io::Result<usize>;
    /// Whether bytes wait to be sent.
    fn wants_write(&self) -> bool;
    /// Hands them to `out`, in one call; returns how many it took.
    fn write_out(&mut self, out: &mut dyn Write) -> io::Result<usize>;
    /// Ties what is said inside to this connection.
    fn binding(&self) -> Binding;
    /// Whether it keeps strangers out.
    fn is_tls(&self) -> bool;
}

impl Layer for Channel {
    fn feed(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(Self::feed(self, bytes)?)
    }

    fn established(&self) -> bool {
        Self::established(self)
    }

    fn ended(&self) -> bool {
        Self::ended(self)
    }

    fn ready(&self) -> usize {
        Self::ready(self)
    }

    fn plaintext(&mut self) -> &[u8] {
        Self::plaintext(self)
    }

    fn consume(&mut self, count: usize) {
        Self::consume(self, count);
    }

    fn write(&mut self, plaintext: &[u8]) -> io::Result<usize> {
        Ok(Self::write(self, plaintext)?)
    }

    fn wants_write(&self) -> bool {
        Self::wants_write(self)
    }

    fn write_out(&mut self, out: &mut dyn Write) -> io::Result<usize> {
        Self::write_out(self, out)
    }

    fn binding(&self) -> Binding {
        Self::binding(self)
    }

    fn is_tls(&self) -> bool {
        true
    }
}
