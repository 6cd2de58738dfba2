//! Where a connection's bytes meet its socket: nothing else in this crate sends or receives.
//!
//! Owns the socket of one connection. Must not know what is sent, nor which side of a protocol it is on. Whatever is to
//! stand between the protocols and the wire (encryption, say) belongs here.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use moonrail_memory::io::HeldIov;
use moonrail_sys::{peek, socket};

/// A connected, non-blocking socket.
pub(crate) struct Stream {
    socket: TcpStream,
    /// Bytes from which on it counts as readable.
    low_water: usize,
}

impl Stream {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket, low_water: 1 }
    }

    /// Hands as much of the list to the socket as it takes now.
    pub(crate) fn send(&mut self, list: &HeldIov<'_>) -> io::Result<usize> {
        list.send(&self.socket)
    }

    /// Hands as much as it takes now to the socket.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::try_send(&self.socket, bytes)
    }

    /// Takes what has arrived into the list; 0 is the end of the stream.
    pub(crate) fn receive(&mut self, list: &mut HeldIov<'_>) -> io::Result<usize> {
        list.recv(&self.socket)
    }

    /// Takes what has arrived; 0 is the end of the stream.
    pub(crate) fn receive_bytes(&mut self, into: &mut [u8]) -> io::Result<usize> {
        socket::try_recv(&self.socket, into)
    }

    /// Lets a wait for something to receive last until `bytes` are there, or the end. A receive gives what is there all
    /// the same.
    pub(crate) fn wake_at(&mut self, bytes: usize) {
        if bytes != self.low_water && socket::set_receive_low_water(&self.socket, bytes).is_ok() {
            self.low_water = bytes;
        }
    }

    /// Drops up to `count` bytes that have arrived.
    pub(crate) fn discard(&mut self, count: usize) -> io::Result<usize> {
        peek::discard(&self.socket, count)
    }

    /// Copies what has arrived and leaves it in place; 0 is the end of the stream.
    pub(crate) fn peek(&mut self, into: &mut [u8]) -> io::Result<usize> {
        peek::peek(&self.socket, into)
    }

    /// Fails when the peer has given the connection up. Asked before bytes go into registered memory: what a peer
    /// that gave up had sent must not land any more (P2).
    pub(crate) fn check(&self) -> io::Result<()> {
        socket::take_error(&self.socket)?.map_or(Ok(()), Err)
    }

    /// Whether it can no longer be trusted between two requests: closed, or with bytes that nobody asked for.
    pub(crate) fn is_dead_or_dirty(&self) -> bool {
        socket::is_dead_or_dirty(&self.socket)
    }

    /// Bytes the kernel still holds for the peer; 0 once everything was acknowledged.
    pub(crate) fn unsent_bytes(&self) -> io::Result<usize> {
        socket::unsent_bytes(&self.socket)
    }

    /// Makes the coming close a reset: what is unsent or unread is dropped on both sides.
    pub(crate) fn reset_on_close(&self) {
        let _ = socket::reset_on_close(&self.socket);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
