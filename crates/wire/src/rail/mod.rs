//! Frames of the rail protocol, which two Moonrails speak on the data port (docs/rail-protocol.md).
//!
//! Fixed-size heads and a table of ranges; payload is not this module's business. Decoders take any bytes.

mod frames;
mod hello;
mod record;
mod trace;

use thiserror::Error;

pub use frames::{Answer, AnswerKind, AnswerStatus, Cancel, Head, Present, Range, Request, RequestKind};
pub use hello::{Hello, Welcome, WelcomeStatus};
pub use record::{CHECKSUM, MAX_RECORD, RECORD_HEAD_LEN, RecordHead};
pub use trace::Trace;

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

/// Feature bit: the target takes [`Cancel`] frames.
pub const CANCEL: u32 = 1 << 0;
/// Feature bit: the target takes [`Present`] frames. (Bit 1 is in [`crate::auth`].)
pub const TOKEN: u32 = 1 << 2;
/// Length of a region token in bytes.
pub const TOKEN_LEN: usize = 80;
/// Feature bit: the target takes [`Trace`] frames. (Bit 3 is in [`crate::auth`], bit 5 is [`CHECKSUM`].)
pub const TRACE: u32 = 1 << 4;
/// The feature bits that are always wanted.
pub const FEATURES: u32 = CANCEL | TOKEN | TRACE;

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
    /// A region token of another length than [`TOKEN_LEN`].
    #[error("a token of {0} bytes; it has {TOKEN_LEN}")]
    Token(u64),
    /// The head of a record that does not have its checksum.
    #[error("bytes that are no record")]
    Record,
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("invariant: offsets lie inside the fixed-size head")
}
