//! From a request to its reply: the whole protocol of the handshake port, without sockets (Mooncake TE wire, handshake
//! messages).

use moonrail_wire::handshake::{ConnectionReply, Kind, Message, Notify, NotifyReply, ProbeReply};
use moonrail_wire::json::{self, JsonError};
use moonrail_wire::segment::SegmentDescriptor;

use super::HandshakeHandler;
use crate::{KEY_REQUIRED, TLS_REQUIRED};

/// The reply, or why the connection is closed without one.
pub(super) fn answer(handler: &dyn HandshakeHandler, request: &Message) -> Result<Message, JsonError> {
    let body = match request.kind {
        Kind::Connection | Kind::Untyped => connection(handler, &request.body)?,
        Kind::Metadata => metadata(handler, &request.body)?,
        Kind::Notify => notify(handler, &request.body)?,
        Kind::Probe => {
            json::shape_of(&request.body)?;
            ProbeReply::success().to_json()
        }
    };
    Ok(Message { kind: request.kind, body })
}

/// What a caller lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lacks {
    Key,
    Tls,
}

/// The reply to a caller without the key or TLS. Nothing of the request was looked at but its kind.
pub(super) fn locked(kind: Kind, lacks: Lacks) -> Message {
    let (reason, code) = match lacks {
        Lacks::Key => ("a shared key is required here (MOONRAIL_KEY_FILE)", KEY_REQUIRED),
        Lacks::Tls => ("only TLS is spoken here (MOONRAIL_TLS_CERT)", TLS_REQUIRED),
    };
    let body = match kind {
        Kind::Connection | Kind::Untyped => ConnectionReply::rejection(reason).to_json(),
        Kind::Notify => NotifyReply { accepted: false }.to_json(),
        Kind::Metadata | Kind::Probe => refusal(reason, Some(code)),
    };
    Message { kind, body }
}

/// Genuine callers find no protocol in this and fail to open; ours find the reason.
fn refusal(reason: &str, code: Option<&str>) -> Vec<u8> {
    let mut object = serde_json::json!({ "refused": reason });
    if let Some(code) = code {
        object["code"] = code.into();
    }
    let mut line = object.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// A caller that sets up RDMA end points with us is told that there is nothing to set up.
fn connection(handler: &dyn HandshakeHandler, body: &[u8]) -> Result<Vec<u8>, JsonError> {
    // Messages of types that came after this release look like untyped ones; their callers take the closed connection
    // as "older peer", so only JSON is answered.
    json::check_object(body)?;
    Ok(match handler.refuse(None) {
        Some(reason) => ConnectionReply::rejection(&reason),
        None => ConnectionReply::empty_accept(),
    }
    .to_json())
}

/// Any JSON is answered, as genuine peers do; a readable descriptor says who asks.
fn metadata(handler: &dyn HandshakeHandler, body: &[u8]) -> Result<Vec<u8>, JsonError> {
    json::shape_of(body)?;
    let caller = SegmentDescriptor::from_json(body).ok();
    if let Some(reason) = handler.refuse(caller.as_ref()) {
        return Ok(refusal(&reason, None));
    }
    Ok(handler.descriptor().map_or_else(|| b"null\n".to_vec(), |own| own.to_vec()))
}

fn notify(handler: &dyn HandshakeHandler, body: &[u8]) -> Result<Vec<u8>, JsonError> {
    let accepted = match handler.notify(Notify::from_json(body)?) {
        Ok(()) => true,
        Err(reason) => {
            tracing::debug!(reason, "notify rejected");
            false
        }
    };
    Ok(NotifyReply { accepted }.to_json())
}
