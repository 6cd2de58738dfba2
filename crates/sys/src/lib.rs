//! Raw Linux calls, each behind one safe type.
//!
//! One file per operating-system feature. This crate owns file descriptors, waiting, scatter-gather socket I/O, private
//! mappings and process facts. It must not know the engine: no regions, no peers, no protocol.
//!
//! No call in here blocks, except those of [`poll`] and [`poller`], whose purpose it is. No thread is started.

pub mod clock;
pub mod copy;
pub mod cross_memory;
pub mod errno;
pub mod fork_mark;
pub mod host;
pub mod huge_pages;
pub mod iovec;
pub mod life;
pub mod local_socket;
pub mod mapping;
pub mod memfd;
pub mod peek;
pub mod pidfd;
pub mod plain_copy;
pub mod poll;
pub mod poller;
pub mod process;
pub mod random;
pub mod shared_words;
pub mod socket;
mod waker;

pub use waker::Waker;
