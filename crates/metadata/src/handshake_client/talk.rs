//! One conversation on a connection: request out, reply in, each within the deadline.

use moonrail_access::AccessControl;
use moonrail_wire::handshake::{Decoder, FrameError, Kind, Message};

use super::wire::Wire;
use super::{Failure, knock};
use crate::deadline::Deadline;
use crate::error::{MetadataError, MetadataErrorKind};

/// Sends the frame and reads the reply. The connection closes on return: the peer waits for that.
pub(super) fn converse(
    mut wire: Wire,
    frame: &[u8],
    kind: Kind,
    max_len: usize,
    name: &str,
    deadline: Deadline,
    access: Option<&AccessControl>,
) -> Result<Message, Failure> {
    let unsent = |error| Failure { error, sent: false };
    let reply = if let Some(access) = access {
        let session = knock::prove(&mut wire, name, deadline, access).map_err(unsent)?;
        let mut sealed = frame.to_vec();
        sealed.extend_from_slice(&session.seal_request(frame));
        wire.send(&sealed, name, deadline).map_err(unsent)?;
        knock::receive(&mut wire, max_len, name, deadline, &session)
    } else {
        wire.send(frame, name, deadline).map_err(unsent)?;
        receive(&mut wire, max_len, name, deadline)
    };
    let reply = reply.map_err(|error| Failure { error, sent: true })?;
    if reply.kind == kind {
        return Ok(reply);
    }
    let text = format!("answered a {kind} request with a {} message", reply.kind);
    Err(Failure { error: MetadataError::new(MetadataErrorKind::Protocol, name, text), sent: true })
}

fn receive(
    wire: &mut Wire,
    max_len: usize,
    name: &str,
    deadline: Deadline,
) -> Result<Message, MetadataError> {
    let mut decoder = Decoder::new(max_len);
    let mut chunk = vec![0u8; 16 << 10];
    let mut received = 0usize;
    loop {
        match wire.read_some(&mut chunk, name, deadline)? {
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
