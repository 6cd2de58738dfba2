//! A caller's connection before its request: TLS where it begins so, else in clear.

use std::io::Cursor;
use std::net::SocketAddr;

use moonrail_access::tls::{binding, is_client_hello, protocol};
use moonrail_access::{Binding, Tls, TlsFault};
use moonrail_wire::auth::{HANDSHAKE_MAGIC, Port};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::{Desk, reception};

/// Both directions of a connection.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A connection, and what is known of its caller.
pub(super) struct Line {
    pub duplex: Box<dyn Duplex>,
    /// It is encrypted.
    pub sealed: bool,
    /// Ties the proof of a key to the TLS that it runs in.
    pub binding: Binding,
}

/// Looks at the first bytes, if there is TLS here, and has both sides show who they are if they begin it.
pub(super) async fn open(mut stream: TcpStream, caller: SocketAddr, desk: &Desk) -> Result<Line, String> {
    let clear = |duplex| Line { duplex, sealed: false, binding: None };
    let Some(tls) = &desk.tls else { return Ok(clear(Box::new(stream))) };
    let mut begun = [0; HANDSHAKE_MAGIC.len()];
    stream.read_exact(&mut begun).await.map_err(|error| error.to_string())?;
    let (rest, out) = stream.into_split();
    let mut whole = tokio::io::join(Cursor::new(begun).chain(rest), out);
    if is_client_hello(&begun) {
        return accept(whole, caller, tls).await;
    }
    if begun == HANDSHAKE_MAGIC && desk.only_tls() {
        tls.refuse("handshake", caller, &IN_CLEAR);
        reception::ask_for_tls(&mut whole).await.map_err(|error| error.to_string())?;
        return Err(IN_CLEAR.to_owned());
    }
    Ok(clear(Box::new(whole)))
}

/// Why a caller in clear is turned away.
pub(super) const IN_CLEAR: &str = "the caller speaks in clear, and only TLS is spoken here";

async fn accept(whole: impl Duplex + 'static, caller: SocketAddr, tls: &Tls) -> Result<Line, String> {
    let accepted = TlsAcceptor::from(tls.server(Port::Handshake)).accept(whole).await;
    let stream = accepted.map_err(|error| {
        if let Some(fault) = TlsFault::in_stream(&error) {
            tls.refuse("handshake", caller, &fault);
        }
        error.to_string()
    })?;
    let (_, connection) = stream.get_ref();
    if connection.alpn_protocol() != Some(protocol(Port::Handshake)) {
        let fault = "TLS without naming the protocol of this port";
        tls.refuse("handshake", caller, &fault);
        return Err(fault.to_owned());
    }
    let binding = binding(connection);
    Ok(Line { duplex: Box::new(stream), sealed: true, binding })
}

impl Desk {
    /// Whether nothing but probes is answered in clear.
    pub(super) fn only_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.allow().without_tls())
    }
}
