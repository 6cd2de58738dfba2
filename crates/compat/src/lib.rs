//! What releases of Moonrail and genuine Mooncake can do, and what any two of them come to together.
//!
//! Owns the knowledge: which method came with which release ([`methods`]), how a release line serves and asks
//! ([`Engine`]), what a pair may expect ([`judge`]), and what to upgrade first in a cluster ([`Matrix`]). Every claim
//! about genuine releases was seen on their wheels (tests/interop). Pure: no sockets, no clocks, no text of users.

mod engine;
mod matrix;
pub mod methods;
mod pair;

pub use engine::{Engine, Generation, Seen};
pub use matrix::{Matrix, Upgrade};
pub use pair::{Pair, Problem, Severity, Side, judge};
