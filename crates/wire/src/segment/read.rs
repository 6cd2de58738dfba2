//! Descriptors from JSON, and what makes one unusable.

use serde::de::MapAccess;

use super::{
    Buffer, BufferFault, DescriptorError, Extension, NamedBuffer, PROTOCOL_TCP, RailOffer, SegmentDescriptor,
};
use crate::json::{self, List, ListItem, Object, Scalar, Shape};

/// Every protocol that a genuine release writes.
const KNOWN_PROTOCOLS: &[&str] = &[
    "tcp",
    "rdma",
    "barex",
    "efa",
    "cxi",
    "ub",
    "nccl",
    "flagcx",
    "ascend",
    "nvlink",
    "nvlink_intra",
    "hip",
    "maca",
    "musa",
    "ubshmem",
    "sunrise_link",
    "cxl",
    "nvmeof",
];

impl SegmentDescriptor {
    /// Reads what a peer published or answered.
    ///
    /// Absent fields: `name`, `timestamp` empty; `tcp_data_port` 0; `tcp_proto_version` 1; no buffers. A
    /// `tcp_data_host` that is not a string counts as absent, as for genuine peers.
    ///
    /// # Errors
    /// [`DescriptorError`]; one bad tcp buffer makes the whole descriptor unusable. Of other protocols, entries
    /// that are not plain ranges of memory are left out instead.
    pub fn from_json(body: &[u8]) -> Result<Self, DescriptorError> {
        let raw = json::read_object::<Raw>(body)?.ok_or(DescriptorError::Absent)?;
        let protocol = read_protocol(raw.protocol)?;
        let buffers = raw.buffers.array("buffers")?;
        if let Some((index, fault)) = buffers.fault
            && protocol == PROTOCOL_TCP
        {
            return Err(DescriptorError::Buffer { index, fault });
        }
        let port = raw.tcp_data_port.number("tcp_data_port", u16::MAX.into())?.unwrap_or_default();
        let version = raw.tcp_proto_version.number("tcp_proto_version", u32::MAX.into())?.unwrap_or(1);
        Ok(Self {
            name: raw.name.text("name")?,
            protocol,
            tcp_data_port: u16::try_from(port).expect("invariant: bounded by u16::MAX above"),
            tcp_data_host: match raw.tcp_data_host {
                Scalar::Text(host) if !host.is_empty() => Some(host),
                _ => None,
            },
            tcp_proto_version: u32::try_from(version).expect("invariant: bounded by u32::MAX above"),
            timestamp: raw.timestamp.text("timestamp")?,
            rdma_server_name: match raw.rdma_server_name {
                Scalar::Null => None,
                server => Some(server.text("rdma_server_name")?),
            },
            buffers: buffers.items,
            moonrail: raw.moonrail.object("moonrail")?.map(Extension::try_from).transpose()?,
        })
    }
}

fn read_protocol(protocol: Scalar) -> Result<String, DescriptorError> {
    if let Scalar::Compound("an array") = protocol {
        return Err(DescriptorError::ProtocolArray);
    }
    let protocol = protocol.text("protocol")?;
    if protocol.is_empty() {
        return Err(DescriptorError::NoProtocol);
    }
    if !KNOWN_PROTOCOLS.contains(&protocol.as_str()) {
        return Err(DescriptorError::UnknownProtocol { protocol: excerpt(&protocol) });
    }
    Ok(protocol)
}

#[derive(Default)]
struct Raw {
    buffers: List<Buffer>,
    moonrail: Shape<RawExtension>,
    name: Scalar,
    protocol: Scalar,
    rdma_server_name: Scalar,
    tcp_data_host: Scalar,
    tcp_data_port: Scalar,
    tcp_proto_version: Scalar,
    timestamp: Scalar,
}

impl Object for Raw {
    const KEYS: &'static [&'static str] = &[
        "buffers",
        "moonrail",
        "name",
        "protocol",
        "rdma_server_name",
        "tcp_data_host",
        "tcp_data_port",
        "tcp_proto_version",
        "timestamp",
    ];

    fn read<'de, A: MapAccess<'de>>(&mut self, key: &'static str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "buffers" => self.buffers = map.next_value()?,
            "moonrail" => self.moonrail = map.next_value()?,
            "name" => self.name = map.next_value()?,
            "protocol" => self.protocol = map.next_value()?,
            "rdma_server_name" => self.rdma_server_name = map.next_value()?,
            "tcp_data_host" => self.tcp_data_host = map.next_value()?,
            "tcp_data_port" => self.tcp_data_port = map.next_value()?,
            "tcp_proto_version" => self.tcp_proto_version = map.next_value()?,
            _ => self.timestamp = map.next_value()?,
        }
        Ok(())
    }
}

/// A range as it is read, of either list.
#[derive(Default)]
pub(crate) struct RawBuffer {
    name: Scalar,
    addr: Scalar,
    length: Scalar,
}

