//! Every byte that crosses a socket, without sockets: handshake frames, segment descriptors, data headers.
//!
//! The formats are those of the Mooncake transfer engine, releases 0.3.3 to 0.3.13, with one extra object in the
//! segment descriptor by which two Moonrails know each other. All decoders are total or return an error: no input
//! makes them panic, recurse without bound, or hold more memory than a small multiple of the bytes received.
//!
//! This crate must not know sockets, clocks, threads or registered memory.
#![forbid(unsafe_code)]

pub mod address;
pub mod auth;
pub mod data;
pub mod directory;
pub mod handshake;
pub mod json;
pub mod rail;
pub mod segment;
mod trace_context;

pub use address::{AddressError, HostPort};
pub use data::{DataVersion, Op, RequestHeader};
pub use directory::{KeySpace, RpcMeta};
pub use json::JsonError;
pub use segment::{
    Buffer, DescriptorError, Extension, NamedBuffer, RailOffer, ReleaseLine, SegmentDescriptor,
};
pub use trace_context::{BadTraceparent, TraceContext};
