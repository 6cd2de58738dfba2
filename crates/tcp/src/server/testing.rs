//! One rail lane of a server without its thread, for the simulation in `client/simulation.rs`.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use moonrail_access::Telling;
use moonrail_memory::RegionTable;
use moonrail_sys::Waker;

use super::rail::RailLane;
use super::turn::Turn;
use super::{Counters, ServerOptions, Shared};
use crate::stream::Stream;

pub(crate) struct LoneLane {
    shared: Shared,
    lane: Option<RailLane>,
}

impl LoneLane {
    pub(crate) fn new(regions: Arc<RegionTable>, epoch: u64, socket: TcpStream) -> Self {
        let shared = Shared {
            regions,
            options: ServerOptions { epoch, ..ServerOptions::default() },
            counters: Counters::default(),
            warnings: Telling::default(),
            waker: Waker::new().expect("a descriptor"),
            stop: AtomicBool::new(false),
        };
        let peer = socket.peer_addr().expect("it is connected");
        let lane = RailLane::new(Stream::new(socket), peer, &[], Instant::now());
        Self { shared, lane: Some(lane) }
    }

    /// What the data thread does when the socket is ready.
    pub(crate) fn turn(&mut self) {
        let Some(lane) = &mut self.lane else { return };
        if lane.turn(&self.shared, Instant::now()) == Turn::Closed {
            self.lane = None;
        }
    }

    /// What the data thread does when memory is being unregistered.
    pub(crate) fn drop_revoked(&mut self) {
        if let Some(lane) = self.lane.take_if(|lane| lane.revoked()) {
            lane.reset_on_close();
        }
    }

    pub(crate) fn closed(&self) -> bool {
        self.lane.is_none()
    }
}
