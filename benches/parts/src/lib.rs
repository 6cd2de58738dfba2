//! What the benchmarks of the parts share: the memory that is measured with, and an engine over a path that does
//! nothing, so that all the time and all the instructions of a transfer are the engine's own.
//!
//! Must not know how anything is measured.
#![forbid(unsafe_code)]

pub mod idle;
pub mod pages;

pub use idle::OverNothing;
pub use pages::Pages;
