//! Segment descriptors: what an engine tells its peers about itself and its memory (Mooncake TE wire, segment
//! descriptor JSON).
//!
//! Owns the fields, their validation and their JSON. Does not know how descriptors travel, nor which protocols this
//! engine can use.

mod fault;
mod read;
mod release;
mod write;

use serde::Serialize;

pub use fault::{BufferFault, DescriptorError};
pub use release::ReleaseLine;

use crate::data::DataVersion;

/// The `protocol` of an engine that serves the TCP data path.
pub const PROTOCOL_TCP: &str = "tcp";

/// What an engine tells its peers about itself and its memory.
///
/// Only what the TCP data path needs is kept: fields of other protocols are skipped on reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentDescriptor {
    /// Segment name: `host:port` of the handshake port in P2P mode, free text with a metadata server. May be empty
    /// in what a peer sends. Releases before 0.3.13 dial its host part for data.
    pub name: String,
    /// "tcp", "rdma", ...; after reading, one of the protocols of genuine releases.
    pub protocol: String,
    /// Port of the data listener; 0 if there is none (or, up to release 0.3.4, if it is the handshake port + 1).
    pub tcp_data_port: u16,
    /// Host to dial for data, IPv6 without brackets. `None` before 0.3.13; never `Some("")` after reading.
    pub tcp_data_host: Option<String>,
    /// Data protocol: below 2 is v1, all else v2. 1 is written as no field at all, as releases before 0.3.12 do.
    pub tcp_proto_version: u32,
    /// Local time of the last change, `YYYY-MM-DD HH:MM:SS.ffffff`; informational, may be empty.
    pub timestamp: String,
    /// 0.3.13 always writes it, often empty; earlier releases only if set.
    pub rdma_server_name: Option<String>,
    /// Registered memory, in registration order. After reading, each has a name, an address and a length, and does
    /// not wrap around the end of the address space.
    pub buffers: Vec<Buffer>,
    /// What only Moonrail sends; genuine peers ignore it.
    pub moonrail: Option<Extension>,
}

impl SegmentDescriptor {
    /// The data protocol that this peer's server speaks.
    pub fn data_version(&self) -> DataVersion {
        if self.tcp_proto_version >= 2 { DataVersion::V2 } else { DataVersion::V1 }
    }

    /// The port to dial for data, given the peer's handshake port: `tcp_data_port`, or for releases that have none
    /// the port above the handshake port. `None` if that does not exist.
    pub fn data_port(&self, handshake_port: Option<u16>) -> Option<u16> {
        match self.release_line() {
            ReleaseLine::V0_3_4 => handshake_port?.checked_add(1),
            _ => Some(self.tcp_data_port).filter(|port| *port != 0),
        }
    }

    /// Which releases write descriptors like this one.
    pub fn release_line(&self) -> ReleaseLine {
        if self.moonrail.is_some() {
            ReleaseLine::Moonrail
        } else if self.tcp_data_host.is_some() {
            ReleaseLine::V0_3_13
        } else if self.data_version() >= DataVersion::V2 {
            ReleaseLine::V0_3_12
        } else if self.tcp_data_port != 0 {
            ReleaseLine::V1
        } else {
            ReleaseLine::V0_3_4
        }
    }
}

/// A registered range of memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Buffer {
    /// Virtual address in the owner's process.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// For tcp the segment name.
    pub name: String,
}

/// What Moonrail tells a Moonrail peer, under the key `moonrail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Release of the sender, such as "0.1.0".
    pub release: String,
    /// Drawn at random when the engine starts: tells a restarted engine from the one before. Hex text on the wire.
    pub epoch: u64,
    /// Registered ranges to which their owner gave a name.
    pub names: Vec<NamedBuffer>,
    /// The rail protocol that its data port speaks, if any (docs/rail-protocol.md, section 1).
    pub rail: Option<RailOffer>,
    /// How processes of its own host reach its memory without a socket (docs/same-host.md); opaque here.
    pub same_host: Option<String>,
    /// Where it answers questions about its figures, such as `http://10.0.0.7:9100`, if anywhere; opaque here.
    pub metrics: Option<String>,
    /// It lets no client in that speaks data protocol v1. Written only where it is so.
    pub refuses_v1: bool,
}

/// Versions and features of the rail protocol that a data port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RailOffer {
    /// Feature bits.
    pub features: u32,
    /// Highest version.
    pub max: u16,
    /// Lowest version.
    pub min: u16,
}

/// A registered range of memory that its owner gave a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct NamedBuffer {
    /// Virtual address in the owner's process.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// The name given.
    pub name: String,
}
