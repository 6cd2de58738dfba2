//! One connection to the handshake port: read a request, write its reply, half-close, wait for the caller's close.

use std::io;
use std::net::SocketAddr;

use moonrail_wire::handshake::{Decoder, Message};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::answer;
use super::{HandshakeHandler, Limits};

/// Serves one connection to its end. What callers do wrong is theirs to know: it goes to the debug log, as ports are
/// scanned all day.
pub(super) async fn serve(
    mut stream: TcpStream,
    caller: SocketAddr,
    handler: &dyn HandshakeHandler,
    limits: &Limits,
) {
    let request = match timeout(limits.request, receive(&mut stream, limits.max_len)).await {
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
    let reply = match answer(handler, &request) {
        Ok(reply) => reply,
        Err(error) => {
            tracing::debug!(%caller, %error, "handshake request of type {} dropped", request.kind);
            return;
        }
    };
    if reply.frame_len() > limits.max_len {
        tracing::warn!(
            %caller,
            "our segment descriptor of {} bytes is above the limit of {} (MC_HANDSHAKE_MAX_LENGTH): \
             the caller gets no answer; register fewer, larger regions",
            reply.frame_len(),
            limits.max_len
        );
        return;
    }
    match timeout(limits.close, finish(&mut stream, reply)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%caller, %error, "handshake caller left before its reply"),
        Err(_) => tracing::debug!(%caller, "handshake caller did not close in time"),
    }
}

async fn receive(stream: &mut TcpStream, max_len: usize) -> Result<Message, String> {
    let mut decoder = Decoder::new(max_len);
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

async fn finish(stream: &mut TcpStream, reply: Message) -> io::Result<()> {
    stream.write_all(&reply.encode()).await?;
    stream.shutdown().await?;
    // Closing first would leave the port's TIME_WAIT with us; what the caller still sends is of no interest.
    let mut rest = [0u8; 512];
    while stream.read(&mut rest).await? != 0 {}
    Ok(())
}
