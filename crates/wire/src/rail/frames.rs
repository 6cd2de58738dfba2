//! Requests and answers (docs/rail-protocol.md, sections 3 to 5, 9 and 10).

use super::{
    ANSWER_LEN, CANCEL, MAX_RANGES, RANGE_LEN, REQUEST_LEN, RailError, TOKEN, TOKEN_LEN, TRACE, Trace, get,
    put,
};

/// The `kind` of a [`Cancel`].
const KIND_CANCEL: u32 = 3;
/// The `kind` of a [`Present`].
const KIND_PRESENT: u32 = 4;

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

/// Asks that requests be dropped (section 5); only where [`CANCEL`] is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancel {
    /// Its own id, one above that of the request before it.
    pub id: u64,
    /// Requests with this id and above are meant, up to those before the cancel itself.
    pub from: u64,
    /// Epoch of the target that is meant.
    pub epoch: u64,
}

/// Announces a region token, [`TOKEN_LEN`] bytes, that follow it; only where [`TOKEN`] is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    /// Chosen as that of a request.
    pub id: u64,
    /// Epoch of the target that is meant.
    pub epoch: u64,
}

/// What an initiator sends behind its hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// Ranges to be moved.
    Request(Request),
    /// Requests to be dropped.
    Cancel(Cancel),
    /// A token.
    Present(Present),
    /// The trace of the requests behind it.
    Trace(Trace),
}

/// Bytes of the target's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Virtual address in the target's process.
    pub addr: u64,
    /// Bytes, at least 1.
    pub len: u64,
}

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// A write.
    Write,
    /// A read.
    Read,
    /// A cancel: every request before it has its answer.
    Cancel,
    /// A token.
    Present,
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
    /// Dropped, as a [`Cancel`] asked; none of it was done.
    Cancelled,
    /// A range lies in a region that may not be written.
    Permission,
    /// No token that was presented on this lane covers a range; or the token is not taken.
    Token,
    /// A failure that this version does not know.
    Other(u32),
}

/// Head of an answer (section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What is answered.
    pub kind: AnswerKind,
    /// Outcome.
    pub status: AnswerStatus,
    /// Id of the request.
    pub id: u64,
    /// The range to blame, counted in the frame.
    pub index: u32,
    /// Payload bytes that follow.
    pub payload: u64,
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

impl Head {
    /// What the bytes mean on a lane where `features` are in force.
    ///
    /// # Errors
    /// As [`Request::decode`]; a token of another length.
    pub fn decode(bytes: &[u8; REQUEST_LEN], features: u32) -> Result<Self, RailError> {
        if features & CANCEL != 0 && u32::from_le_bytes(get(bytes, 0)) == KIND_CANCEL {
            return Ok(Self::Cancel(Cancel {
                id: u64::from_le_bytes(get(bytes, 8)),
                from: u64::from_le_bytes(get(bytes, 16)),
                epoch: u64::from_le_bytes(get(bytes, 24)),
            }));
        }
        if features & TOKEN != 0 && u32::from_le_bytes(get(bytes, 0)) == KIND_PRESENT {
            let len = u64::from_le_bytes(get(bytes, 16));
            if len != TOKEN_LEN as u64 {
                return Err(RailError::Token(len));
            }
            return Ok(Self::Present(Present {
                id: u64::from_le_bytes(get(bytes, 8)),
                epoch: u64::from_le_bytes(get(bytes, 24)),
            }));
        }
        if features & TRACE != 0
            && let Some(trace) = Trace::decode(bytes)
        {
            return Ok(Self::Trace(trace));
        }
        Request::decode(bytes).map(Self::Request)
    }
}

impl Cancel {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        put(&mut bytes, 0, KIND_CANCEL.to_le_bytes());
        put(&mut bytes, 8, self.id.to_le_bytes());
        put(&mut bytes, 16, self.from.to_le_bytes());
        put(&mut bytes, 24, self.epoch.to_le_bytes());
        bytes
    }
}

impl Present {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        put(&mut bytes, 0, KIND_PRESENT.to_le_bytes());
        put(&mut bytes, 8, self.id.to_le_bytes());
        put(&mut bytes, 16, (TOKEN_LEN as u64).to_le_bytes());
        put(&mut bytes, 24, self.epoch.to_le_bytes());
        bytes
    }
}

impl From<RequestKind> for AnswerKind {
    fn from(kind: RequestKind) -> Self {
        match kind {
            RequestKind::Write => Self::Write,
            RequestKind::Read => Self::Read,
        }
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
            AnswerKind::Write => 0x81,
            AnswerKind::Read => 0x82,
            AnswerKind::Cancel => 0x83,
            AnswerKind::Present => 0x84,
        };
        let status = match self.status {
            AnswerStatus::Ok => 0,
            AnswerStatus::Refused => 1,
            AnswerStatus::Fault => 2,
            AnswerStatus::Epoch => 3,
            AnswerStatus::Cancelled => 4,
            AnswerStatus::Permission => 5,
            AnswerStatus::Token => 6,
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
            0x81 => AnswerKind::Write,
            0x82 => AnswerKind::Read,
            0x83 => AnswerKind::Cancel,
            0x84 => AnswerKind::Present,
            other => return Err(RailError::Kind(other)),
        };
        Ok(Self {
            kind,
            status: match u32::from_le_bytes(get(bytes, 4)) {
                0 => AnswerStatus::Ok,
                1 => AnswerStatus::Refused,
                2 => AnswerStatus::Fault,
                3 => AnswerStatus::Epoch,
                4 => AnswerStatus::Cancelled,
                5 => AnswerStatus::Permission,
                6 => AnswerStatus::Token,
                other => AnswerStatus::Other(other),
            },
            id: u64::from_le_bytes(get(bytes, 8)),
            index: u32::from_le_bytes(get(bytes, 16)),
            payload: u64::from_le_bytes(get(bytes, 24)),
        })
    }
}
