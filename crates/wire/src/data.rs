//! Headers of the data port: the 24-byte request header and the 8-byte status (Mooncake TE wire, TCP data path).
//!
//! Owns their layout in both data versions. Does not know regions, nor whether a range may be touched.

/// Bytes in a request header. It is the in-memory image of a C struct `{u64, u64, u8}`, padding included.
pub const HEADER_LEN: usize = 24;

/// Bytes in a status.
pub const STATUS_LEN: usize = 8;

/// Status code: the request was carried out.
pub const STATUS_OK: u32 = 0;

/// Status code: the range is not inside one registered buffer. Nothing was touched.
pub const STATUS_REJECTED: u32 = 1;

/// What a client sends ahead of each transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestHeader {
    /// Payload length, bytes. Servers refuse 0.
    pub size: u64,
    /// Virtual address in the target process.
    pub addr: u64,
    /// Direction.
    pub op: Op,
    /// Whether the server answers with a status.
    pub version: DataVersion,
}

/// Direction of a transfer, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The server sends the payload.
    Read,
    /// The client sends the payload behind the header.
    Write,
}

/// Version of the data protocol. There is no negotiation on the data port: the descriptor says what a server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataVersion {
    /// No status: a write has no answer, a refused request is a closed connection.
    V1,
    /// A status precedes the payload of a read and follows the payload of a write.
    V2,
}

const WRITE: u8 = 1;
const V2_BIT: u8 = 0x80;

impl RequestHeader {
    /// The bytes of this header; padding is 0.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let op = match self.op {
            Op::Read => 0,
            Op::Write => WRITE,
        };
        let version = match self.version {
            DataVersion::V1 => 0,
            DataVersion::V2 => V2_BIT,
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.addr.to_le_bytes());
        bytes[16] = op | version;
        bytes
    }

    /// Reads any 24 bytes: padding is ignored, and as in genuine servers an opcode other than 1 is a read.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Self {
        let [s0, s1, s2, s3, s4, s5, s6, s7, a0, a1, a2, a3, a4, a5, a6, a7, opcode, ..] = *bytes;
        Self {
            size: u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            addr: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            op: if opcode & !V2_BIT == WRITE { Op::Write } else { Op::Read },
            version: if opcode & V2_BIT == 0 { DataVersion::V1 } else { DataVersion::V2 },
        }
    }
}

/// High half of every status; tells a status from the payload of a server that took a v2 request for a v1 read.
const STATUS_MAGIC: u32 = 0x4D43_5456;

/// The bytes of a status.
pub fn encode_status(code: u32) -> [u8; STATUS_LEN] {
    (u64::from(STATUS_MAGIC) << 32 | u64::from(code)).to_le_bytes()
}

/// The code of a status: [`STATUS_OK`], [`STATUS_REJECTED`], or another number, which is a failure too.
///
/// # Errors
/// [`BadStatus`] if the bytes are not a status; the connection is then out of step and must be closed.
pub fn decode_status(bytes: &[u8; STATUS_LEN]) -> Result<u32, BadStatus> {
    let [c0, c1, c2, c3, m0, m1, m2, m3] = *bytes;
    if u32::from_le_bytes([m0, m1, m2, m3]) == STATUS_MAGIC {
        Ok(u32::from_le_bytes([c0, c1, c2, c3]))
    } else {
        Err(BadStatus { bytes: *bytes })
    }
}

/// Eight bytes in the place of a status that are not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "malformed status {bytes:02x?}: the server does not speak data protocol v2, or the connection is out of step"
)]
pub struct BadStatus {
    /// The bytes received.
    pub bytes: [u8; STATUS_LEN],
}
