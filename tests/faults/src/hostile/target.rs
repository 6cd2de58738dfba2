//! The process that is thrown at: an engine and a metadata server.

use std::io::{Write, stdin, stdout};
use std::net::SocketAddr;
use std::panic;
use std::process;

use moonrail::{Config, Engine, RegionOptions};
use moonrail_metadata::{MetadataServer, ServerLimits};
use moonrail_transport::testkit::Side;
use serde::{Deserialize, Serialize};

use super::messages::Port;
use crate::remote;

/// Bytes for the honest clients.
pub(super) const HONEST: u64 = 1 << 20;
/// Bytes that hostile messages may name rightly, and so may change.
pub(super) const SCRATCH: u64 = 1 << 20;
/// Bytes before and behind the scratch that are not registered.
const GUARD: u64 = 64 << 10;
const GUARD_BYTE: u8 = 0xa5;

/// Where everything is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Up {
    pub handshake: SocketAddr,
    pub data: SocketAddr,
    pub http: SocketAddr,
    pub epoch: u64,
    pub honest: u64,
    pub scratch: u64,
}

impl Up {
    pub(super) fn of(&self, port: Port) -> SocketAddr {
        match port {
            Port::Data => self.data,
            Port::Handshake => self.handshake,
            Port::Http => self.http,
        }
    }
}

/// Serves until standard input ends. A panic on any thread ends the process, so that the harness sees it.
pub(crate) fn run() {
    let told = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        told(what);
        process::abort();
    }));
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let engine = Engine::start(Config::new("127.0.0.1", "P2PHANDSHAKE")).expect("the engine starts");
    let server = MetadataServer::bind(SocketAddr::from(([127, 0, 0, 1], 0)), ServerLimits::default());
    let server = server.expect("the metadata server starts");
    let side = Side::new();
    let whole = side.range(SCRATCH + 2 * GUARD);
    let mut bytes = vec![GUARD_BYTE; (SCRATCH + 2 * GUARD) as usize];
    bytes[GUARD as usize..(GUARD + SCRATCH) as usize].fill(0);
    Side::poke(whole, &bytes);
    let scratch = whole.part(GUARD, SCRATCH).expect("it lies inside");
    engine.register(scratch, RegionOptions::default()).expect("it is registered");
    let honest = engine.allocate(HONEST).expect("memory for the honest");
    let report = engine.report().expect("the engine runs");
    let up = Up {
        handshake: report.handshake,
        data: report.data,
        http: server.local_addr(),
        epoch: report.epoch,
        honest,
        scratch: scratch.addr(),
    };
    let mut line = serde_json::to_vec(&up).expect("it can be written");
    line.push(b'\n');
    let _ = stdout().lock().write_all(&line);
    let _ = stdin().read_line(&mut String::new());
    process::exit(0);
}

/// Whether the bytes beside the scratch are what they were.
pub(super) fn guards_hold(pid: u32, up: &Up) -> std::io::Result<bool> {
    for at in [up.scratch - GUARD, up.scratch + SCRATCH] {
        if remote::read(pid, at, GUARD as usize)?.iter().any(|&byte| byte != GUARD_BYTE) {
            return Ok(false);
        }
    }
    Ok(true)
}
