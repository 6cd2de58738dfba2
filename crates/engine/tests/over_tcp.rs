//! The loopback tests over TCP.
#![allow(clippy::unwrap_used, missing_docs)]

mod loopback;

const SHM: bool = false;
