//! For tests of paths and of what stands on them: an in-memory path with fault knobs, and the conformance suite
//! that every path must pass.

pub mod conformance;
mod fake;
mod side;

pub use fake::{FakePath, Faults};
pub use side::Side;
