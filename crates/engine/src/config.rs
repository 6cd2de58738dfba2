//! What an engine is told when it is made.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use moonrail_access::{Allow, KeySource, TlsSource};

use crate::limits::Limit;

/// Time limits of an engine; each can be overridden per call where a call takes a timeout.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// Connecting to a peer's handshake or data port. Default 5 s.
    pub connect: Duration,
    /// A peer's answer to a handshake, from the connect on. Default 5 s.
    pub handshake: Duration,
    /// Longest time without a byte moved in a transfer. Default 5 s.
    pub progress: Duration,
    /// A whole transfer, to which 1 ns a byte is added. Default none: only progress counts.
    pub call: Option<Duration>,
    /// How long unregister waits for transfers that are using the memory. Default 5 s.
    pub unregister: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let five = Duration::from_secs(5);
        Self { connect: five, handshake: five, progress: five, call: None, unregister: five }
    }
}

/// What to do with peers that speak data protocol v1 (Mooncake up to 0.3.11): their refused writes cannot be
/// told to them, so they report success for what was not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum V1Clients {
    /// Serve them; a refused write is dropped, counted and logged here.
    #[default]
    Serve,
    /// Do not hand them this engine's descriptor and take no v1 write: they fail when they open the segment.
    Refuse,
}

/// Which ways of moving bytes an engine may use and offers to its peers. TCP is always one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Paths {
    /// Cross-memory copies between processes of one host and user.
    pub shm: bool,
}

impl Default for Paths {
    fn default() -> Self {
        Self { shm: true }
    }
}

impl FromStr for Paths {
    type Err = BadPaths;

    /// As the environment variable `MOONRAIL_PATHS`: names, separated by commas, in any order; `tcp` is one of them.
    fn from_str(names: &str) -> Result<Self, BadPaths> {
        let (mut paths, mut tcp) = (Self { shm: false }, false);
        for name in names.split(',').map(str::trim) {
            match name {
                "tcp" => tcp = true,
                "shm" => paths.shm = true,
                _ => return Err(BadPaths("tcp, or tcp,shm")),
            }
        }
        if tcp { Ok(paths) } else { Err(BadPaths("tcp, or tcp,shm; tcp cannot be left out")) }
    }
}

/// A text that names no paths; says what would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPaths(pub(crate) &'static str);

impl fmt::Display for BadPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadPaths {}

/// What an engine is told when it is made. Start from [`Config::new`] and change fields.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// P2P mode: the host (optionally `host:port`) that peers reach this engine under; it listens there only.
    /// With a metadata server: the segment's name, whatever its text.
    pub local_name: String,
    /// `P2PHANDSHAKE`, or `http://host:port/metadata`.
    pub metadata_server: String,
    /// `tcp`. `rdma` is accepted, warned about once and carried out over TCP, unless [`Config::strict`].
    pub protocol: String,
    /// An error instead of any fallback.
    pub strict: bool,
    /// Listen on this address instead of the one that `local_name` says.
    pub listen: Option<IpAddr>,
    /// Ports to choose from where none is given. Default 15000..=17000.
    pub ports: RangeInclusive<u16>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Ways of moving bytes. Default all.
    pub paths: Paths,
    /// Have the kernel put large registered regions (4 MiB and more) of small pages into huge ones, in the background:
    /// same-host copies of them then take half the time. Default true; never where the machine's administrator wants none.
    pub huge_pages: bool,
    /// Connections to one peer at most. Default 4.
    pub lanes_per_peer: usize,
    /// What transfers with each peer may take, of which [`Engine::limit`](crate::Engine::limit) has said nothing. Default no
    /// limit.
    pub limit: Limit,
    /// Several clusters may share one metadata server under ids of their own.
    pub cluster_id: Option<String>,
    /// The shared key that peers have to prove, and are proven (docs/security.md). Default none: whoever reaches the
    /// ports is served.
    pub key: Option<KeySource>,
    /// Certificate, key and trust for TLS on both ports (docs/security.md). Default none: bytes travel in clear.
    pub tls: Option<TlsSource>,
    /// Ask peers for checksums over all that travels to and from them over TCP; found wrong, nothing of it is stored, and the
    /// transfer fails. With TLS, and by the same-host path, it has no effect. Default false.
    pub checksum: bool,
    /// What is allowed without the key and TLS. Default nothing; without either it has no effect.
    pub allow: Allow,
    /// Keep figures, and tell them over HTTP at `HOST:PORT` (port 0: any; a port alone: on 127.0.0.1):
    /// docs/observability.md. Default none: nothing is counted and no such port is open.
    pub metrics: Option<String>,
    /// What to do with clients of data protocol v1.
    pub v1_clients: V1Clients,
    /// Speak data protocol v1 even to peers that know v2.
    pub force_v1: bool,
    /// Fetch a peer's descriptor anew for each call.
    pub no_metadata_cache: bool,
    /// Largest handshake message sent or taken, in bytes. Default 128 MiB; genuine peers take 1 MiB.
    pub handshake_max_len: usize,
    /// Notifications kept until they are fetched; further ones are rejected. Default 65,536.
    pub max_notifies: usize,
    /// Send spans of transfers to the collector that the variables `OTEL_…` name (docs/tracing.md). Default false.
    #[cfg(feature = "otlp")]
    pub otlp: bool,
}

impl Config {
    /// The defaults for an engine called `local_name`.
    pub fn new(local_name: impl Into<String>, metadata_server: impl Into<String>) -> Self {
        Self {
            local_name: local_name.into(),
            metadata_server: metadata_server.into(),
            protocol: "tcp".to_owned(),
            strict: false,
            listen: None,
            ports: 15000..=17000,
            timeouts: Timeouts::default(),
            paths: Paths::default(),
            huge_pages: true,
            lanes_per_peer: 4,
            limit: Limit::default(),
            cluster_id: None,
            key: None,
            tls: None,
            checksum: false,
            allow: Allow::default(),
            metrics: None,
            v1_clients: V1Clients::default(),
            force_v1: false,
            no_metadata_cache: false,
            handshake_max_len: 128 << 20,
            max_notifies: 65_536,
            #[cfg(feature = "otlp")]
            otlp: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_named_in_any_order_and_tcp_is_one() {
        assert_eq!("tcp".parse(), Ok(Paths { shm: false }));
        assert_eq!("shm, tcp".parse(), Ok(Paths { shm: true }));
        for bad in ["", "shm", "tcp,rdma", "TCP"] {
            assert!(bad.parse::<Paths>().is_err(), "{bad:?}");
        }
    }
}
