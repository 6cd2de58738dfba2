//! The same-host path: copies straight between the registered memory of two processes, through memory that both have mapped or
//! by the kernel. The design, with its gaps, is in docs/same-host.md.
//!
//! Owns: the contact that a target publishes, the memory that target and initiators share, the target's side
//! ([`ShmServer`]) and the initiator's ([`ShmPath`]).
//! Must not know: how a peer is found, which path is chosen, other paths.

#![forbid(unsafe_code)]

mod batch;
mod blocks;
mod connect;
mod contact;
mod entry_page;
mod failure;
mod fence;
mod helper;
mod initiators;
mod layout;
mod link;
mod mirror;
mod path;
mod peer;
mod plain;
mod server;
mod view;
mod welcome;
mod worker;

pub use contact::{BadContact, ShmContact};
pub use path::ShmPath;
pub use peer::ShmPeer;
pub use server::ShmServer;
