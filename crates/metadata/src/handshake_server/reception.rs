//! Callers that bring a shared key: its proof, and their sealed request (docs/security.md, "On the wire").

use std::net::SocketAddr;

use moonrail_access::{AccessControl, Binding, Denied, Offer, Session, Target, nonce};
use moonrail_wire::auth::{HANDSHAKE_MAGIC, PROOF_LEN, Port};
use moonrail_wire::handshake::{Decoder, Message};
use moonrail_wire::rail::{HELLO_LEN, WelcomeStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connection::close;
use super::line::Duplex;

const OFFER: Offer = Offer { port: Port::Handshake, epoch: 0, features: 0, max_payload: 0, binding: None };

/// Has the caller prove the key; the first 8 bytes of its hello were received already. Refusals are told, to the caller
/// and in the log.
pub(super) async fn admit(
    stream: &mut dyn Duplex,
    caller: SocketAddr,
    access: &AccessControl,
    binding: Binding,
) -> Result<Session, String> {
    let mut hello = [0; HELLO_LEN];
    let (magic, rest) = hello.split_at_mut(HANDSHAKE_MAGIC.len());
    magic.copy_from_slice(&HANDSHAKE_MAGIC);
    stream.read_exact(rest).await.map_err(said)?;
    let nonce = nonce().map_err(said)?;
    let (why, told) = match Target::challenge(Offer { binding, ..OFFER }, &access.keys(), &hello, nonce) {
        Ok(challenge) => {
            stream.write_all(&challenge.bytes).await.map_err(said)?;
            let mut proof = [0; PROOF_LEN];
            if let Err(error) = stream.read_exact(&mut proof).await {
                access.refuse("handshake", caller, &"the caller left without proving its key");
                return Err(error.to_string());
            }
            match challenge.target.judge(&proof) {
                Ok((verdict, session)) => {
                    stream.write_all(&verdict).await.map_err(said)?;
                    return Ok(session);
                }
                Err((why, welcome)) => (why, Some(welcome)),
            }
        }
        Err(refusal) => refusal,
    };
    access.deny("handshake", caller, why);
    if let Some(welcome) = told {
        stream.write_all(&welcome).await.map_err(said)?;
        close(stream).await.map_err(said)?;
    }
    Err(why.to_string())
}

/// Tells a caller that brings a key in clear that only TLS is spoken here.
pub(super) async fn ask_for_tls(stream: &mut dyn Duplex) -> std::io::Result<()> {
    let mut hello = [0; HELLO_LEN];
    stream.read_exact(&mut hello).await?;
    stream.write_all(&OFFER.welcome(WelcomeStatus::TlsRequired, 0)).await?;
    close(stream).await
}

/// The caller's request, if the tag behind it is right.
pub(super) async fn receive(
    stream: &mut dyn Duplex,
    caller: SocketAddr,
    access: &AccessControl,
    max_len: usize,
    session: &Session,
) -> Result<Message, String> {
    let mut frame = vec![0; 8];
    stream.read_exact(&mut frame).await.map_err(said)?;
    let mut decoder = Decoder::new(max_len);
    decoder.feed(&frame).map_err(said)?;
    let declared = frame.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    // Grows with what comes, not with what is declared.
    let body = (&mut *stream).take(declared).read_to_end(&mut frame).await.map_err(said)?;
    let mut tag = [0; PROOF_LEN];
    stream.read_exact(&mut tag).await.map_err(said)?;
    if !session.is_request(&frame, &tag) {
        access.refuse("handshake", caller, &"the request was changed on its way: its tag is wrong");
        return Err(Denied::WrongProof.to_string());
    }
    let message = decoder.feed(&frame[frame.len() - body..]).map_err(said)?;
    message.ok_or_else(|| "the request is cut off".to_owned())
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
