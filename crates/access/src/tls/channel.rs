//! One TLS connection, without its socket: ciphertext in and out on one side, plaintext on the other.

use std::io::{self, BufRead, Write};

use moonrail_wire::auth::Port;
use rustls::{Connection, ConnectionCommon};

use super::fault::TlsFault;
use super::protocol;
use crate::prove::Binding;

/// Ciphertext that waits to be sent, in bytes, from which on no more plaintext is taken.
const MOST_UNSENT: usize = 128 << 10;
const EXPORTER: &[u8] = b"EXPORTER-moonrail-key-proof";

/// A connection in either role. What waits in it is bounded: some records in each direction.
#[derive(Debug)]
pub struct Channel {
    connection: Connection,
    port: Port,
    /// A first message of the peer was understood.
    begun: bool,
    /// Both sides know each other, and the port that is meant.
    established: bool,
    /// Plaintext that was fed and not taken yet.
    ready: usize,
    /// The peer has said that it sends no more.
    ended: bool,
}

impl Channel {
    pub(super) fn new(mut connection: Connection, port: Port) -> Self {
        connection.set_buffer_limit(Some(MOST_UNSENT));
        Self { connection, port, begun: false, established: false, ready: 0, ended: false }
    }

    /// Takes ciphertext from the front of `bytes`; returns how much. Less than all: plaintext is [`ready`](Self::ready), and is
    /// to be taken before more is fed.
    ///
    /// # Errors
    /// The connection is over; what [`write_out`](Self::write_out) still has tells the peer why.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, TlsFault> {
        let mut rest = bytes;
        while !rest.is_empty() && self.ready == 0 && !self.ended {
            let taken = self.connection.read_tls(&mut rest).map_err(|error| broken(&error))?;
            let state =
                self.connection.process_new_packets().map_err(|error| TlsFault::of(&error, !self.begun))?;
            self.begun = true;
            self.ready = state.plaintext_bytes_to_read();
            self.ended = state.peer_has_closed();
            if taken == 0 && !self.ended {
                return Err(TlsFault::Broken("a record is longer than any may be".to_owned()));
            }
            if !self.established && !self.connection.is_handshaking() {
                if self.connection.alpn_protocol() != Some(protocol(self.port)) {
                    return Err(TlsFault::Broken("it does not name the protocol of this port".to_owned()));
                }
                self.established = true;
            }
        }
        // What stands behind the end is of no interest.
        Ok(if self.ended { bytes.len() } else { bytes.len() - rest.len() })
    }

    /// Whether both sides know each other.
    #[must_use]
    pub fn established(&self) -> bool {
        self.established
    }

    /// Whether the peer has ended the connection in order.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Bytes of plaintext that wait to be taken.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// The next plaintext; empty if none is ready. [`Channel::consume`] takes it.
    pub fn plaintext(&mut self) -> &[u8] {
        if self.ready == 0 {
            return &[];
        }
        self.connection.reader().into_first_chunk().unwrap_or_default()
    }

    /// Takes `count` bytes of what [`Channel::plaintext`] has given.
    pub fn consume(&mut self, count: usize) {
        self.connection.reader().consume(count);
        self.ready -= count.min(self.ready);
    }

    /// Encrypts from the front of `plaintext`; returns how much was taken, which is 0 while too much waits to be sent.
    ///
    /// # Errors
    /// What rustls says.
    pub fn write(&mut self, plaintext: &[u8]) -> Result<usize, TlsFault> {
        self.connection.writer().write(plaintext).map_err(|error| broken(&error))
    }

    /// Whether ciphertext waits to be sent.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Hands ciphertext to `out`, in one call; returns how much it took.
    ///
    /// # Errors
    /// What `out` says.
    pub fn write_out(&mut self, out: &mut dyn Write) -> io::Result<usize> {
        self.connection.write_tls(out)
    }

    /// For the proof of a key on this connection, once it is established.
    #[must_use]
    pub fn binding(&self) -> Binding {
        match &self.connection {
            Connection::Client(connection) => binding(connection),
            Connection::Server(connection) => binding(connection),
        }
    }
}

/// For the proof of a key on a connection that is established.
pub fn binding<Data>(connection: &ConnectionCommon<Data>) -> Binding {
    connection.export_keying_material([0; 32], EXPORTER, None).ok()
}

fn broken(error: &io::Error) -> TlsFault {
    TlsFault::Broken(error.to_string())
}
