//! The frame round every handshake message: length, type byte, body (Mooncake TE wire, handshake frame).
//!
//! Owns the bytes of the frame. Does not look into bodies.

use std::fmt;

/// Longest frame that genuine peers accept unless set otherwise, bytes behind the length field.
pub const DEFAULT_MAX_LEN: usize = 1 << 20;

/// Largest limit that a genuine peer can be set to (`MC_HANDSHAKE_MAX_LENGTH`).
pub const MAX_MAX_LEN: usize = 128 << 20;

/// Bytes of the length field.
const LENGTH_LEN: usize = 8;

/// What a message is about: its type byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Set-up of an endpoint; a TCP-only engine accepts and ignores it.
    Connection,
    /// Exchange of segment descriptors.
    Metadata,
    /// A user notification.
    Notify,
    /// Liveness.
    Probe,
    /// A frame of the oldest releases: no type byte, the whole body is JSON. Means [`Kind::Connection`]; its reply
    /// is untyped too.
    Untyped,
}

impl Kind {
    fn byte(self) -> Option<u8> {
        match self {
            Self::Connection => Some(0),
            Self::Metadata => Some(1),
            Self::Notify => Some(2),
            Self::Probe => Some(3),
            Self::Untyped => None,
        }
    }

    /// Genuine peers compare the byte as a signed number: 4..=0x7f, where `{` lies, means "no type byte".
    fn from_byte(byte: u8) -> Result<Self, FrameError> {
        match byte {
            0 => Ok(Self::Connection),
            1 => Ok(Self::Metadata),
            2 => Ok(Self::Notify),
            3 => Ok(Self::Probe),
            4..=0x7f => Ok(Self::Untyped),
            0x80.. => Err(FrameError::UnknownType { byte }),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "connection",
            Self::Metadata => "metadata",
            Self::Notify => "notify",
            Self::Probe => "probe",
            Self::Untyped => "untyped",
        })
    }
}

/// One handshake message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is about. A reply has the kind of its request.
    pub kind: Kind,
    /// JSON text. Of a [`Kind::Untyped`] message it must start with `{` (anything in 4..=0x7f), or it reads back as
    /// another kind.
    pub body: Vec<u8>,
}

impl Message {
    /// A message from its parts.
    pub fn new(kind: Kind, body: impl Into<Vec<u8>>) -> Self {
        Self { kind, body: body.into() }
    }

    /// What the length field says: the bytes behind it. Peers refuse a frame in which this exceeds their limit.
    pub fn frame_len(&self) -> usize {
        self.body.len() + usize::from(self.kind.byte().is_some())
    }

    /// The whole frame.
    pub fn encode(&self) -> Vec<u8> {
        let len = self.frame_len();
        let mut bytes = Vec::with_capacity(LENGTH_LEN + len);
        bytes.extend_from_slice(&(len as u64).to_le_bytes());
        bytes.extend(self.kind.byte());
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// Bytes that are not a frame this engine takes. The connection is of no further use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The length field is 0.
    #[error("handshake frame with length 0")]
    Empty,
    /// The length field is above the limit, which is also what a peer that speaks another protocol looks like.
    #[error("handshake frame of {declared} bytes, more than the limit of {max}{}", guess(*.declared))]
    TooLong {
        /// The length field.
        declared: u64,
        /// The limit.
        max: usize,
    },
    /// The type byte is 0x80 or above.
    #[error("handshake frame with unknown type 0x{byte:02x}")]
    UnknownType {
        /// The type byte.
        byte: u8,
    },
    /// The peer closed the connection inside a frame.
    #[error("connection closed after {received} bytes of a handshake frame")]
    Truncated {
        /// Bytes received, length field included; 0 if nothing came at all.
        received: usize,
    },
}

/// Names the protocol whose first bytes make up this length.
fn guess(declared: u64) -> &'static str {
    let bytes = declared.to_le_bytes();
    let http = ["GET ", "PUT ", "POST", "HEAD", "DELE", "OPTI", "CONN", "PATC", "HTTP", "PRI "];
    if http.iter().any(|verb| bytes.starts_with(verb.as_bytes())) {
        " (the peer speaks HTTP)"
    } else if bytes.starts_with(&[0x16, 3]) {
        " (the peer speaks TLS)"
    } else if bytes.starts_with(b"SSH-") {
        " (the peer speaks SSH)"
    } else {
        ""
    }
}

