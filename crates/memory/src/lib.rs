//! Registered memory: the region table, in-flight holds, managed buffers.
//!
//! A *region* is a range of this process's memory that its owner gave to the engine. Whoever moves bytes from or into a
//! region takes a [`Hold`] on it first, and drops the hold when the kernel is done. [`RegionTable::unregister`] is a
//! fence: it lets no new hold begin and returns once no old one is left.
//!
//! This crate owns that bookkeeping and nothing else. It must not know paths, peers or protocols.
//!
//! Regions are known by address, and addresses come from outside (another process, another language), so no Rust
//! reference to registered memory is ever made here: the kernel copies, and a bad address is an EFAULT. Only memory that was
//! allocated here, and so is known to be mapped, is also copied without the kernel ([`far`]).

mod arena;
mod block;
pub mod cross;
mod error;
pub mod far;
mod hold;
mod hold_set;
pub mod io;
mod managed;
mod outside;
mod range;
mod region;
mod table;

pub use block::{BLOCK_PAGE, Backing, SharedBlock};
pub use error::{HoldError, HoldMiss, RegionSpan, RegisterError, UnregisterError};
pub use hold::Hold;
pub use hold_set::HoldSet;
pub use managed::{AllocateError, FreeError, HugePages, ManagedBuffers};
pub use outside::Outside;
pub use range::{MemoryRange, RangeError};
pub use region::{Access, RegionInfo, RegionOptions, Want};
pub use table::{RegionTable, RevokeHook};
