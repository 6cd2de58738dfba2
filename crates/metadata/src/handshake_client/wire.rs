//! A connection to a handshake port, in clear or in TLS, with a deadline at every step. Knows no message.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use moonrail_access::tls::Channel;
use moonrail_access::{Binding, TlsDenied, TlsFault};

use crate::deadline::Deadline;
use crate::error::{MetadataError, MetadataErrorKind, WaitStage};

/// The most bytes sent in one go, so that the deadline is looked at in between.
const CHUNK: usize = 256 << 10;
/// Ciphertext received in one go.
const CIPHERTEXT: usize = 16 << 10;

/// The connection. It closes when this is dropped.
pub(super) struct Wire {
    stream: TcpStream,
    sealed: Option<Box<Sealed>>,
}

struct Sealed {
    channel: Channel,
    /// Ciphertext that was received, from `from` on not opened yet.
    arrived: Vec<u8>,
    from: usize,
}

impl Wire {
    pub(super) fn clear(stream: TcpStream) -> Self {
        Self { stream, sealed: None }
    }

    /// Has both sides show who they are. The peer may still find that it does not believe this one; the next read says so.
    pub(super) fn seal(
        stream: TcpStream,
        channel: Channel,
        name: &str,
        deadline: Deadline,
    ) -> Result<Self, MetadataError> {
        let sealed = Box::new(Sealed { channel, arrived: Vec::new(), from: 0 });
        let mut wire = Self { stream, sealed: Some(sealed) };
        let mut heard = false;
        while !wire.established() {
            let progress = wire.flush(name, deadline).and_then(|()| wire.fill(name, deadline));
            match progress {
                Ok(0) if !heard => return Err(not_offered(name)),
                Ok(0) => {
                    let text = "the peer closed the connection in the middle of the TLS handshake";
                    return Err(MetadataError::new(MetadataErrorKind::Reset, name, text));
                }
                Ok(_) => heard = true,
                // That is what ports without TLS do with what they cannot read.
                Err(error) if !heard && error.kind == MetadataErrorKind::Reset => {
                    return Err(not_offered(name));
                }
                Err(error) => return Err(error),
            }
            wire.open(name)?;
        }
        Ok(wire)
    }

    /// Ties the proof of a key to the TLS that it runs in.
    pub(super) fn binding(&self) -> Binding {
        self.sealed.as_ref().and_then(|sealed| sealed.channel.binding())
    }

    pub(super) fn send(&mut self, bytes: &[u8], name: &str, deadline: Deadline) -> Result<(), MetadataError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Some(sealed) = &mut self.sealed {
                let taken = sealed.channel.write(rest).map_err(|fault| broken(&fault, name))?;
                rest = &rest[taken..];
                self.flush(name, deadline)?;
            } else {
                let part = &rest[..rest.len().min(CHUNK)];
                rest = &rest[send_some(&mut self.stream, deadline, name, |stream| stream.write(part))?..];
            }
        }
        Ok(())
    }

    /// One read; 0 is the end of the stream.
    pub(super) fn read_some(
        &mut self,
        into: &mut [u8],
        name: &str,
        deadline: Deadline,
    ) -> Result<usize, MetadataError> {
        let Some(_) = &self.sealed else { return receive_some(&mut self.stream, into, name, deadline) };
        loop {
            self.open(name)?;
            let Some(sealed) = &mut self.sealed else { return Ok(0) };
            let ready = sealed.channel.plaintext();
            let count = ready.len().min(into.len());
            into[..count].copy_from_slice(&ready[..count]);
            sealed.channel.consume(count);
            if count > 0 || sealed.channel.ended() || self.fill(name, deadline)? == 0 {
                return Ok(count);
            }
        }
    }

    fn established(&self) -> bool {
        self.sealed.as_ref().is_none_or(|sealed| sealed.channel.established())
    }

    /// Sends the ciphertext that waits.
    fn flush(&mut self, name: &str, deadline: Deadline) -> Result<(), MetadataError> {
        let Some(sealed) = &mut self.sealed else { return Ok(()) };
        while sealed.channel.wants_write() {
            send_some(&mut self.stream, deadline, name, |stream| sealed.channel.write_out(stream))?;
        }
        Ok(())
    }

    /// Receives ciphertext; 0 is the end of the stream.
    fn fill(&mut self, name: &str, deadline: Deadline) -> Result<usize, MetadataError> {
        let Some(sealed) = &mut self.sealed else { return Ok(0) };
        let kept = sealed.arrived.len();
        sealed.arrived.resize(kept + CIPHERTEXT, 0);
        let received = receive_some(&mut self.stream, &mut sealed.arrived[kept..], name, deadline);
        sealed.arrived.truncate(kept + *received.as_ref().unwrap_or(&0));
        received
    }

    /// Decrypts what has arrived, up to the first plaintext.
    fn open(&mut self, name: &str) -> Result<(), MetadataError> {
        let Some(sealed) = &mut self.sealed else { return Ok(()) };
        match sealed.channel.feed(&sealed.arrived[sealed.from..]) {
            Ok(taken) => sealed.from += taken,
            Err(fault) => {
                // The peer is told why, if it still listens.
                let _ = sealed.channel.write_out(&mut self.stream);
                return Err(broken(&fault, name));
            }
        }
        if sealed.from == sealed.arrived.len() {
            sealed.arrived.clear();
            sealed.from = 0;
        }
        Ok(())
    }
}

fn send_some(
    stream: &mut TcpStream,
    deadline: Deadline,
    name: &str,
    mut write: impl FnMut(&mut TcpStream) -> io::Result<usize>,
) -> Result<usize, MetadataError> {
    loop {
        let moved = match deadline.remaining() {
            Some(left) => stream.set_write_timeout(Some(left)).and_then(|()| write(stream)),
            None => Err(io::ErrorKind::TimedOut.into()),
        };
        match moved {
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(MetadataError::from_io(&error, WaitStage::Request, name)),
        }
    }
}

fn receive_some(
    stream: &mut TcpStream,
    into: &mut [u8],
    name: &str,
    deadline: Deadline,
) -> Result<usize, MetadataError> {
    loop {
        let moved = match deadline.remaining() {
            Some(left) => stream.set_read_timeout(Some(left)).and_then(|()| stream.read(into)),
            None => Err(io::ErrorKind::TimedOut.into()),
        };
        match moved {
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(MetadataError::from_io(&error, WaitStage::Reply, name)),
        }
    }
}

fn not_offered(name: &str) -> MetadataError {
    let text = "the peer does not offer TLS: it has none, or it is not the peer that is meant (MOONRAIL_ALLOW=clear \
                allows such peers)";
    MetadataError::new(MetadataErrorKind::Tls(TlsDenied::NotOffered), name, text)
}

/// A failure of TLS itself.
pub(super) fn broken(fault: &TlsFault, name: &str) -> MetadataError {
    let hint = match fault.denied() {
        TlsDenied::NotOffered => return not_offered(name),
        TlsDenied::Untrusted => " (MOONRAIL_TLS_CA, MOONRAIL_TLS_PINS, MOONRAIL_TLS_NAME)",
        TlsDenied::Refused => ": its log says why",
        TlsDenied::Required | TlsDenied::Broken => "",
    };
    MetadataError::new(MetadataErrorKind::Tls(fault.denied()), name, format!("{fault}{hint}"))
}
