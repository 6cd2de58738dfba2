//! Starting this command's own engine: which name, which metadata server, which protocol.

use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use moonrail::{Allow, Config, Engine, KeySource, TlsSource};

use crate::failure::Failure;

/// The metadata string of engines that ask each other.
pub(crate) const P2P: &str = "P2PHANDSHAKE";

/// What every command that talks to peers takes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Metadata {
    /// How peers are found: P2PHANDSHAKE (peers are named host:port), or http://host:port/metadata (peers are named
    /// as they please)
    #[arg(long, alias = "metadata_server", value_name = "URL", default_value = P2P)]
    pub(crate) metadata_server: String,
    /// File with the shared key that peers have to prove, and are proven; without it MOONRAIL_KEY_FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Certificate of this engine in PEM, for TLS; without it MOONRAIL_TLS_CERT
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Certificates of the authorities that peers' certificates must come from; may be given more than once
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Vec<PathBuf>,
    /// File with the SHA-256 of the public keys that peers may have
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_pins: Option<PathBuf>,
    /// Name to expect in every peer's certificate, instead of its host
    #[arg(long, value_name = "NAME", requires = "tls_cert")]
    pub(crate) tls_name: Option<String>,
    /// What is allowed without key and TLS: mooncake (peers that know neither), same-host (copies that only the kernel checks),
    /// clear (peers without TLS), anonymous (callers without certificate)
    #[arg(long, value_name = "NAMES")]
    pub(crate) allow: Option<Allow>,
}

impl Metadata {
    /// Peers are named `host:port`; all else comes from the environment.
    pub(crate) fn p2p() -> Self {
        Self { metadata_server: P2P.to_owned(), ..Self::default() }
    }

    /// TLS as the flags say it.
    fn tls(&self) -> Option<TlsSource> {
        Some(TlsSource {
            cert: self.tls_cert.clone()?,
            key: self.tls_key.clone()?,
            ca: self.tls_ca.clone(),
            pins: self.tls_pins.clone(),
            name: self.tls_name.clone(),
        })
    }

    pub(crate) fn is_p2p(&self) -> bool {
        self.metadata_server.eq_ignore_ascii_case(P2P)
    }
}

/// A configuration called `name`, with the environment applied.
pub(crate) fn config(name: String, metadata: &Metadata) -> Result<Config, Failure> {
    let mut config = Config::new(name, metadata.metadata_server.clone())
        .with_environment()
        .map_err(|error| Failure::engine("settings", &error))?;
    if let Some(path) = &metadata.key_file {
        config.key = Some(KeySource::File(path.clone()));
    }
    config.tls = metadata.tls().or(config.tls);
    config.allow = metadata.allow.unwrap_or(config.allow);
    Ok(config)
}

pub(crate) fn start(config: Config) -> Result<Engine, Failure> {
    Engine::start(config).map_err(|error| Failure::engine("cannot start the engine", &error))
}

/// A configuration for an engine that only calls `peer`.
pub(crate) fn caller(
    peer: &str,
    local_name: Option<&str>,
    metadata: &Metadata,
    timeout: Option<Duration>,
) -> Result<Config, Failure> {
    let name = match local_name {
        Some(name) => name.to_owned(),
        None if metadata.is_p2p() => address_towards(peer),
        None => format!("moonrail-{}", std::process::id()),
    };
    let mut config = config(name, metadata)?;
    if let Some(timeout) = timeout {
        config.timeouts.connect = timeout;
        config.timeouts.handshake = timeout;
        config.timeouts.progress = timeout;
    }
    Ok(config)
}

/// `host:port`, with brackets where the host is an IPv6 address.
pub(crate) fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Whether `text` names a port, as peers without a metadata server must.
pub(crate) fn has_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let unbracketed = host.contains(':') && !host.ends_with(']');
        !unbracketed && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The address that this host uses towards `peer`; loopback where that cannot be told. Sends nothing.
fn address_towards(peer: &str) -> String {
    let route = |to: SocketAddr| {
        let from = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let address = peer.to_socket_addrs().ok().and_then(|mut found| found.find_map(route));
    address.map_or_else(|| "127.0.0.1".to_owned(), |ip| host_port(&ip.to_string(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_told_from_addresses() {
        for with in ["host:1", "127.0.0.1:15000", "[::1]:15000"] {
            assert!(has_port(with), "{with}");
        }
        for without in ["host", "127.0.0.1", "::1", "fe80::1:15000", "[::1]", "host:", "host:http"] {
            assert!(!has_port(without), "{without}");
        }
    }

    #[test]
    fn a_loopback_peer_is_called_from_loopback() {
        assert_eq!(address_towards("127.0.0.1:9"), "127.0.0.1:0");
        assert_eq!(address_towards("no such name"), "127.0.0.1");
        assert_eq!(host_port("::1", 7), "[::1]:7");
    }
}
