//! A relay between an initiator and a target that lets through only as many bytes as the test says, each way.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use moonrail_sys::socket;

/// Bytes that may pass on one connection in one direction.
pub(crate) const OPEN: u64 = u64::MAX;

pub(crate) struct Gate {
    pub address: SocketAddr,
    /// Connections made through it so far.
    pub connections: Arc<AtomicUsize>,
    pub to_target: Arc<AtomicU64>,
    pub to_initiator: Arc<AtomicU64>,
    /// Whether bytes have waited at a limit.
    pub stuck: Arc<AtomicBool>,
}

impl Gate {
    /// In front of `target`. `features`: what it leaves of the feature bits in a rail hello.
    pub(crate) fn new(target: SocketAddr, features: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            to_target: Arc::new(AtomicU64::new(OPEN)),
            to_initiator: Arc::new(AtomicU64::new(OPEN)),
            stuck: Arc::default(),
        };
        let stuck = Arc::clone(&gate.stuck);
        let (connections, limits) =
            (Arc::clone(&gate.connections), [Arc::clone(&gate.to_target), Arc::clone(&gate.to_initiator)]);
        thread::spawn(move || {
            for initiator in listener.incoming() {
                let (limits, stuck) = (limits.clone(), Arc::clone(&stuck));
                let initiator = initiator.unwrap();
                let target = TcpStream::connect(target).unwrap();
                connections.fetch_add(1, SeqCst);
                thread::spawn(move || relay(&[initiator, target], &limits, features, &stuck));
            }
        });
        gate
    }
}

/// Until one end is gone; then the other is reset, as if there were no relay between.
fn relay(ends: &[TcpStream; 2], limits: &[Arc<AtomicU64>; 2], features: u32, stuck: &AtomicBool) {
    for end in ends {
        end.set_nonblocking(true).unwrap();
        socket::set_nodelay(end, true).unwrap();
        socket::reset_on_close(end).unwrap();
        socket::set_buffer_sizes(end, Some(256 << 10), Some(256 << 10)).unwrap();
    }
    let mut ways = [Way::default(), Way::default()];
    loop {
        let mut moved = false;
        for (at, way) in ways.iter_mut().enumerate() {
            let first = at == 0 && way.taken == 0;
            match way.step(&ends[at], &ends[1 - at], limits[at].load(SeqCst)) {
                Some(some) => moved |= some,
                None => return,
            }
            if !way.pending.is_empty() && way.passed >= limits[at].load(SeqCst) {
                stuck.store(true, SeqCst);
            }
            if first && way.pending.len() >= 16 {
                let wanted = u32::from_le_bytes(way.pending[12..16].try_into().unwrap());
                way.pending[12..16].copy_from_slice(&(wanted & features).to_le_bytes());
            }
        }
        if !moved {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

#[derive(Default)]
struct Way {
    pending: Vec<u8>,
    taken: u64,
    passed: u64,
}

impl Way {
    /// Passes on what is pending, then takes more; `None` once an end is gone.
    fn step(&mut self, mut from: &TcpStream, mut to: &TcpStream, limit: u64) -> Option<bool> {
        let mut moved = false;
        // A reset goes ahead of what is held here.
        if socket::take_error(from).unwrap().is_some() {
            return None;
        }
        let may = limit.saturating_sub(self.passed).min(self.pending.len() as u64) as usize;
        if may > 0 {
            match to.write(&self.pending[..may]) {
                Ok(sent) => {
                    self.pending.drain(..sent);
                    self.passed += sent as u64;
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        if self.pending.is_empty() {
            let mut bytes = [0; 64 << 10];
            match from.read(&mut bytes) {
                Ok(0) => return None,
                Ok(got) => {
                    self.pending.extend_from_slice(&bytes[..got]);
                    self.taken += got as u64;
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        Some(moved)
    }
}
