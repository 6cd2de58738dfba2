//! JSON bodies of connection, notify and probe messages (Mooncake TE wire, types 0, 2 and 3).
//!
//! Owns their fields. Written compact, keys sorted, with a final newline, and only with fields of the right type:
//! a wrong type kills a genuine peer's process.

use serde::Serialize;
use serde::de::MapAccess;

use crate::json::{self, JsonError, List, ListItem, Object, Scalar};

/// A user notification.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Notify {
    /// Chosen by the sender; may be empty.
    pub name: String,
    /// Chosen by the sender; may be empty.
    #[serde(rename = "notify_msg")]
    pub message: String,
}

impl Notify {
    /// The request body.
    pub fn to_json(&self) -> Vec<u8> {
        json::line(self, 32 + self.name.len() + self.message.len())
    }

    /// Reads a request body. Absent fields are empty.
    ///
    /// # Errors
    /// [`JsonError`] if it is not an object or null, or a field is an array or an object.
    pub fn from_json(body: &[u8]) -> Result<Self, JsonError> {
        let raw = json::read_object::<RawNotify>(body)?.unwrap_or_default();
        Ok(Self { name: raw.name.text("name")?, message: raw.message.text("notify_msg")? })
    }
}

/// The answer to a [`Notify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyReply {
    /// Whether the peer took the notification: its `notify_msg` is not empty.
    pub accepted: bool,
}

impl NotifyReply {
    /// The reply body.
    pub fn to_json(&self) -> Vec<u8> {
        let message = if self.accepted { "success" } else { "" };
        Notify { name: String::new(), message: message.to_owned() }.to_json()
    }

    /// Reads a reply body.
    ///
    /// # Errors
    /// As [`Notify::from_json`].
    pub fn from_json(body: &[u8]) -> Result<Self, JsonError> {
        Ok(Self { accepted: !Notify::from_json(body)?.message.is_empty() })
    }
}

/// The body of a probe.
pub const PROBE_REQUEST: &[u8] = b"{}\n";

/// The answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProbeReply {
    /// "success". Genuine clients do not look at it.
    pub status: String,
}

impl ProbeReply {
    /// The reply of a live engine.
    pub fn success() -> Self {
        Self { status: "success".to_owned() }
    }

    /// The reply body.
    pub fn to_json(&self) -> Vec<u8> {
        json::line(self, 32)
    }

    /// Reads a reply body. An absent status is empty: a peer that answers at all is alive.
    ///
    /// # Errors
    /// [`JsonError`] if it is not an object or null, or the status is an array or an object.
    pub fn from_json(body: &[u8]) -> Result<Self, JsonError> {
        let raw = json::read_object::<RawProbeReply>(body)?.unwrap_or_default();
        Ok(Self { status: raw.status.text("status")? })
    }
}

/// The answer to a connection request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConnectionReply {
    /// GID of the answering device, 16 hex bytes joined by `:`.
    pub local_gid: String,
    /// LID of the answering device; 0 for RoCE.
    pub local_lid: u16,
    /// `server@device` of the answering side.
    pub local_nic_path: String,
    /// Opaque.
    pub payload: String,
    /// `server@device` of the asking side.
    pub peer_nic_path: String,
    /// Queue pairs of the endpoint.
    pub qp_num: Vec<u32>,
    /// Why the request was rejected; empty if it was not.
    pub reply_msg: String,
}

impl ConnectionReply {
    /// What a TCP-only engine answers to every connection request.
    pub fn empty_accept() -> Self {
        Self::default()
    }

    /// A refusal. An empty reason would read as an acceptance, so it is replaced.
    pub fn rejection(reason: &str) -> Self {
        let reason = if reason.is_empty() { "rejected" } else { reason };
        Self { reply_msg: reason.to_owned(), ..Self::default() }
    }

    /// The reply body.
    pub fn to_json(&self) -> Vec<u8> {
        json::line(self, 256)
    }

    /// Reads a reply body. Absent fields are empty.
    ///
    /// # Errors
    /// [`JsonError`] if it is not an object or null, or a field has a type that it cannot have.
    pub fn from_json(body: &[u8]) -> Result<Self, JsonError> {
        let raw = json::read_object::<RawConnectionReply>(body)?.unwrap_or_default();
        let lid = raw.local_lid.number("local_lid", u16::MAX.into())?.unwrap_or_default();
        let qp_num = raw.qp_num.array("qp_num")?;
        if let Some((_, fault)) = qp_num.fault {
            return Err(fault);
        }
        Ok(Self {
            local_gid: raw.local_gid.text("local_gid")?,
            local_lid: u16::try_from(lid).expect("invariant: bounded by u16::MAX above"),
            local_nic_path: raw.local_nic_path.text("local_nic_path")?,
            payload: raw.payload.text("payload")?,
            peer_nic_path: raw.peer_nic_path.text("peer_nic_path")?,
            qp_num: qp_num.items.into_iter().map(|pair| pair.0).collect(),
            reply_msg: raw.reply_msg.text("reply_msg")?,
        })
    }
}

#[derive(Default)]
struct RawNotify {
    name: Scalar,
    message: Scalar,
}

impl Object for RawNotify {
    const KEYS: &'static [&'static str] = &["name", "notify_msg"];

    fn read<'de, A: MapAccess<'de>>(&mut self, key: &'static str, map: &mut A) -> Result<(), A::Error> {
        let value = map.next_value()?;
        match key {
            "name" => self.name = value,
            _ => self.message = value,
        }
        Ok(())
    }
}

#[derive(Default)]
struct RawProbeReply {
    status: Scalar,
}

impl Object for RawProbeReply {
    const KEYS: &'static [&'static str] = &["status"];

    fn read<'de, A: MapAccess<'de>>(&mut self, _: &'static str, map: &mut A) -> Result<(), A::Error> {
        self.status = map.next_value()?;
        Ok(())
    }
}

/// An element of `qp_num`.
struct QueuePair(u32);

impl ListItem for QueuePair {
    type Raw = Scalar;
    type Fault = JsonError;

    fn judge(raw: Scalar) -> Result<Self, JsonError> {
        let number = raw.number("qp_num", u32::MAX.into())?.unwrap_or_default();
        Ok(Self(u32::try_from(number).expect("invariant: bounded by u32::MAX above")))
    }
}

#[derive(Default)]
struct RawConnectionReply {
    local_gid: Scalar,
    local_lid: Scalar,
    local_nic_path: Scalar,
    payload: Scalar,
    peer_nic_path: Scalar,
    qp_num: List<QueuePair>,
    reply_msg: Scalar,
}

impl Object for RawConnectionReply {
    const KEYS: &'static [&'static str] =
        &["local_gid", "local_lid", "local_nic_path", "payload", "peer_nic_path", "qp_num", "reply_msg"];

    fn read<'de, A: MapAccess<'de>>(&mut self, key: &'static str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "local_gid" => self.local_gid = map.next_value()?,
            "local_lid" => self.local_lid = map.next_value()?,
            "local_nic_path" => self.local_nic_path = map.next_value()?,
            "payload" => self.payload = map.next_value()?,
            "peer_nic_path" => self.peer_nic_path = map.next_value()?,
            "qp_num" => self.qp_num = map.next_value()?,
            _ => self.reply_msg = map.next_value()?,
        }
        Ok(())
    }
}
