//! One connection through the proxy: two sockets and what is on its way between them.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use moonrail_sys::poll::Interest;
use moonrail_sys::socket;

use super::Gate;

/// Bytes on their way in one direction at most.
const ROOM: usize = 128 << 10;

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Reset,
    Cut,
}

/// One direction.
struct Way {
    waiting: Vec<u8>,
    /// The sender has said its last word; then, the receiver was told.
    ended: bool,
    told: bool,
}

pub(super) struct Link {
    pub gate: Gate,
    /// The end that connected, and the end it wanted.
    pub near: TcpStream,
    pub far: TcpStream,
    pub watched: [Interest; 2],
    /// Inwards, outwards.
    ways: [Way; 2],
    stalled: Option<Instant>,
    trickle: Option<(Duration, Instant)>,
}

impl Link {
    pub(super) fn new(gate: Gate, near: TcpStream, far: TcpStream) -> Self {
        let ways = [(); 2].map(|()| Way { waiting: Vec::new(), ended: false, told: false });
        Self { gate, near, far, watched: [Interest::Read; 2], ways, stalled: None, trickle: None }
    }

    pub(super) fn stall(&mut self, until: Instant) {
        self.stalled = Some(until);
    }

    pub(super) fn trickle(&mut self, interval: Duration) {
        self.trickle = Some((interval, Instant::now()));
    }

    /// Nothing is held up any more.
    pub(super) fn release(&mut self) {
        (self.stalled, self.trickle) = (None, None);
    }

    pub(super) fn is_reset(&self, far: bool) -> bool {
        let end = if far { &self.far } else { &self.near };
        !matches!(socket::take_error(end), Ok(None))
    }

    pub(super) fn has_waiting(&self, inwards: bool) -> bool {
        let way = &self.ways[usize::from(!inwards)];
        !way.waiting.is_empty() || way.ended
    }

    /// When it is to be looked at without an event.
    pub(super) fn timer(&self) -> Option<Instant> {
        let trickles = self.ways.iter().any(|way| !way.waiting.is_empty());
        self.stalled.or(self.trickle.filter(|_| trickles).map(|(_, next)| next))
    }

    /// Moves what can be moved, at most `limits` bytes in each direction; how much that was.
    pub(super) fn turn(&mut self, limits: [u64; 2], now: Instant) -> Result<[u64; 2], Fate> {
        if self.stalled.is_some_and(|until| now < until) {
            return Ok([0, 0]);
        }
        self.stalled = None;
        let mut limits = limits;
        if let Some((interval, next)) = &mut self.trickle {
            let passes = u64::from(now >= *next);
            if passes == 1 {
                *next = now + *interval;
            }
            limits = limits.map(|limit| limit.min(passes));
        }
        let mut moved = [0, 0];
        for (at, (from, to)) in [(&self.near, &self.far), (&self.far, &self.near)].into_iter().enumerate() {
            moved[at] = self.ways[at].turn(from, to, limits[at])?;
        }
        if self.ways.iter().all(|way| way.told) { Err(Fate::Cut) } else { Ok(moved) }
    }

    /// What the two sockets are to be watched for.
    pub(super) fn interests(&self, now: Instant) -> [Interest; 2] {
        if self.stalled.is_some_and(|until| now < until) {
            return [Interest::None; 2];
        }
        let [inwards, outwards] = &self.ways;
        let writes = |way: &Way| !way.waiting.is_empty() && self.trickle.is_none();
        [Interest::of(inwards.reads(), writes(outwards)), Interest::of(outwards.reads(), writes(inwards))]
    }
}

impl Way {
    fn reads(&self) -> bool {
        !self.ended && self.waiting.len() < ROOM
    }

    fn turn(&mut self, from: &TcpStream, to: &TcpStream, limit: u64) -> Result<u64, Fate> {
        if self.reads() {
            let have = self.waiting.len();
            self.waiting.resize(ROOM, 0);
            let got = socket::try_recv(from, &mut self.waiting[have..]);
            self.waiting.truncate(have + got.as_ref().map_or(0, |got| *got));
            match got {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if is_transient(&error) => {}
                Err(_) => return Err(Fate::Reset),
            }
        }
        let may = self.waiting.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
        let mut sent = 0;
        if may > 0 {
            match socket::try_send(to, &self.waiting[..may]) {
                Ok(count) => sent = count,
                Err(error) if is_transient(&error) => {}
                Err(_) => return Err(Fate::Reset),
            }
            self.waiting.drain(..sent);
        }
        if self.ended && self.waiting.is_empty() && !self.told {
            self.told = true;
            let _ = to.shutdown(std::net::Shutdown::Write);
        }
        Ok(sent as u64)
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
