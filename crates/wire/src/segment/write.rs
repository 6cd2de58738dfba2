//! Descriptors to JSON: compact, keys sorted, as genuine engines write it.

use serde::{Serialize, Serializer};

use super::{Buffer, Extension, NamedBuffer, RailOffer, SegmentDescriptor};
use crate::json;

impl SegmentDescriptor {
    /// The body of a handshake message, final newline included. Linear in the number of buffers.
    pub fn to_json(&self) -> Vec<u8> {
        json::line(&Wire::from(self), self.size_hint())
    }

    /// The value for an HTTP metadata server, which has no newline.
    pub fn to_http_json(&self) -> Vec<u8> {
        json::compact(&Wire::from(self), self.size_hint())
    }

    fn size_hint(&self) -> usize {
        // Two numbers of up to 20 digits, three keys and punctuation.
        let buffer = 80 + self.name.len();
        let names = self.moonrail.as_ref().map_or(0, |extension| extension.names.len());
        512 + buffer * (self.buffers.len() + names)
    }
}

/// Fields stand in the order of their keys.
#[derive(Serialize)]
struct Wire<'a> {
    buffers: &'a [Buffer],
    #[serde(skip_serializing_if = "Option::is_none")]
    moonrail: Option<WireExtension<'a>>,
    name: &'a str,
    protocol: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_server_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_data_host: Option<&'a str>,
    tcp_data_port: u16,
    #[serde(skip_serializing_if = "is_v1")]
    tcp_proto_version: u32,
    timestamp: &'a str,
}

#[derive(Serialize)]
struct WireExtension<'a> {
    /// As text: JSON readers of the field's peers may hold numbers as doubles.
    #[serde(serialize_with = "hex")]
    epoch: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<&'a str>,
    names: &'a [NamedBuffer],
    #[serde(skip_serializing_if = "Option::is_none")]
    rail: Option<RailOffer>,
    #[serde(skip_serializing_if = "is_false")]
    refuses_v1: bool,
    release: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    same_host: Option<&'a str>,
}

impl<'a> From<&'a SegmentDescriptor> for Wire<'a> {
    fn from(descriptor: &'a SegmentDescriptor) -> Self {
        Self {
            buffers: &descriptor.buffers,
            moonrail: descriptor.moonrail.as_ref().map(WireExtension::from),
            name: &descriptor.name,
            protocol: &descriptor.protocol,
            rdma_server_name: descriptor.rdma_server_name.as_deref(),
            tcp_data_host: descriptor.tcp_data_host.as_deref().filter(|host| !host.is_empty()),
            tcp_data_port: descriptor.tcp_data_port,
            tcp_proto_version: descriptor.tcp_proto_version,
            timestamp: &descriptor.timestamp,
        }
    }
}

impl<'a> From<&'a Extension> for WireExtension<'a> {
    fn from(extension: &'a Extension) -> Self {
        Self {
            epoch: extension.epoch,
            metrics: extension.metrics.as_deref(),
            names: &extension.names,
            rail: extension.rail,
            refuses_v1: extension.refuses_v1,
            release: &extension.release,
            same_host: extension.same_host.as_deref(),
        }
    }
}

fn is_v1(version: &u32) -> bool {
    *version == 1
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn hex<S: Serializer>(epoch: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{epoch:016x}"))
}
