//! The contract that every path fulfils.
//!
//! Owns: what a transfer is ([`Entry`], [`Opcode`], [`Work`]), where it goes ([`Target`]), how long it may
//! take and who may stop it ([`Control`]), how it ends ([`Error`]), and the [`Path`] trait itself. With the
//! feature `testkit` it also holds an in-memory path with fault knobs and the conformance suite that every
//! path must pass.
//!
//! Must not know: any one path, metadata, Python or C.

mod code;
mod control;
mod error;
mod path;
#[cfg(feature = "testkit")]
pub mod testkit;
mod work;

pub use code::Code;
pub use control::{Control, Stop, WAIT_SLICE};
pub use error::{Error, Retry, Stage};
pub use path::{Dialect, Failure, Path, Target};
pub use work::{Entry, Opcode, Work};
