//! Why a segment descriptor cannot be used.

use crate::json::JsonError;

/// A segment descriptor that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// Not JSON, not an object, or a field of a type that it cannot have.
    #[error("segment descriptor: {0}")]
    Json(#[from] JsonError),
    /// The body is null: an engine that uses a metadata server answers so to a metadata request.
    #[error("the peer has no segment descriptor to give: it uses a metadata server, not P2PHANDSHAKE")]
    Absent,
    /// No `protocol`.
    #[error("segment descriptor without a protocol")]
    NoProtocol,
    /// `protocol` is an array: the peer is a multi-protocol build.
    #[error(
        "segment descriptor with an array of protocols: the peer is a multi-protocol build, which is not supported"
    )]
    ProtocolArray,
    /// A `protocol` that no genuine release has.
    #[error("segment descriptor with unknown protocol {protocol:?}")]
    UnknownProtocol {
        /// The protocol, cut to 40 characters.
        protocol: String,
    },
    /// A tcp buffer that cannot be right. Genuine peers refuse such a descriptor as a whole.
    #[error("segment descriptor: buffer {index} {fault}")]
    Buffer {
        /// Its place in `buffers`, from 0.
        index: usize,
        /// What is wrong with it.
        fault: BufferFault,
    },
    /// A named buffer in the Moonrail extension that cannot be right.
    #[error("segment descriptor: named buffer {index} {fault}")]
    NamedBuffer {
        /// Its place in `names`, from 0.
        index: usize,
        /// What is wrong with it.
        fault: BufferFault,
    },
    /// The epoch in the Moonrail extension is not 1 to 16 hex digits.
    #[error("segment descriptor: the epoch {epoch:?} is not 1 to 16 hex digits")]
    Epoch {
        /// The text, cut to 40 characters.
        epoch: String,
    },
}

/// What is wrong with a buffer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferFault {
    /// Not an object.
    #[error("is {found} instead of an object")]
    NotAnObject {
        /// What it is.
        found: &'static str,
    },
    /// A field of a type that it cannot have.
    #[error("is malformed: {0}")]
    Field(#[from] JsonError),
    /// Absent or empty name.
    #[error("has no name")]
    NoName,
    /// Absent or zero address.
    #[error("has address 0")]
    ZeroAddress,
    /// Absent or zero length.
    #[error("has length 0")]
    ZeroLength,
    /// The range goes past the end of the address space.
    #[error("wraps around: address 0x{addr:x} and length {length}")]
    WrapAround {
        /// Its address.
        addr: u64,
        /// Its length, bytes.
        length: u64,
    },
}
