//! Frames of the rail protocol, which two Moonrails speak on the data port (docs/rail-protocol.md).
//!
//! Fixed-size heads and a table of ranges; payload is not this module's business. Decoders take any bytes.

use thiserror::Error;

/// The first 8 bytes of a rail connection, and of the welcome.
pub const MAGIC: [u8; 8] = *b"MRAIL\x00\x01\xff";
/// The version written and understood here.
pub const VERSION: u16 = 1;
/// Length of a [`Hello`] in bytes.
pub const HELLO_LEN: usize = 64;
/// Length of a [`Welcome`] in bytes.
pub const WELCOME_LEN: usize = 32;
/// Length of a [`Request`] head in bytes; the first range is part of it.
pub const REQUEST_LEN: usize = 48;
/// Length of an [`Answer`] head in bytes.
pub const ANSWER_LEN: usize = 32;
/// Length of one further range in the table, in bytes.
pub const RANGE_LEN: usize = 16;
/// Most ranges in one frame.
pub const MAX_RANGES: usize = 4096;
/// Payload that every target takes in one frame, known or not, in bytes.
pub const SAFE_PAYLOAD: u64 = 1 << 20;

/// Opens a lane (section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Version of the frames behind it.
    pub version: u16,
    /// Feature bits wanted.
    pub features: u32,
    /// Epoch of the target that is meant.
    pub target_epoch: u64,
}

/// How a target takes a [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WelcomeStatus {
    /// The lane is open.
    Open,
    /// The version is not spoken.
    Version,
    /// The target is another process than the one that is meant.
    Epoch,
    /// A status that this version does not know: the lane is not open.
    Other(u16),
}

/// Answers a [`Hello`] (section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// Version in force.
    pub version: u16,
    /// Whether the lane is open.
    pub status: WelcomeStatus,
    /// Feature bits in force.
    pub features: u32,
    /// The target's epoch.
    pub epoch: u64,
    /// Largest payload of one frame, in bytes.
    pub max_payload: u64,
}

/// Direction of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// The payload follows the table.
    Write,
    /// The answer carries the payload.
    Read,
}

/// Head of a request (section 3), with its first range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Direction.
    pub kind: RequestKind,
    /// Ranges in all, 1..=[`MAX_RANGES`].
    pub count: u32,
    /// Chosen by the initiator.
    pub id: u64,
    /// Sum of all lengths, in bytes.
    pub payload: u64,
    /// Epoch of the target that is meant.
    pub epoch: u64,
    /// The first range.
    pub first: Range,
}

/// Bytes of the target's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Virtual address in the target's process.
    pub addr: u64,
    /// Bytes, at least 1.
    pub len: u64,
}

/// Outcome of a request (section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerStatus {
    /// Applied, or the payload follows.
    Ok,
    /// A range is not registered.
    Refused,
    /// Registered memory cannot be accessed.
    Fault,
    /// The target is another process than the one that is meant.
    Epoch,
    /// A failure that this version does not know.
    Other(u32),
}

/// Head of an answer (section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Direction of the request.
    pub kind: RequestKind,
    /// Outcome.
    pub status: AnswerStatus,
    /// Id of the request.
    pub id: u64,
    /// The range to blame, counted in the frame.
    pub index: u32,
    /// Payload bytes that follow.
    pub payload: u64,
}

/// Bytes that are no frame of this protocol; the connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RailError {
    /// The magic is missing.
    #[error("not a rail connection: {0:02x?}")]
    Magic([u8; 8]),
    /// A kind that this version does not have.
    #[error("unknown frame kind {0:#x}")]
    Kind(u32),
    /// A count of ranges out of bounds.
    #[error("a frame of {0} ranges; 1 to {MAX_RANGES} are allowed")]
    Count(u32),
}

impl Hello {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, self.version.to_le_bytes());
        put(&mut bytes, 12, self.features.to_le_bytes());
        put(&mut bytes, 16, self.target_epoch.to_le_bytes());
        bytes
    }

    /// # Errors
    /// [`RailError::Magic`].
    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Result<Self, RailError> {
        check_magic(bytes)?;
        Ok(Self {
            version: u16::from_le_bytes(get(bytes, 8)),
            features: u32::from_le_bytes(get(bytes, 12)),
            target_epoch: u64::from_le_bytes(get(bytes, 16)),
        })
    }
}

