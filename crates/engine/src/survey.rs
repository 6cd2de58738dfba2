//! Looking at engines from outside, without being one: nothing listens here and nothing is published.
//!
//! Owns: what can be seen of an engine beside its descriptor. Must not know what is made of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use moonrail_compat::{Engine as Kin, Seen, Side, place_of};
use moonrail_metadata::{Directory, HandshakeClient, HandshakeTimeouts, Located};
use moonrail_transport::{Code, Error, Stage};
use moonrail_wire::data::{DataVersion, Op, RequestHeader};
use moonrail_wire::handshake::DEFAULT_MAX_LEN;
use moonrail_wire::segment::{PROTOCOL_TCP, ReleaseLine, SegmentDescriptor};

use crate::capabilities::PeerCapabilities;
use crate::errors;
use crate::report::ProbeReport;

/// How long a data connection must stay open after a request to count as kept.
const KEPT: Duration = Duration::from_millis(400);
/// Descriptors of large clusters are long.
const LONGEST: usize = 128 << 20;

/// Looks at engines. Each look blocks for at most a few times the timeout; several may run at once.
pub struct Survey {
    directory: Box<dyn Directory>,
    client: HandshakeClient,
    metadata_server: String,
    cluster_id: Option<String>,
    timeout: Duration,
}

/// An engine, as it was seen.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sighting {
    /// The name it was looked up under.
    pub name: String,
    /// Its release, as exactly as can be told.
    pub release: String,
    /// What pairs are judged by.
    pub side: Side,
    /// What it can do.
    pub capabilities: PeerCapabilities,
    /// Its handshake port, `host:port`.
    pub handshake: Option<String>,
    /// Why its handshake port does not answer, if so.
    pub handshake_failure: Option<Error>,
    /// Its data port's addresses.
    pub data: Vec<SocketAddr>,
    /// Why its data port cannot be connected to from here, if so.
    pub data_failure: Option<String>,
    /// Start and length of its buffers, in the order it registered them.
    pub buffers: Vec<(u64, u64)>,
}

impl Survey {
    /// `metadata_server` is `P2PHANDSHAKE` or the URL of a metadata server. Nothing is connected yet.
    ///
    /// # Errors
    /// As for an engine: [`Code::UnknownProtocol`].
    pub fn new(metadata_server: &str, cluster_id: Option<&str>, timeout: Duration) -> Result<Self, Error> {
        let client = HandshakeClient::new(
            HandshakeTimeouts { connect: timeout, reply: timeout },
            LONGEST.max(DEFAULT_MAX_LEN),
        );
        let directory = moonrail_metadata::open(metadata_server, cluster_id, client.clone())
            .map_err(|error| errors::publish(Stage::Initialize, &error))?;
        let (metadata_server, cluster_id) = (metadata_server.to_owned(), cluster_id.map(str::to_owned));
        Ok(Self { directory, client, metadata_server, cluster_id, timeout })
    }

    /// The names of all segments of the metadata server.
    ///
    /// # Errors
    /// It cannot be reached, or keeps no list; [`Code::InvalidArgument`] without a metadata server.
    pub fn segments(&self) -> Result<Vec<String>, Error> {
        if self.directory.is_p2p() {
            let message = "without a metadata server nobody has a list of the engines: name them";
            return Err(errors::arguments(Code::InvalidArgument, message));
        }
        moonrail_metadata::list_segments(&self.metadata_server, self.cluster_id.as_deref())
            .map_err(|error| errors::metadata(Stage::Resolve, &self.metadata_server, &error))
    }

