//! A layer (TLS, checksums) between a connection's bytes and its socket.
//!
//! Owns what waits in between: bytes that the socket has not taken, and bytes that were received and not opened yet,
//! both bounded. Registered memory is read and written through the kernel, as without. Must not know what is sent, nor which
//! layer it is.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};
use std::net::TcpStream;

use moonrail_access::Binding;
use moonrail_memory::io::HeldIov;
use moonrail_sys::socket;

use crate::layer::Layer;

/// Plaintext that one send encrypts, in bytes.
const PLAINTEXT: usize = 64 << 10;
/// Ciphertext that one system call receives, in bytes.
const CIPHERTEXT: usize = 128 << 10;

thread_local! {
    /// What is being encrypted: gathered and done with within one call.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// A buffer for ciphertext that no connection of this thread is using.
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A layer on a socket.
pub(crate) struct Sealed {
    layer: Box<dyn Layer>,
    arrived: Arrived,
    /// The socket took something since this was last asked.
    progressed: bool,
}

/// Ciphertext from the socket. Has memory only while some of it waits.
#[derive(Default)]
struct Arrived {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl Sealed {
    /// `begun`: what was received already.
    pub(crate) fn new(layer: Box<dyn Layer>, begun: &[u8]) -> Self {
        let arrived = Arrived { buffer: begun.to_vec(), from: 0, to: begun.len() };
        Self { layer, arrived, progressed: false }
    }

    /// For the proof of a key inside.
    pub(crate) fn binding(&self) -> Binding {
        self.layer.binding()
    }

    /// Takes the TLS handshake as far as it goes now; true once both sides know each other and have been told so.
    pub(crate) fn establish(&mut self, socket: &TcpStream) -> io::Result<bool> {
        while !self.layer.established() {
            // What the peer said before it closed can still be read.
            let _ = self.flush(socket);
            self.arrived.fill(socket)?;
            if self.arrived.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.open_arrived(socket)?;
        }
        // Where that fails, the next receive says why.
        Ok(self.flush(socket).is_err() || !self.layer.wants_write())
    }

    /// Hands the socket what waits for it, as far as it takes it now.
    pub(crate) fn flush(&mut self, socket: &TcpStream) -> io::Result<()> {
        while self.layer.wants_write() {
            match self.layer.write_out(&mut Gathering(socket)) {
                Ok(_) => self.progressed = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the socket took something since this was last asked.
    pub(crate) fn progressed(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    /// Whether the socket has yet to take something.
    pub(crate) fn wants_write(&self) -> bool {
        self.layer.wants_write()
    }

    /// Whether something that was received can be taken without the socket.
    pub(crate) fn holds_received(&self) -> bool {
        self.layer.ready() > 0 || !self.arrived.is_empty()
    }

    /// Whether it keeps strangers out.
    pub(crate) fn is_tls(&self) -> bool {
        self.layer.is_tls()
    }

    /// Whether the peer has ended the connection.
    pub(crate) fn ended(&self) -> bool {
        self.layer.ended()
    }

    /// Takes from the front of the list; what the socket does not take of it waits here.
    pub(crate) fn send(&mut self, socket: &TcpStream, list: &HeldIov<'_>) -> io::Result<usize> {
        if list.is_empty() {
            return Ok(0);
        }
        self.flush(socket)?;
        GATHERED.with_borrow_mut(|gathered| {
            gathered.resize(PLAINTEXT, 0);
            let plaintext = &mut gathered[..list.bytes().min(PLAINTEXT)];
            list.copy_out(plaintext)?;
            self.encrypt(socket, plaintext)
        })
    }

    pub(crate) fn send_bytes(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.flush(socket)?;
        self.encrypt(socket, &bytes[..bytes.len().min(PLAINTEXT)])
    }

    /// Gives up to `room` bytes to `store`, in parts; 0 is the end of the stream. Before each part the socket is asked whether
    /// the peer has given the connection up: then it is not stored.
    pub(crate) fn receive(
        &mut self,
        socket: &TcpStream,
        room: usize,
        mut store: impl FnMut(usize, &[u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        if room == 0 {
            return Err(io::Error::new(ErrorKind::InvalidInput, "nothing to receive into"));
        }
        // What the peer said before it closed can still be read.
        let _ = self.flush(socket);
        let mut got = 0;
        loop {
            while got < room && self.layer.ready() > 0 {
                socket::take_error(socket)?.map_or(Ok(()), Err)?;
                let plaintext = self.layer.plaintext();
                let part = &plaintext[..plaintext.len().min(room - got)];
                let count = part.len();
                match store(got, part) {
                    Ok(()) => {}
                    // The part is still here; what came before it was received.
                    Err(_) if got > 0 => return Ok(got),
                    Err(error) => return Err(error),
                }
                self.layer.consume(count);
                got += count;
            }
            if got == room || self.layer.ended() {
                return Ok(got);
            }
            if !self.arrived.is_empty() {
                self.open_arrived(socket)?;
            } else if got > 0 {
                return Ok(got);
            } else {
                self.arrived.fill(socket)?;
                if self.arrived.is_empty() {
                    return Ok(0);
                }
            }
        }
    }

    /// Decrypts what has arrived, up to the first plaintext.
    fn open_arrived(&mut self, socket: &TcpStream) -> io::Result<()> {
        match self.layer.feed(self.arrived.bytes()) {
            Ok(taken) => {
                self.arrived.take(taken);
                // Part of the handshake may have to go out.
                let _ = self.flush(socket);
                Ok(())
            }
            Err(fault) => {
                // The peer is told why, if it still listens.
                let _ = self.flush(socket);
                Err(fault)
            }
        }
    }

    fn encrypt(&mut self, socket: &TcpStream, plaintext: &[u8]) -> io::Result<usize> {
        let taken = self.layer.write(plaintext)?;
        if taken == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        // An error of the socket is met again by the next call.
        let _ = self.flush(socket);
        Ok(taken)
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        self.arrived.give_back();
    }
}

impl Arrived {
    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    fn take(&mut self, count: usize) {
        self.from += count;
        if self.is_empty() {
            self.give_back();
        }
    }

    /// One receive, when nothing waits. It stays empty at the end of the stream.
    fn fill(&mut self, socket: &TcpStream) -> io::Result<()> {
        if !self.is_empty() {
            return Ok(());
        }
        self.buffer = SPARE.take();
        self.buffer.resize(CIPHERTEXT, 0);
        let received = socket::try_recv(socket, &mut self.buffer);
        (self.from, self.to) = (0, *received.as_ref().unwrap_or(&0));
        if self.is_empty() {
            self.give_back();
        }
        received.map(drop)
    }

    fn give_back(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        (self.from, self.to) = (0, 0);
        // The thread may be ending.
        let _ = SPARE.try_with(|spare| {
            if spare.borrow().len() < buffer.len() {
                spare.replace(buffer);
            }
        });
    }
}

/// A socket that takes many pieces in one call, without SIGPIPE.
struct Gathering<'a>(&'a TcpStream);

impl io::Write for Gathering<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::try_send(self.0, bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut list = HeldIov::new();
        pieces.iter().for_each(|piece| list.push_bytes(piece));
        list.send(self.0)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