impl Welcome {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; WELCOME_LEN] {
        let status = match self.status {
            WelcomeStatus::Open => 0,
            WelcomeStatus::Version => 1,
            WelcomeStatus::Epoch => 2,
            WelcomeStatus::Other(status) => status,
        };
        let mut bytes = [0; WELCOME_LEN];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, self.version.to_le_bytes());
        put(&mut bytes, 10, status.to_le_bytes());
        put(&mut bytes, 12, self.features.to_le_bytes());
        put(&mut bytes, 16, self.epoch.to_le_bytes());
        put(&mut bytes, 24, self.max_payload.to_le_bytes());
        bytes
    }

    /// # Errors
    /// [`RailError::Magic`].
    pub fn decode(bytes: &[u8; WELCOME_LEN]) -> Result<Self, RailError> {
        check_magic(bytes)?;
        Ok(Self {
            version: u16::from_le_bytes(get(bytes, 8)),
            status: match u16::from_le_bytes(get(bytes, 10)) {
                0 => WelcomeStatus::Open,
                1 => WelcomeStatus::Version,
                2 => WelcomeStatus::Epoch,
                other => WelcomeStatus::Other(other),
            },
            features: u32::from_le_bytes(get(bytes, 12)),
            epoch: u64::from_le_bytes(get(bytes, 16)),
            max_payload: u64::from_le_bytes(get(bytes, 24)),
        })
    }
}

impl Request {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let kind: u32 = match self.kind {
            RequestKind::Write => 1,
            RequestKind::Read => 2,
        };
        let mut bytes = [0; REQUEST_LEN];
        put(&mut bytes, 0, kind.to_le_bytes());
        put(&mut bytes, 4, self.count.to_le_bytes());
        put(&mut bytes, 8, self.id.to_le_bytes());
        put(&mut bytes, 16, self.payload.to_le_bytes());
        put(&mut bytes, 24, self.epoch.to_le_bytes());
        put(&mut bytes, 32, self.first.encode());
        bytes
    }

    /// # Errors
    /// [`RailError::Kind`], [`RailError::Count`]. Sums are for whoever has the whole table.
    pub fn decode(bytes: &[u8; REQUEST_LEN]) -> Result<Self, RailError> {
        let kind = match u32::from_le_bytes(get(bytes, 0)) {
            1 => RequestKind::Write,
            2 => RequestKind::Read,
            other => return Err(RailError::Kind(other)),
        };
        let count = u32::from_le_bytes(get(bytes, 4));
        if count == 0 || count as usize > MAX_RANGES {
            return Err(RailError::Count(count));
        }
        Ok(Self {
            kind,
            count,
            id: u64::from_le_bytes(get(bytes, 8)),
            payload: u64::from_le_bytes(get(bytes, 16)),
            epoch: u64::from_le_bytes(get(bytes, 24)),
            first: Range::decode(&get(bytes, 32)),
        })
    }

    /// Bytes of the table behind the head.
    #[must_use]
    pub fn table_len(&self) -> usize {
        (self.count as usize - 1) * RANGE_LEN
    }
}

impl Range {
    /// As it stands in the table.
    #[must_use]
    pub fn encode(&self) -> [u8; RANGE_LEN] {
        let mut bytes = [0; RANGE_LEN];
        put(&mut bytes, 0, self.addr.to_le_bytes());
        put(&mut bytes, 8, self.len.to_le_bytes());
        bytes
    }

    /// From the table.
    #[must_use]
    pub fn decode(bytes: &[u8; RANGE_LEN]) -> Self {
        Self { addr: u64::from_le_bytes(get(bytes, 0)), len: u64::from_le_bytes(get(bytes, 8)) }
    }
}

impl Answer {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; ANSWER_LEN] {
        let kind: u32 = match self.kind {
            RequestKind::Write => 0x81,
            RequestKind::Read => 0x82,
        };
        let status = match self.status {
            AnswerStatus::Ok => 0,
            AnswerStatus::Refused => 1,
            AnswerStatus::Fault => 2,
            AnswerStatus::Epoch => 3,
            AnswerStatus::Other(status) => status,
        };
        let mut bytes = [0; ANSWER_LEN];
        put(&mut bytes, 0, kind.to_le_bytes());
        put(&mut bytes, 4, status.to_le_bytes());
        put(&mut bytes, 8, self.id.to_le_bytes());
        put(&mut bytes, 16, self.index.to_le_bytes());
        put(&mut bytes, 24, self.payload.to_le_bytes());
        bytes
    }

    /// # Errors
    /// [`RailError::Kind`].
    pub fn decode(bytes: &[u8; ANSWER_LEN]) -> Result<Self, RailError> {
        let kind = match u32::from_le_bytes(get(bytes, 0)) {
            0x81 => RequestKind::Write,
            0x82 => RequestKind::Read,
            other => return Err(RailError::Kind(other)),
        };
        Ok(Self {
            kind,
            status: match u32::from_le_bytes(get(bytes, 4)) {
                0 => AnswerStatus::Ok,
                1 => AnswerStatus::Refused,
                2 => AnswerStatus::Fault,
                3 => AnswerStatus::Epoch,
                other => AnswerStatus::Other(other),
            },
            id: u64::from_le_bytes(get(bytes, 8)),
            index: u32::from_le_bytes(get(bytes, 16)),
            payload: u64::from_le_bytes(get(bytes, 24)),
        })
    }
}

fn check_magic(bytes: &[u8]) -> Result<(), RailError> {
    let magic = get(bytes, 0);
    if magic == MAGIC { Ok(()) } else { Err(RailError::Magic(magic)) }
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("invariant: offsets lie inside the fixed-size head")
}
