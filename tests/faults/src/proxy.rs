//! A TCP proxy on one thread that stands between the processes and breaks connections at a chosen byte.
//!
//! Owns the connections through it and the one rule in force. It forwards what a network would: a reset at one end is a
//! reset at the other, and what was on its way then is dropped. It must not know what the bytes mean.

mod link;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use moonrail_sys::poll::Interest;
use moonrail_sys::poller::{Events, Poller};
use moonrail_sys::{Waker, socket};

use self::link::{Fate, Link};

const WAKER: u64 = 0;

/// Which connections a rule is about: an engine's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Gate {
    pub node: usize,
    pub engine: usize,
    pub port: Port,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Port {
    Handshake,
    Data,
}

/// What happens once `byte` bytes have passed through the gate, counted over all its connections.
pub(crate) struct Rule {
    pub gate: Gate,
    /// From whoever connected to the gate's owner, or back.
    pub inwards: bool,
    pub byte: u64,
    pub then: Then,
}

pub(crate) enum Then {
    /// Both ends are reset.
    Reset,
    /// Both ends see an end of file.
    Cut,
    /// Nothing passes for a while, in either direction.
    Stall(Duration),
    /// From then on single bytes pass, one each interval.
    Trickle(Duration),
    /// Something outside the network happens, before the next byte passes.
    Do(Box<dyn FnOnce() + Send>),
}

enum Command {
    Open {
        gate: Gate,
        listener: TcpListener,
        to: SocketAddr,
    },
    Close(usize),
    Rule(Option<Rule>),
    /// Refuse connections to this gate from now on, or take them again.
    Refuse(Option<Gate>),
    Settle(Sender<Vec<Gate>>),
}

/// The running proxy.
pub(crate) struct Proxy {
    commands: Sender<Command>,
    waker: Arc<Waker>,
    fired: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    pub(crate) fn start() -> io::Result<Self> {
        let (commands, incoming) = channel();
        let (waker, fired) = (Arc::new(Waker::new()?), Arc::new(AtomicBool::new(false)));
        let poller = Poller::new()?;
        poller.add(&*waker, WAKER, Interest::Read)?;
        let (of_thread, has_fired) = (Arc::clone(&waker), Arc::clone(&fired));
        let proxy = Running {
            poller,
            incoming,
            waker: of_thread,
            fired: has_fired,
            doors: HashMap::new(),
            links: HashMap::new(),
            next: 1,
            rule: None,
            refused: None,
            passed: 0,
        };
        let thread = thread::Builder::new().name("proxy".to_owned()).spawn(move || proxy.run())?;
        Ok(Self { commands, waker, fired, thread: Some(thread) })
    }

    /// Takes connections at `at` for the engine that listens at `to`.
    pub(crate) fn open(&self, gate: Gate, at: SocketAddr, to: SocketAddr) -> io::Result<()> {
        let listener = socket::listen(at, 256)?;
        self.tell(Command::Open { gate, listener, to });
        Ok(())
    }

    /// Ends what belongs to a node that has ended.
    pub(crate) fn close(&self, node: usize) {
        self.tell(Command::Close(node));
        self.settle();
    }

    /// Sets the rule; there is one at a time.
    pub(crate) fn set(&self, rule: Rule) {
        self.fired.store(false, Ordering::Release);
        self.tell(Command::Rule(Some(rule)));
    }

    /// Lifts the rule and what it did: what is stalled goes on, and connections are taken again.
    pub(crate) fn lift(&self) {
        self.tell(Command::Rule(None));
        self.tell(Command::Refuse(None));
        self.settle();
    }

    /// Whether the last rule has come into force.
    pub(crate) fn fired(&self) -> bool {
        self.fired.load(Ordering::Acquire)
    }

    pub(crate) fn refuse(&self, gate: Gate) {
        self.fired.store(false, Ordering::Release);
        self.tell(Command::Refuse(Some(gate)));
    }

    /// Waits until everything that the ends have done so far has been passed on; the gates of the open connections.
    pub(crate) fn settle(&self) -> Vec<Gate> {
        let (answer, settled) = channel();
        self.tell(Command::Settle(answer));
        settled.recv().unwrap_or_default()
    }

