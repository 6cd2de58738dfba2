//! The data thread: waits for whatever is ready and gives it its turn.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use moonrail_sys::poll::Interest;
use moonrail_sys::poller::{Events, Poller};
use tracing::{error, warn};

use super::Shared;
use super::accept::{Accepted, Acceptor};
use super::client::Client;
use super::turn::Turn;
use crate::spin::Spin;

const LISTENER: u64 = 0;
const WAKER: u64 = 1;
const FIRST_CONNECTION: u64 = 2;
/// How often connections that stand still in the middle of a request are looked for, while there are any.
const SWEEP: Duration = Duration::from_secs(1);

pub(super) struct EventLoop {
    acceptor: Acceptor,
    shared: Arc<Shared>,
    poller: Poller,
    connections: Vec<Option<Entry>>,
    free: Vec<usize>,
    next_sweep: Option<Instant>,
    spin: Spin,
}

struct Entry {
    client: Client,
    interest: Interest,
}

impl EventLoop {
    pub(super) fn new(listener: TcpListener, shared: Arc<Shared>) -> io::Result<Self> {
        let acceptor = Acceptor::new(listener)?;
        let poller = Poller::new()?;
        poller.add(acceptor.listener(), LISTENER, Interest::Read)?;
        poller.add(&shared.waker, WAKER, Interest::Read)?;
        Ok(Self {
            acceptor,
            shared,
            poller,
            connections: Vec::new(),
            free: Vec::new(),
            next_sweep: None,
            spin: Spin::default(),
        })
    }

    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(64);
        while !self.shared.stop.load(Ordering::Acquire) {
            if let Err(cause) = self.wait(&mut events) {
                error!("the data thread cannot wait for its sockets and stops: {cause}");
                return;
            }
            let now = Instant::now();
            let mut accept = self.resume_accepting(now);
            for event in events.iter() {
                match event.token {
                    LISTENER => accept = true,
                    WAKER => {
                        self.shared.waker.drain();
                        self.drop_revoked();
                    }
                    token => self.give_turn((token - FIRST_CONNECTION) as usize, now),
                }
            }
            if accept {
                self.accept_waiting(now);
            }
            self.drop_stalled(now);
        }
    }

    /// Waits for the next events, looking for a moment before sleeping where that has lately paid.
    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let began = Instant::now();
        let mut now = began;
        while now.duration_since(began) < self.spin.budget() {
            if self.poller.wait(events, Some(Duration::ZERO))? > 0 {
                self.spin.paid();
                return Ok(());
            }
            // The client may need this very core.
            std::thread::yield_now();
            now = Instant::now();
        }
        self.poller.wait(events, self.timeout(now))?;
        self.spin.slept(now.elapsed());
        Ok(())
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        let soonest = [self.next_sweep, self.acceptor.paused_until()].into_iter().flatten().min()?;
        Some(soonest.saturating_duration_since(now))
    }

    fn give_turn(&mut self, slot: usize, now: Instant) {
        let Some(Some(entry)) = self.connections.get_mut(slot) else { return };
        match entry.client.turn(&self.shared, now) {
            Turn::Closed => self.close(slot),
            Turn::Rail => {
                self.connections[slot] = self.connections[slot]
                    .take()
                    .map(|entry| Entry { client: entry.client.into_rail(now), interest: entry.interest });
                self.give_turn(slot, now);
            }
            Turn::Open { read, write } => {
                let interest = Interest::of(read, write);
                let at_rest = entry.client.at_rest();
                let fails = interest != entry.interest
                    && self.poller.modify(&entry.client, slot as u64 + FIRST_CONNECTION, interest).is_err();
                entry.interest = interest;
                if fails {
                    self.close(slot);
                } else if !at_rest && self.next_sweep.is_none() {
                    self.next_sweep = Some(now + SWEEP);
                }
            }
        }
    }

    fn close(&mut self, slot: usize) {
        if let Some(entry) = self.connections[slot].take() {
            let _ = self.poller.remove(&entry.client);
            self.free.push(slot);
        }
    }

    fn reset(&mut self, slot: usize) {
        if let Some(entry) = self.connections[slot].take() {
            let _ = self.poller.remove(&entry.client);
            entry.client.reset();
            self.free.push(slot);
        }
    }

    fn accept_waiting(&mut self, now: Instant) {
        while let Accepted::Connection(stream, peer) = self.acceptor.accept(now) {
            let client = Client::new(stream, peer, now);
            if self.open() >= self.shared.options.max_connections {
                if self.shared.counters.turned_away.fetch_add(1, Ordering::Relaxed) == 0 {
                    warn!("turned {peer} away: {} data connections are open", self.open());
                }
                client.reset();
                continue;
            }
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            if self.poller.add(&client, slot as u64 + FIRST_CONNECTION, Interest::Read).is_err() {
                self.free.push(slot);
                continue;
            }
            self.connections[slot] = Some(Entry { client, interest: Interest::Read });
            // Its first request is usually there already.
            self.give_turn(slot, now);
        }
        if self.acceptor.paused_until().is_some() {
            let _ = self.poller.modify(self.acceptor.listener(), LISTENER, Interest::None);
        }
    }

    fn resume_accepting(&mut self, now: Instant) -> bool {
        let resumed = self.acceptor.resume(now);
        if resumed {
            let _ = self.poller.modify(self.acceptor.listener(), LISTENER, Interest::Read);
        }
        resumed
    }

    fn open(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// An unregister is waiting: connections that use its memory end now, whatever their client does.
    fn drop_revoked(&mut self) {
        for slot in 0..self.connections.len() {
            if let Some(entry) = &self.connections[slot]
                && entry.client.revoked()
            {
                self.shared.warn(format_args!(
                    "closed the connection of {}: the memory it was using is being unregistered",
                    entry.client.peer()
                ));
                self.reset(slot);
            }
        }
    }

    fn drop_stalled(&mut self, now: Instant) {
        if self.next_sweep.is_none_or(|at| now < at) {
            return;
        }
        let mut busy = false;
        for slot in 0..self.connections.len() {
            let Some(entry) = &self.connections[slot] else { continue };
            if entry.client.at_rest() {
                continue;
            }
            if now.duration_since(entry.client.last_progress()) >= self.shared.options.stall {
                self.shared.warn(format_args!(
                    "closed the connection of {}: it stood still in the middle of a request",
                    entry.client.peer()
                ));
                self.reset(slot);
            } else {
                busy = true;
            }
        }
        self.next_sweep = busy.then(|| now + SWEEP);
    }
}
