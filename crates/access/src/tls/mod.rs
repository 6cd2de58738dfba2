//! TLS 1.3 for the ports of an engine (docs/security.md, "TLS"): who it is, whom it believes, and one connection at a time
//! without a socket.
//!
//! Owns the certificates and what they are checked against, kept up with their files ([`Tls`]), and a connection's state
//! ([`Channel`]). The protocol itself is rustls's. Must not know sockets, nor what is said inside.

mod channel;
mod fault;
mod files;
mod verify;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use moonrail_wire::auth::Port;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConfig, ServerConnection};

use self::files::Configs;
use crate::allow::Allow;
use crate::files::Stamp;
use crate::telling::Telling;

pub use self::channel::{Channel, binding};
pub use self::fault::{TlsDenied, TlsError, TlsFault};

/// Bytes by which the start of a TLS connection is told from every other.
pub const SIGN_LEN: usize = 6;

/// Whether a connection that begins so begins TLS: a record of type handshake, with a ClientHello in it. As the size or length
/// that other protocols of the ports begin with, these bytes are above 1 TiB.
#[must_use]
pub fn is_client_hello(begun: &[u8]) -> bool {
    matches!(begun, [0x16, 0x03, _, _, _, 0x01, ..])
}

/// What a call to `port` names in the TLS handshake, so that neither port takes a connection meant for the other.
#[must_use]
pub fn protocol(port: Port) -> &'static [u8] {
    match port {
        Port::Data => b"moonrail-rail",
        Port::Handshake => b"moonrail-handshake",
    }
}

/// The files that say who an engine is and whom it believes, all PEM but `pins`. They are looked at again before each
/// connection, and read again when one has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsSource {
    /// The engine's certificate, and those between it and the authority.
    pub cert: PathBuf,
    /// The private key of the certificate: of this user or root, and not for others to read.
    pub key: PathBuf,
    /// Certificates of the authorities that peers' certificates must come from.
    pub ca: Vec<PathBuf>,
    /// Public keys that peers must have: SHA-256 of the SubjectPublicKeyInfo, 64 hexadecimal digits, one a line. Without `ca`
    /// the key alone says who a peer is: names and dates are not looked at.
    pub pins: Option<PathBuf>,
    /// The name to expect in the certificate of every peer that is called, instead of its host.
    pub name: Option<String>,
}

/// The TLS of one engine: its identity, its trust, what is allowed without, and the count of who was refused. May be used
/// from any thread.
#[derive(Debug)]
pub struct Tls {
    source: TlsSource,
    allow: Allow,
    state: Mutex<State>,
    refused: Telling,
}

#[derive(Debug)]
struct State {
    configs: Arc<Configs>,
    /// Of each file as it was looked at last, whether or not it could be taken.
    seen: Vec<Stamp>,
    /// That a file is gone or cannot be looked at was told.
    told: bool,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn open(source: TlsSource, allow: Allow) -> Result<Self, TlsError> {
        let seen = files::look(&source)?;
        let configs = Arc::new(Configs::read(&source, allow)?);
        let state = Mutex::new(State { configs, seen, told: false });
        Ok(Self { source, allow, state, refused: Telling::default() })
    }

    /// What is allowed without TLS.
    #[must_use]
    pub fn allow(&self) -> Allow {
        self.allow
    }

    /// The name that the certificate of a peer at `host` must have.
    #[must_use]
    pub fn expected<'a>(&'a self, host: &'a str) -> &'a str {
        self.source.name.as_deref().unwrap_or(host)
    }

    /// A connection to `port` of a peer that must prove to be `name`.
    ///
    /// # Errors
    /// The name is none that a certificate could have.
    pub fn initiator(&self, port: Port, name: &str) -> Result<Channel, TlsFault> {
        let peer = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsFault::Untrusted(format!("{name:?} is no name that a certificate could have")))?;
        let config = Arc::clone(self.configs().client(port));
        let connection = ClientConnection::new(config, peer).map_err(|error| TlsFault::of(&error, true))?;
        Ok(Channel::new(connection.into(), port))
    }

    /// A connection that somebody made to `port`.
    ///
    /// # Errors
    /// What rustls says.
    pub fn target(&self, port: Port) -> Result<Channel, TlsFault> {
        let connection =
            ServerConnection::new(self.server(port)).map_err(|error| TlsFault::of(&error, true))?;
        Ok(Channel::new(connection.into(), port))
    }

    /// What [`Tls::target`] is made of, for a runtime that drives connections itself.
    #[must_use]
    pub fn server(&self, port: Port) -> Arc<ServerConfig> {
        Arc::clone(self.configs().server(port))
    }

    /// Counts a caller that was refused on the port called `port`, and tells of it unless there is a flood.
    pub fn refuse(&self, port: &str, caller: SocketAddr, why: &dyn std::fmt::Display) {
        if let Some(number) = self.refused.next() {
            tracing::warn!("refused {caller} on the {port} port: {why} (refusal {number})");
        }
    }

    /// What is in force now. Looks at the files (one system call each), and reads them if one has changed; what cannot be
    /// taken is told in the log once, and changes nothing.
    fn configs(&self) -> Arc<Configs> {
        let mut state = self.state.lock();
        match files::look(&self.source) {
            Ok(seen) if seen == state.seen => state.told = false,
            Ok(seen) => {
                match Configs::read(&self.source, self.allow) {
                    Ok(configs) => {
                        tracing::info!("the TLS certificates were read again");
                        state.configs = Arc::new(configs);
                    }
                    Err(error) => tracing::warn!("{error}; the TLS files read last stay in force"),
                }
                // As they were before they were read: what changed meanwhile is seen the next time.
                state.seen = seen;
                state.told = false;
            }
            Err(error) => {
                if !std::mem::replace(&mut state.told, true) {
                    tracing::warn!("{error}; the TLS files read last stay in force");
                }
            }
        }
        Arc::clone(&state.configs)
    }
}
