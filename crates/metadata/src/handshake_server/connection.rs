//! One connection to the handshake port: read a request, write its reply, half-close, wait for the caller's close.

use std::io;
use std::net::SocketAddr;

use moonrail_access::{Denied, Session};
use moonrail_wire::auth::HANDSHAKE_MAGIC;
use moonrail_wire::handshake::{DEFAULT_MAX_LEN, Decoder, Kind, Message};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::{Lacks, answer, locked};
use super::line::{self, Duplex, IN_CLEAR, Line};
use super::{Desk, reception};

/// Serves one connection to its end. What callers do wrong is theirs to know: it goes to the debug log, as ports are
/// scanned all day.
pub(super) async fn serve(stream: TcpStream, caller: SocketAddr, desk: &Desk) {
    let limits = &desk.limits;
    let begun = async {
        let mut line = line::open(stream, caller, desk).await?;
        let (request, session) = take_request(&mut line, caller, desk).await?;
        Ok::<_, String>((line, request, session))
    };
    let (mut line, request, session) = match timeout(limits.request, begun).await {
        Ok(Ok(request)) => request,
        Ok(Err(reason)) => {
            tracing::debug!(%caller, reason, "handshake connection dropped");
            return;
        }
        Err(_) => {
            tracing::debug!(%caller, "handshake connection dropped: no complete request in time");
            return;
        }
    };
    // That this process lives is told by its port anyway.
    let barred = request.kind != Kind::Probe;
    let open_here = desk.tls.as_ref().filter(|_| barred && desk.only_tls() && !line.sealed);
    let keyless =
        desk.access.as_ref().filter(|access| barred && session.is_none() && !access.allow().mooncake);
    let reply = if let Some(tls) = open_here {
        tls.refuse("handshake", caller, &IN_CLEAR);
        Ok(locked(request.kind, Lacks::Tls))
    } else if let Some(access) = keyless {
        access.deny("handshake", caller, Denied::KeyRequired);
        Ok(locked(request.kind, Lacks::Key))
    } else {
        answer(&*desk.handler, &request)
    };
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => {
            tracing::debug!(%caller, %error, "handshake request of type {} dropped", request.kind);
            return;
        }
    };
    if reply.frame_len() > limits.max_len {
        if desk.unanswered.next().is_some() {
            tracing::warn!(
                %caller,
                "our segment descriptor of {} bytes is above the limit of {} (MC_HANDSHAKE_MAX_LENGTH): \
                 the caller gets no answer; register fewer, larger regions",
                reply.frame_len(),
                limits.max_len
            );
        }
        return;
    }
    match timeout(limits.close, finish(&mut *line.duplex, reply, session)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%caller, %error, "handshake caller left before its reply"),
        Err(_) => tracing::debug!(%caller, "handshake caller did not close in time"),
    }
}

/// The request, and the session of a caller that has proven the key.
async fn take_request(
    line: &mut Line,
    caller: SocketAddr,
    desk: &Desk,
) -> Result<(Message, Option<Session>), String> {
    let Line { duplex, sealed, binding } = line;
    let stream: &mut dyn Duplex = &mut **duplex;
    // A stranger is not given room for more than genuine peers take.
    let max_len = desk.limits.max_len;
    let strangers_len = max_len.min(DEFAULT_MAX_LEN);
    let Some(access) = &desk.access else {
        let max_len = if desk.only_tls() && !*sealed { strangers_len } else { max_len };
        return Ok((receive(stream, Decoder::new(max_len)).await?, None));
    };
    let mut first = [0; HANDSHAKE_MAGIC.len()];
    stream.read_exact(&mut first).await.map_err(|error| error.to_string())?;
    if first == HANDSHAKE_MAGIC {
        let session = reception::admit(stream, caller, access, *binding).await?;
        let request = reception::receive(stream, caller, access, max_len, &session).await?;
        return Ok((request, Some(session)));
    }
    let max_len = if access.allow().mooncake { max_len } else { strangers_len };
    let mut decoder = Decoder::new(max_len);
    decoder.feed(&first).map_err(|error| error.to_string())?;
    Ok((receive(stream, decoder).await?, None))
}

async fn receive(stream: &mut dyn Duplex, mut decoder: Decoder) -> Result<Message, String> {
    // On the heap: this lives in the task, once for each of up to a thousand connections.
    let mut chunk = vec![0u8; 4 << 10];
    loop {
        let count = stream.read(&mut chunk).await.map_err(|error| error.to_string())?;
        if count == 0 {
            return Err(decoder.finish().map_or_else(|error| error.to_string(), |()| String::new()));
        }
        if let Some(message) = decoder.feed(&chunk[..count]).map_err(|error| error.to_string())? {
            return Ok(message);
        }
    }
}

async fn finish(stream: &mut dyn Duplex, reply: Message, session: Option<Session>) -> io::Result<()> {
    let mut bytes = reply.encode();
    if let Some(session) = session {
        let tag = session.seal_reply(&bytes);
        bytes.extend_from_slice(&tag);
    }
    stream.write_all(&bytes).await?;
    close(stream).await
}

/// Half-closes, and waits for the caller to do the same.
pub(super) async fn close(stream: &mut dyn Duplex) -> io::Result<()> {
    stream.shutdown().await?;
    // Closing first would leave the port's TIME_WAIT with us; what the caller still sends is of no interest.
    let mut rest = [0u8; 512];
    while stream.read(&mut rest).await? != 0 {}
    Ok(())
}