    fn tell(&self, command: Command) {
        // The thread ends only with this value.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.commands = channel().0;
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Door {
    gate: Gate,
    listener: TcpListener,
    to: SocketAddr,
}

struct Running {
    poller: Poller,
    incoming: Receiver<Command>,
    waker: Arc<Waker>,
    fired: Arc<AtomicBool>,
    doors: HashMap<u64, Door>,
    /// By the token of the end that connected; the other end has the next one.
    links: HashMap<u64, Link>,
    next: u64,
    rule: Option<Rule>,
    refused: Option<Gate>,
    /// Bytes that the rule has counted.
    passed: u64,
}

impl Running {
    fn run(mut self) {
        let mut events = Events::with_capacity(64);
        let mut settling: Vec<Sender<Vec<Gate>>> = Vec::new();
        loop {
            let timeout = if settling.is_empty() { self.next_timer() } else { Some(Duration::ZERO) };
            let Ok(ready) = self.poller.wait(&mut events, timeout) else { return };
            if ready == 0 {
                for answer in settling.drain(..) {
                    let _ = answer.send(self.links.values().map(|link| link.gate).collect());
                }
            }
            for event in events.iter() {
                if event.token == WAKER {
                    self.waker.drain();
                } else if self.doors.contains_key(&event.token) {
                    self.accept(event.token);
                } else {
                    self.attend(event.token & !1, event.readiness.closed.then_some(event.token & 1 == 1));
                }
            }
            self.run_timers();
            loop {
                match self.incoming.try_recv() {
                    Ok(Command::Settle(answer)) => settling.push(answer),
                    Ok(command) => self.obey(command),
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
                }
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Open { gate, listener, to } => {
                self.next += 2;
                let token = self.next & !1;
                if self.poller.add(&listener, token, Interest::Read).is_ok() {
                    self.doors.insert(token, Door { gate, listener, to });
                }
            }
            Command::Close(node) => {
                for (_, door) in self.doors.extract_if(|_, door| door.gate.node == node) {
                    let _ = self.poller.remove(&door.listener);
                }
                let ended: Vec<u64> = self
                    .links
                    .iter()
                    .filter(|(_, link)| link.gate.node == node)
                    .map(|(token, _)| *token)
                    .collect();
                ended.into_iter().for_each(|token| self.end(token, Fate::Reset));
            }
            Command::Rule(rule) => {
                (self.rule, self.passed) = (rule, 0);
                let all: Vec<u64> = self.links.keys().copied().collect();
                for token in all {
                    if let Some(link) = self.links.get_mut(&token) {
                        link.release();
                    }
                    self.attend(token, None);
                }
            }
            Command::Refuse(gate) => self.refused = gate,
            Command::Settle(_) => {}
        }
    }

    fn accept(&mut self, token: u64) {
        loop {
            let Some(door) = self.doors.get(&token) else { return };
            let Ok((near, _)) = socket::accept(&door.listener) else { return };
            let (gate, to) = (door.gate, door.to);
            let far = if self.refused == Some(gate) {
                self.fired.store(true, Ordering::Release);
                Err(io::ErrorKind::ConnectionRefused.into())
            } else {
                socket::connect_start(to)
            };
            let Ok((far, _)) = far else {
                let _ = socket::reset_on_close(&near);
                continue;
            };
            let _ = socket::set_nodelay(&near, true).and_then(|()| socket::set_nodelay(&far, true));
            self.next += 2;
            let token = self.next & !1;
            let watched = self
                .poller
                .add(&near, token, Interest::Read)
                .and_then(|()| self.poller.add(&far, token | 1, Interest::Read));
            let link = Link::new(gate, near, far);
            self.links.insert(token, link);
            if watched.is_err() {
                self.end(token, Fate::Reset);
            }
        }
    }

    /// Moves what can be moved. `broken`: which end may have ended (the far one if true).
    fn attend(&mut self, token: u64, broken: Option<bool>) {
        let Some(link) = self.links.get_mut(&token) else { return };
        if let Some(far) = broken
            && link.is_reset(far)
        {
            return self.end(token, Fate::Reset);
        }
        let fate = loop {
            // The bytes that may pass before the rule comes into force.
            let (counted, room) = match &self.rule {
                Some(rule) if rule.gate == link.gate => {
                    (Some(rule.inwards), rule.byte.saturating_sub(self.passed))
                }
                _ => (None, u64::MAX),
            };
            let limits = [true, false].map(|inwards| if counted == Some(inwards) { room } else { u64::MAX });
            let moved = match link.turn(limits, Instant::now()) {
                Ok(moved) => moved,
                Err(fate) => break Some(fate),
            };
            if let Some(inwards) = counted {
                self.passed += moved[usize::from(!inwards)];
                let waits = link.has_waiting(inwards);
                if let Some(rule) = self.rule.take_if(|rule| self.passed >= rule.byte && waits) {
                    self.fired.store(true, Ordering::Release);
                    match rule.then {
                        Then::Reset => break Some(Fate::Reset),
                        Then::Cut => break Some(Fate::Cut),
                        Then::Stall(time) => link.stall(Instant::now() + time),
                        Then::Trickle(interval) => link.trickle(interval),
                        Then::Do(what) => what(),
                    }
                    continue;
                }
            }
            if moved == [0, 0] {
                break None;
            }
        };
        match fate {
            Some(fate) => self.end(token, fate),
            None => self.watch(token),
        }
    }

    fn watch(&mut self, token: u64) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let wanted = link.interests(Instant::now());
        if wanted != link.watched {
            link.watched = wanted;
            let _ = self.poller.modify(&link.near, token, wanted[0]);
            let _ = self.poller.modify(&link.far, token | 1, wanted[1]);
        }
    }

    fn end(&mut self, token: u64, fate: Fate) {
        let Some(link) = self.links.remove(&token) else { return };
        let _ = self.poller.remove(&link.near);
        let _ = self.poller.remove(&link.far);
        if fate == Fate::Reset {
            let _ = socket::reset_on_close(&link.near);
            let _ = socket::reset_on_close(&link.far);
        }
    }

    fn next_timer(&self) -> Option<Duration> {
        let now = Instant::now();
        self.links.values().filter_map(Link::timer).min().map(|at| at.saturating_duration_since(now))
    }

    fn run_timers(&mut self) {
        let now = Instant::now();
        let due: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, link)| link.timer().is_some_and(|at| at <= now))
            .map(|(token, _)| *token)
            .collect();
        due.into_iter().for_each(|token| self.attend(token, None));
    }
}
