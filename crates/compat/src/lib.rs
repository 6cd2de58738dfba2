//! What releases of Moonrail and genuine Mooncake can do, and what any two of them come to together.
//!
//! Owns the knowledge: which method came with which release ([`methods`]), how a release line serves and asks
//! ([`Engine`]), what a pair may expect ([`judge`]), and what to upgrade first in a cluster ([`Matrix`]), and
//! the same for clusters of any size ([`Kinds`]). Every claim
//! about genuine releases was seen on their wheels (tests/interop). Pure: no sockets, no clocks, no text of users.

mod engine;
mod kinds;
mod matrix;
pub mod methods;
mod pair;
mod place;

pub use engine::{Engine, Generation, Seen};
pub use kinds::{Kind, Kinds, Meeting};
pub use matrix::{Matrix, Upgrade};
pub use pair::{Pair, Problem, Severity, Side, judge};
pub use place::place_of;
