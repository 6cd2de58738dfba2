//! Where a connection's bytes meet its socket: nothing else in this crate sends or receives.
//!
//! Owns the socket of one connection, and what stands between where there is something (`sealed`). Must not know what is sent, nor which side
//! of a protocol it is on.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use moonrail_access::Binding;
use moonrail_memory::io::HeldIov;
use moonrail_sys::{peek, socket};

use crate::layer::Layer;
use crate::sealed::Sealed;

/// A connected, non-blocking socket.
pub(crate) struct Stream {
    socket: TcpStream,
    /// Bytes from which on it counts as readable.
    low_water: usize,
    sealed: Option<Box<Sealed>>,
}

impl Stream {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket, low_water: 1, sealed: None }
    }

    /// From here on everything goes through `layer`; `begun` was received already and belongs to it.
    pub(crate) fn seal(&mut self, layer: impl Layer + 'static, begun: &[u8]) {
        self.sealed = Some(Box::new(Sealed::new(Box::new(layer), begun)));
        // What was received in part already would be waited for once more.
        if self.low_water != 1 && socket::set_receive_low_water(&self.socket, 1).is_ok() {
            self.low_water = 1;
        }
    }

    /// Whether it is encrypted.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.is_tls())
    }

    /// Takes the TLS handshake as far as it goes now; true once it is over, at once where there is none.
    pub(crate) fn establish(&mut self) -> io::Result<bool> {
        let Self { socket, sealed, .. } = self;
        sealed.as_mut().map_or(Ok(true), |sealed| sealed.establish(socket))
    }

    /// Ties the proof of a key to the TLS that it runs in.
    pub(crate) fn binding(&self) -> Binding {
        self.sealed.as_ref().and_then(|sealed| sealed.binding())
    }

    /// Whether something that was handed over still waits for the socket. Every call here sends what it can of it.
    pub(crate) fn wants_write(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.wants_write())
    }

    /// Hands the socket what waits for it, as far as it takes it now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Self { socket, sealed, .. } = self;
        sealed.as_mut().map_or(Ok(()), |sealed| sealed.flush(socket))
    }

    /// Whether bytes that waited for the socket have moved since this was last asked.
    pub(crate) fn progressed(&mut self) -> bool {
        self.sealed.as_mut().is_some_and(|sealed| sealed.progressed())
    }

    /// Whether a receive may give something although the socket has nothing.
    pub(crate) fn holds_received(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.holds_received())
    }

    /// Hands as much of the list to the socket as it takes now.
    pub(crate) fn send(&mut self, list: &HeldIov<'_>) -> io::Result<usize> {
        match &mut self.sealed {
            None => list.send(&self.socket),
            Some(sealed) => sealed.send(&self.socket, list),
        }
    }

    /// Hands as much as it takes now to the socket.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sealed {
            None => socket::try_send(&self.socket, bytes),
            Some(sealed) => sealed.send_bytes(&self.socket, bytes),
        }
    }

    /// Takes what has arrived into the list; 0 is the end of the stream.
    pub(crate) fn receive(&mut self, list: &mut HeldIov<'_>) -> io::Result<usize> {
        match &mut self.sealed {
            None => list.recv(&self.socket),
            Some(sealed) => {
                sealed.receive(&self.socket, list.bytes(), |offset, part| list.copy_in(offset, part))
            }
        }
    }

    /// Takes what has arrived; 0 is the end of the stream.
    pub(crate) fn receive_bytes(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.sealed {
            None => socket::try_recv(&self.socket, into),
            Some(sealed) => sealed.receive(&self.socket, into.len(), |offset, part| {
                into[offset..offset + part.len()].copy_from_slice(part);
                Ok(())
            }),
        }
    }

    /// Lets a wait for something to receive last until `bytes` are there, or the end. A receive gives what is there all
    /// the same. Has no effect on what goes through a layer.
    pub(crate) fn wake_at(&mut self, bytes: usize) {
        if bytes != self.low_water
            && self.sealed.is_none()
            && socket::set_receive_low_water(&self.socket, bytes).is_ok()
        {
            self.low_water = bytes;
        }
    }

    /// Drops up to `count` bytes that have arrived.
    pub(crate) fn discard(&mut self, count: usize) -> io::Result<usize> {
        match &mut self.sealed {
            None => peek::discard(&self.socket, count),
            Some(sealed) => sealed.receive(&self.socket, count, |_, _| Ok(())),
        }
    }

    /// Copies what has arrived and leaves it in place; 0 is the end of the stream. Not through a layer.
    pub(crate) fn peek(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.sealed.is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        peek::peek(&self.socket, into)
    }

    /// Fails when the peer has given the connection up. Asked before bytes go into registered memory: what a peer
    /// that gave up had sent must not land any more (P2).
    pub(crate) fn check(&self) -> io::Result<()> {
        socket::take_error(&self.socket)?.map_or(Ok(()), Err)
    }

    /// Whether it can no longer be trusted between two requests: closed, or with bytes that nobody asked for.
    pub(crate) fn is_dead_or_dirty(&self) -> bool {
        let sealed = self.sealed.as_ref();
        sealed.is_some_and(|sealed| sealed.holds_received() || sealed.ended())
            || socket::is_dead_or_dirty(&self.socket)
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
