//! Keys and values in a metadata server (Mooncake TE wire, metadata modes, keys and values).
//!
//! Owns their text. Does not know HTTP: percent-encoding of keys and the requests are the caller's.

use serde::Serialize;
use serde::de::MapAccess;

use crate::json::{self, JsonError, Object, Scalar};

/// Names the keys of one cluster in a metadata server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpace {
    prefix: String,
}

impl KeySpace {
    /// The key space of a cluster (`MC_METADATA_CLUSTER_ID`); `None` and "" are the common one.
    pub fn new(cluster_id: Option<&str>) -> Self {
        let prefix = match cluster_id.unwrap_or_default() {
            "" => "mooncake/".to_owned(),
            id if id.ends_with('/') => format!("mooncake/{id}"),
            id => format!("mooncake/{id}/"),
        };
        Self { prefix }
    }

    /// The key that holds the [`RpcMeta`] of a segment.
    pub fn rpc_meta(&self, name: &str) -> String {
        format!("{}rpc_meta/{name}", self.prefix)
    }

    /// The key that holds the [descriptor](crate::SegmentDescriptor) of a segment. A name with a `/` in it is its
    /// own key, as genuine engines have it.
    pub fn ram(&self, name: &str) -> String {
        let kind = if name.contains('/') { "" } else { "ram/" };
        format!("{}{kind}{name}", self.prefix)
    }

    /// What all keys of this space start with, such as `mooncake/`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// Where the handshake port of an engine is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RpcMeta {
    /// IP address or host name, IPv6 without brackets.
    pub ip_or_host_name: String,
    /// Handshake port.
    pub rpc_port: u16,
}

impl RpcMeta {
    /// Compact JSON without a newline, as genuine engines put it.
    pub fn to_json(&self) -> Vec<u8> {
        json::compact(self, 96)
    }

    /// Reads the value of a `rpc_meta` key.
    ///
    /// # Errors
    /// [`JsonError`] if it is not an object, or a field has a wrong type, or the port does not fit 16 bits.
    /// Absent fields are "" and 0.
    pub fn from_json(body: &[u8]) -> Result<Self, JsonError> {
        let raw = json::read_object::<RawRpcMeta>(body)?.unwrap_or_default();
        let port = raw.rpc_port.number("rpc_port", u16::MAX.into())?.unwrap_or_default();
        Ok(Self {
            ip_or_host_name: raw.ip_or_host_name.text("ip_or_host_name")?,
            rpc_port: u16::try_from(port).expect("invariant: bounded by u16::MAX above"),
        })
    }
}

#[derive(Default)]
struct RawRpcMeta {
    ip_or_host_name: Scalar,
    rpc_port: Scalar,
}

impl Object for RawRpcMeta {
    const KEYS: &'static [&'static str] = &["ip_or_host_name", "rpc_port"];

    fn read<'de, A: MapAccess<'de>>(&mut self, key: &'static str, map: &mut A) -> Result<(), A::Error> {
        let value = map.next_value()?;
        match key {
            "ip_or_host_name" => self.ip_or_host_name = value,
            _ => self.rpc_port = value,
        }
        Ok(())
    }
}
