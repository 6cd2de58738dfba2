//! One conversation on a connected socket: request out, reply in, each within the deadline.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use moonrail_access::AccessControl;
use moonrail_wire::handshake::{Decoder, FrameError, Kind, Message};

use super::{Failure, knock};
use crate::deadline::Deadline;
use crate::error::{MetadataError, MetadataErrorKind, WaitStage};

/// The most bytes sent in one go, so that the deadline is looked at in between.
const CHUNK: usize = 256 << 10;

/// Sends the frame and reads the reply. The stream closes on return: the peer waits for that.
pub(super) fn converse(
    mut stream: TcpStream,
    frame: &[u8],
    kind: Kind,
    max_len: usize,
    name: &str,
    deadline: Deadline,
    access: Option<&AccessControl>,
) -> Result<Message, Failure> {
    let unsent = |error| Failure { error, sent: false };
    let reply = if let Some(access) = access {
        let session = knock::prove(&mut stream, name, deadline, access).map_err(unsent)?;
        let mut sealed = frame.to_vec();
        sealed.extend_from_slice(&session.seal_request(frame));
        send(&mut stream, &sealed, name, deadline).map_err(unsent)?;
        knock::receive(&mut stream, max_len, name, deadline, &session)
    } else {
        send(&mut stream, frame, name, deadline).map_err(unsent)?;
        receive(&mut stream, max_len, name, deadline)
    };
    let reply = reply.map_err(|error| Failure { error, sent: true })?;
    if reply.kind == kind {
        return Ok(reply);
    }
    let text = format!("answered a {kind} request with a {} message", reply.kind);
    Err(Failure { error: MetadataError::new(MetadataErrorKind::Protocol, name, text), sent: true })
}

pub(super) fn send(
    stream: &mut TcpStream,
    frame: &[u8],
    name: &str,
    deadline: Deadline,
) -> Result<(), MetadataError> {
    let mut rest = frame;
    while !rest.is_empty() {
        let left = deadline.remaining();
        let moved = match left {
            Some(left) => stream
                .set_write_timeout(Some(left))
                .and_then(|()| stream.write(&rest[..rest.len().min(CHUNK)])),
            None => Err(io::ErrorKind::TimedOut.into()),
        };
        match moved {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(MetadataError::from_io(&error, WaitStage::Request, name)),
        }
    }
    Ok(())
}

fn receive(
    stream: &mut TcpStream,
    max_len: usize,
    name: &str,
    deadline: Deadline,
) -> Result<Message, MetadataError> {
    let mut decoder = Decoder::new(max_len);
    let mut chunk = vec![0u8; 16 << 10];
    let mut received = 0usize;
    loop {
        match read_some(stream, &mut chunk, name, deadline)? {
            0 => return Err(cut_off(received, name)),
            count => {
                received += count;
                match decoder.feed(&chunk[..count]) {
                    Ok(Some(message)) => return Ok(message),
                    Ok(None) => {}
                    Err(error) => return Err(malformed(&error, name)),
                }
            }
        }
    }
}

/// One read; 0 is the end of the stream.
pub(super) fn read_some(
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

/// The peer closed this far into its reply.
pub(super) fn cut_off(received: usize, name: &str) -> MetadataError {
    let text = if received == 0 {
        "the peer closed the connection without a reply".to_owned()
    } else {
        format!("the peer closed the connection {received} bytes into its reply")
    };
    MetadataError::new(MetadataErrorKind::Reset, name, text)
}

/// The reply is not of this protocol.
pub(super) fn malformed(error: &FrameError, name: &str) -> MetadataError {
    let text = format!("the reply is not a handshake message: {error}");
    MetadataError::new(MetadataErrorKind::Protocol, name, text)
}