/// Reads one frame from bytes that come in any pieces.
///
/// Memory grows with the bytes received, never with the length declared. The length field is judged as soon as its
/// 8 bytes are there, the type byte as soon as it is. Bytes behind the frame are counted and thrown away, as genuine
/// peers do.
#[derive(Debug)]
pub struct Decoder {
    max_len: usize,
    state: State,
    received: usize,
    excess: usize,
}

#[derive(Debug)]
enum State {
    Length { bytes: [u8; LENGTH_LEN], filled: usize },
    Type { len: usize },
    Body { kind: Kind, body: Vec<u8>, missing: usize },
    Done,
    Failed(FrameError),
}

impl Decoder {
    /// A decoder for one frame of at most `max_len` bytes behind the length field ([`DEFAULT_MAX_LEN`]).
    pub fn new(max_len: usize) -> Self {
        let state = State::Length { bytes: [0; LENGTH_LEN], filled: 0 };
        Self { max_len, state, received: 0, excess: 0 }
    }

    /// Takes more bytes; returns the message once, with the piece that completes it.
    ///
    /// # Errors
    /// [`FrameError`], and the same one again on each later call.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Option<Message>, FrameError> {
        let mut complete = None;
        self.received = self.received.saturating_add(bytes.len());
        while !bytes.is_empty() {
            match self.step(&mut bytes) {
                Ok(message) => complete = complete.or(message),
                Err(error) => {
                    self.state = State::Failed(error.clone());
                    return Err(error);
                }
            }
        }
        match &self.state {
            State::Failed(error) => Err(error.clone()),
            _ => Ok(complete),
        }
    }

    /// Call at end of file: is what came a whole frame?
    ///
    /// # Errors
    /// [`FrameError::Truncated`] if not, or the error that `feed` gave before.
    pub fn finish(&self) -> Result<(), FrameError> {
        match &self.state {
            State::Done => Ok(()),
            State::Failed(error) => Err(error.clone()),
            _ => Err(FrameError::Truncated { received: self.received }),
        }
    }

    /// Bytes that came behind the frame. A correct peer sends none.
    pub fn excess(&self) -> usize {
        self.excess
    }

    /// Takes what the present state wants from the front of `bytes`, at least one byte.
    fn step(&mut self, bytes: &mut &[u8]) -> Result<Option<Message>, FrameError> {
        match &mut self.state {
            State::Length { bytes: length, filled } => {
                let piece = split_front(bytes, LENGTH_LEN - *filled);
                length[*filled..][..piece.len()].copy_from_slice(piece);
                *filled += piece.len();
                if *filled == LENGTH_LEN {
                    let declared = u64::from_le_bytes(*length);
                    self.state = State::Type { len: self.judge(declared)? };
                }
                Ok(None)
            }
            State::Type { len } => {
                let kind = Kind::from_byte(bytes[0])?;
                let mut missing = *len;
                if kind != Kind::Untyped {
                    split_front(bytes, 1);
                    missing -= 1;
                }
                self.state = State::Body { kind, body: Vec::new(), missing };
                Ok(self.take_complete())
            }
            State::Body { body, missing, .. } => {
                let piece = split_front(bytes, *missing);
                body.extend_from_slice(piece);
                *missing -= piece.len();
                Ok(self.take_complete())
            }
            State::Done => {
                self.excess = self.excess.saturating_add(bytes.len());
                *bytes = &[];
                Ok(None)
            }
            State::Failed(error) => Err(error.clone()),
        }
    }

    fn judge(&self, declared: u64) -> Result<usize, FrameError> {
        match usize::try_from(declared) {
            Ok(0) => Err(FrameError::Empty),
            Ok(len) if len <= self.max_len => Ok(len),
            _ => Err(FrameError::TooLong { declared, max: self.max_len }),
        }
    }

    fn take_complete(&mut self) -> Option<Message> {
        let State::Body { kind, body, missing: 0 } = &mut self.state else { return None };
        let message = Message { kind: *kind, body: std::mem::take(body) };
        self.state = State::Done;
        Some(message)
    }
}

/// Cuts at most `limit` bytes off the front.
fn split_front<'a>(bytes: &mut &'a [u8], limit: usize) -> &'a [u8] {
    let (front, rest) = bytes.split_at(limit.min(bytes.len()));
    *bytes = rest;
    front
}
