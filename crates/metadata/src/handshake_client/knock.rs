//! Proving the shared key to a peer, having it proven, and the peer's sealed reply (docs/security.md, "On the wire").

use moonrail_access::prove::BLOCK_LEN;
use moonrail_access::{AccessControl, Denied, Initiator, Session, Step, nonce};
use moonrail_wire::auth::{PROOF_LEN, Port};
use moonrail_wire::handshake::{Decoder, Message};

use super::talk::{cut_off, malformed};
use super::wire::Wire;
use crate::deadline::Deadline;
use crate::error::{MetadataError, MetadataErrorKind, WaitStage};

/// The exchange, as its initiator.
pub(super) fn prove(
    wire: &mut Wire,
    name: &str,
    deadline: Deadline,
    access: &AccessControl,
) -> Result<Session, MetadataError> {
    let denied = |why: Denied| {
        let hint = match why {
            Denied::NotAsked => {
                " (a genuine Mooncake, or a Moonrail without key? MOONRAIL_ALLOW=mooncake allows such peers)"
            }
            Denied::KeyRefused => " (are the key files the same?)",
            _ => "",
        };
        MetadataError::new(MetadataErrorKind::Denied(why), name, format!("{why}{hint}"))
    };
    let nonce = nonce().map_err(|error| MetadataError::from_io(&error, WaitStage::Request, name))?;
    let mut initiator = Initiator::new(Port::Handshake, &access.keys(), 0, 0, nonce).bound(wire.binding());
    wire.send(initiator.hello(), name, deadline)?;
    let mut first = true;
    loop {
        let mut block = [0; BLOCK_LEN];
        match fill(wire, &mut block, name, deadline) {
            Ok(()) => {}
            // That is what engines without the exchange do.
            Err(error) if first && error.kind == MetadataErrorKind::Reset => {
                return Err(denied(Denied::NotAsked));
            }
            Err(error) => return Err(error),
        }
        first = false;
        match initiator.take(&block).map_err(denied)? {
            Step::Receive => {}
            Step::Send(proof) => wire.send(&proof, name, deadline)?,
            Step::Done(admitted) => return Ok(admitted.session),
        }
    }
}

/// The peer's reply, if the tag behind it is right.
pub(super) fn receive(
    wire: &mut Wire,
    max_len: usize,
    name: &str,
    deadline: Deadline,
    session: &Session,
) -> Result<Message, MetadataError> {
    let mut frame = vec![0; 8];
    fill(wire, &mut frame, name, deadline)?;
    let mut decoder = Decoder::new(max_len);
    decoder.feed(&frame).map_err(|error| malformed(&error, name))?;
    let mut missing = frame.first_chunk().map_or(0, |length| u64::from_le_bytes(*length)) as usize;
    let mut chunk = vec![0; 64 << 10];
    // Grows with what comes, not with what is declared.
    while missing > 0 {
        let want = missing.min(chunk.len());
        match wire.read_some(&mut chunk[..want], name, deadline)? {
            0 => return Err(cut_off(frame.len(), name)),
            count => {
                frame.extend_from_slice(&chunk[..count]);
                missing -= count;
            }
        }
    }
    let mut tag = [0; PROOF_LEN];
    fill(wire, &mut tag, name, deadline)?;
    if !session.is_reply(&frame, &tag) {
        let text = "the reply was changed on its way: its tag is wrong";
        return Err(MetadataError::new(MetadataErrorKind::Denied(Denied::Impostor), name, text));
    }
    match decoder.feed(&frame[8..]).map_err(|error| malformed(&error, name))? {
        Some(message) => Ok(message),
        None => Err(cut_off(frame.len(), name)),
    }
}

fn fill(wire: &mut Wire, into: &mut [u8], name: &str, deadline: Deadline) -> Result<(), MetadataError> {
    let mut have = 0;
    while have < into.len() {
        match wire.read_some(&mut into[have..], name, deadline)? {
            0 => return Err(cut_off(have, name)),
            count => have += count,
        }
    }
    Ok(())
}