impl Object for RawBuffer {
    const KEYS: &'static [&'static str] = &["addr", "length", "name"];

    fn read<'de, A: MapAccess<'de>>(&mut self, key: &'static str, map: &mut A) -> Result<(), A::Error> {
        let value = map.next_value()?;
        match key {
            "addr" => self.addr = value,
            "length" => self.length = value,
            _ => self.name = value,
        }
        Ok(())
    }
}

impl ListItem for Buffer {
    type Raw = Shape<RawBuffer>;
    type Fault = BufferFault;

    fn judge(raw: Shape<RawBuffer>) -> Result<Self, BufferFault> {
        let raw = match raw {
            Shape::Object(raw) => raw,
            Shape::Null => RawBuffer::default(),
            Shape::Other(found) => return Err(BufferFault::NotAnObject { found }),
        };
        let name = raw.name.text("name")?;
        let addr = raw.addr.number("addr", u64::MAX)?.unwrap_or_default();
        let length = raw.length.number("length", u64::MAX)?.unwrap_or_default();
        match (name.is_empty(), addr, length) {
            (true, ..) => Err(BufferFault::NoName),
            (_, 0, _) => Err(BufferFault::ZeroAddress),
            (_, _, 0) => Err(BufferFault::ZeroLength),
            _ if addr.checked_add(length).is_none() => Err(BufferFault::WrapAround { addr, length }),
            _ => Ok(Self { addr, length, name }),
        }
    }
}

impl ListItem for NamedBuffer {
    type Raw = Shape<RawBuffer>;
    type Fault = BufferFault;

    fn judge(raw: Shape<RawBuffer>) -> Result<Self, BufferFault> {
        let Buffer { addr, length, name } = Buffer::judge(raw)?;
        Ok(Self { addr, length, name })
    }
}

#[derive(Default)]
struct RawExtension {
    epoch: Scalar,
    metrics: Scalar,
    names: List<NamedBuffer>,
    rail: Shape<RawRail>,
    refuses_v1: Scalar,
    release: Scalar,
    same_host: Scalar,
}

#[derive(Default)]
struct RawRail {
    features: Scalar,
    max: Scalar,
    min: Scalar,
}

impl Object for RawRail {
    const KEYS: &'static [&'static str] = &["features", "max", "min"];

    fn read<'de, A: MapAccess<'de>>(&mut self, key: &'static str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "features" => self.features = map.next_value()?,
            "max" => self.max = map.next_value()?,
            _ => self.min = map.next_value()?,
        }
        Ok(())
    }
}

impl TryFrom<RawRail> for RailOffer {
    type Error = DescriptorError;

    fn try_from(raw: RawRail) -> Result<Self, DescriptorError> {
        let number = |scalar: Scalar, field, most: u64| {
            Ok::<u64, DescriptorError>(scalar.number(field, most)?.unwrap_or_default())
        };
        Ok(Self {
            features: number(raw.features, "features", u64::from(u32::MAX))? as u32,
            max: number(raw.max, "max", u64::from(u16::MAX))? as u16,
            min: number(raw.min, "min", u64::from(u16::MAX))? as u16,
        })
    }
}

impl Object for RawExtension {
    const KEYS: &'static [&'static str] =
        &["epoch", "metrics", "names", "rail", "refuses_v1", "release", "same_host"];

    fn read<'de, A: MapAccess<'de>>(&mut self, key: &'static str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "epoch" => self.epoch = map.next_value()?,
            "metrics" => self.metrics = map.next_value()?,
            "names" => self.names = map.next_value()?,
            "rail" => self.rail = map.next_value()?,
            "refuses_v1" => self.refuses_v1 = map.next_value()?,
            "same_host" => self.same_host = map.next_value()?,
            _ => self.release = map.next_value()?,
        }
        Ok(())
    }
}

impl TryFrom<RawExtension> for Extension {
    type Error = DescriptorError;

    fn try_from(raw: RawExtension) -> Result<Self, DescriptorError> {
        let names = raw.names.array("names")?;
        if let Some((index, fault)) = names.fault {
            return Err(DescriptorError::NamedBuffer { index, fault });
        }
        let epoch = raw.epoch.text("epoch")?;
        Ok(Self {
            release: raw.release.text("release")?,
            epoch: parse_epoch(&epoch).ok_or_else(|| DescriptorError::Epoch { epoch: excerpt(&epoch) })?,
            metrics: Some(raw.metrics.text("metrics")?).filter(|url| !url.is_empty()),
            names: names.items,
            rail: raw.rail.object("rail")?.map(RailOffer::try_from).transpose()?,
            same_host: Some(raw.same_host.text("same_host")?).filter(|contact| !contact.is_empty()),
            refuses_v1: raw.refuses_v1.text("refuses_v1")? == "true",
        })
    }
}

fn parse_epoch(text: &str) -> Option<u64> {
    // `from_str_radix` alone would also take a leading `+`.
    let digits = text.len() <= 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| digits)
}

/// The longest text of a peer that an error repeats, in characters.
const EXCERPT: usize = 40;

fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT).collect()
}
