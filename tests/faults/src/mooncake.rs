//! Peers that speak Mooncake's data protocol and nothing else, inside the harness.

mod client;
mod server;

pub(crate) use client::{Client, Job};
pub(crate) use server::{BASE, Server};

use std::io;
use std::net::TcpStream;

use moonrail_sys::socket;

/// Ends a connection so that nothing of it arrives any more.
fn reset(stream: &TcpStream) {
    let _ = socket::reset_on_close(stream);
}

fn refused() -> io::Error {
    io::Error::other("refused")
}
