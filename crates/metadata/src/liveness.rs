//! Whether the engine behind a registered name still lives: the question before its name is given to another.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use moonrail_wire::address::HostPort;
use moonrail_wire::data::DataVersion;
use moonrail_wire::directory::RpcMeta;
use moonrail_wire::segment::SegmentDescriptor;

use crate::directory::unbracketed;
use crate::error::{MetadataErrorKind, WaitStage};
use crate::handshake_client::{HandshakeClient, HandshakeTimeouts};

/// How long an owner may take to accept the connection, and again to answer.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    Alive,
    /// And how that is known.
    Gone(String),
}

/// Asks the engine at `meta`; `segment` is its published descriptor, if there is one. Takes 1.5 s at most.
///
/// An owner that accepts the connection and then says nothing counts as alive: it may be stopped, or a genuine engine
/// that is busy with another caller, as it serves one at a time. One that cannot be connected to, or that speaks
/// another protocol, is gone. Releases up to 0.3.7 publish a handshake port that they never open; for their line the
/// data port is asked too.
pub(crate) fn ask(meta: &RpcMeta, segment: Option<&[u8]>, client: &HandshakeClient) -> Owner {
    if meta.ip_or_host_name.is_empty() || meta.rpc_port == 0 {
        return Owner::Gone("its address is not one".to_owned());
    }
    let timeouts = HandshakeTimeouts {
        connect: client.timeouts.connect.min(PATIENCE),
        reply: client.timeouts.reply.min(PATIENCE),
    };
    let client = HandshakeClient { timeouts, ..client.clone() };
    // A peer too old for probes does not look at the body of the metadata request that it gets instead.
    match client.probe_with(&address_of(meta), || b"{}\n".to_vec()) {
        Ok(_) => Owner::Alive,
        Err(error) => match error.kind {
            MetadataErrorKind::Timeout { stage: WaitStage::Request | WaitStage::Reply } => Owner::Alive,
            // Our own trouble (descriptors, name service) says nothing of the owner.
            MetadataErrorKind::Io | MetadataErrorKind::Timeout { stage: WaitStage::Resolve } => Owner::Alive,
            _ if serves_data(meta, segment) => Owner::Alive,
            _ => Owner::Gone(error.message),
        },
    }
}

/// Whether an engine of data protocol v1 listens where the descriptor says.
fn serves_data(meta: &RpcMeta, segment: Option<&[u8]>) -> bool {
    let Some(descriptor) = segment.and_then(|json| SegmentDescriptor::from_json(json).ok()) else {
        return false;
    };
    if descriptor.data_version() != DataVersion::V1 {
        return false;
    }
    let Some(port) = descriptor.data_port(Some(meta.rpc_port)) else { return false };
    let host = unbracketed(&meta.ip_or_host_name);
    let addresses = (host, port).to_socket_addrs().into_iter().flatten();
    addresses.take(2).any(|address| TcpStream::connect_timeout(&address, PATIENCE / 2).is_ok())
}

pub(crate) fn address_of(meta: &RpcMeta) -> HostPort {
    HostPort::new(unbracketed(&meta.ip_or_host_name), meta.rpc_port)
}