    /// Looks at one engine: its descriptor, whether it knows probes, whether its data port is there and, where releases
    /// are told apart by it, whether it keeps connections. No byte of its memory is read or written.
    ///
    /// # Errors
    /// It has no descriptor to give.
    pub fn look(&self, name: &str) -> Result<Sighting, Error> {
        let located = self
            .directory
            .lookup(name, &introduction())
            .map_err(|error| errors::metadata(Stage::Resolve, name, &error))?;
        let address = match &located.handshake {
            Some(address) => Ok(address.clone()),
            None => self.directory.handshake_address(name),
        };
        let probed =
            address.as_ref().map_err(Clone::clone).and_then(|at| self.client.probe(at, &introduction()));
        let data = addresses(&located);
        let (data_failure, keeps_connections) = self.try_data_port(&located, data.as_deref());
        let seen =
            Seen { answers_probe: probed.as_ref().ok().map(|outcome| !outcome.legacy), keeps_connections };
        let Located { descriptor, data_host, data_port, .. } = located;
        let engine = Kin::of(&descriptor, seen);
        let contact = descriptor.moonrail.as_ref().and_then(|extension| extension.same_host.as_deref());
        Ok(Sighting {
            name: name.to_owned(),
            release: match &descriptor.moonrail {
                Some(extension) => format!("{engine} {}", extension.release),
                None => engine.to_string(),
            },
            capabilities: PeerCapabilities::of(engine, contact.is_some()),
            side: Side {
                engine,
                protocol: descriptor.protocol,
                data_host,
                data_port,
                handshake_port: address.as_ref().ok().and_then(|address| address.port),
                place: contact.and_then(place_of),
                local: data.as_ref().is_ok_and(|data| data.iter().any(is_local)),
            },
            handshake: address.as_ref().ok().map(ToString::to_string),
            handshake_failure: probed.err().map(|error| errors::metadata(Stage::Probe, name, &error)),
            data: data.unwrap_or_default(),
            data_failure,
            buffers: descriptor.buffers.iter().map(|buffer| (buffer.addr, buffer.length)).collect(),
        })
    }

    /// Where the engine can be asked for its figures, `http://host:port`, if its descriptor says so. Nothing but the descriptor
    /// is fetched.
    ///
    /// # Errors
    /// It has no descriptor to give.
    pub fn metrics(&self, name: &str) -> Result<Option<String>, Error> {
        let located = self
            .directory
            .lookup(name, &introduction())
            .map_err(|error| errors::metadata(Stage::Resolve, name, &error))?;
        Ok(located.descriptor.moonrail.and_then(|extension| extension.metrics))
    }

    /// Asks whether the engine's process answers.
    ///
    /// # Errors
    /// The failures of reaching it.
    pub fn probe(&self, name: &str) -> Result<ProbeReport, Error> {
        let failed = |error| errors::metadata(Stage::Probe, name, &error);
        let address = self.directory.handshake_address(name).map_err(failed)?;
        let outcome = self.client.probe(&address, &introduction()).map_err(failed)?;
        Ok(ProbeReport { round_trip: outcome.round_trip, legacy: outcome.legacy })
    }

    /// Why the data port cannot be used, and whether it keeps connections where that is worth knowing.
    fn try_data_port(
        &self,
        located: &Located,
        addresses: Result<&[SocketAddr], &String>,
    ) -> (Option<String>, Option<bool>) {
        let addresses = match addresses {
            Ok(addresses) => addresses,
            Err(why) => return (Some(why.clone()), None),
        };
        let mut failure = "it has no data port".to_owned();
        for address in addresses {
            match TcpStream::connect_timeout(address, self.timeout) {
                Ok(stream) => {
                    let unclear = located.descriptor.release_line() == ReleaseLine::V1;
                    return (None, unclear.then(|| keeps_connections(stream)).flatten());
                }
                Err(error) => failure = format!("{address}: {error}"),
            }
        }
        (Some(failure), None)
    }
}

impl std::fmt::Debug for Survey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survey").field("metadata_server", &self.metadata_server).finish_non_exhaustive()
    }
}

/// Whether a server of data protocol v1 waits for another request after one of no bytes. It answers nothing to that.
fn keeps_connections(mut stream: TcpStream) -> Option<bool> {
    let request = RequestHeader { size: 0, addr: 0, op: Op::Read, version: DataVersion::V1 };
    stream.write_all(&request.encode()).ok()?;
    stream.set_read_timeout(Some(KEPT)).ok()?;
    match stream.read(&mut [0]) {
        Ok(0) => Some(false),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Some(true),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(false),
        _ => None,
    }
}

fn addresses(located: &Located) -> Result<Vec<SocketAddr>, String> {
    if located.data_port == 0 {
        return Ok(Vec::new());
    }
    let host = located.data_host.as_str();
    match (host, located.data_port).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(error) => Err(format!("its data host {host:?} does not resolve: {error}")),
    }
}

fn is_local(address: &SocketAddr) -> bool {
    address.ip().is_loopback()
        || if_addrs::get_if_addrs().unwrap_or_default().iter().any(|interface| interface.ip() == address.ip())
}

/// What peers are shown of one who only looks. Genuine ones do not read it.
fn introduction() -> SegmentDescriptor {
    SegmentDescriptor {
        name: "moonrail-survey".to_owned(),
        protocol: PROTOCOL_TCP.to_owned(),
        tcp_proto_version: 2,
        ..SegmentDescriptor::default()
    }
}
