//! The loopback tests over the same-host path.
#![allow(clippy::unwrap_used, missing_docs)]

mod loopback;

const SHM: bool = true;
