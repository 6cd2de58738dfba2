//! The fault suite (docs/reliability.md): real processes and sockets, broken at seeded moments, judged byte by byte.
//!
//! `cargo xtask faults --help` is the way to it. Owns everything about faults; knows Moonrail by its public Rust API, its
//! wire format, and what the kernel tells of its processes.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a command's output is its purpose

mod area;
#[path = "../../../crates/access/tests/support/authority.rs"]
mod authority;
mod command;
mod content;
mod dice;
mod hostile;
mod link;
mod mooncake;
mod node;
mod orders;
mod plan;
mod process;
mod proxy;
mod remote;
mod rig;
mod run;
mod sealing;
mod shadow;
mod soak;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
