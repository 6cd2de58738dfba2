//! The path between processes that are really separate: killed, stopped, restarted, and kept apart by the kernel.
#![allow(clippy::unwrap_used, missing_docs)]

mod apart;
mod dying;
mod fence;
mod mapped;
mod restart;
mod support;

/// Not a test of its own: what the other tests start this binary again for.
#[test]
fn child() {
    support::child::run();
}
