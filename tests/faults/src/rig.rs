//! One set of processes that schedules run on, one after the other: two nodes, Mooncake peers, perhaps a proxy.
//!
//! Owns who lives and where their memory is. It must not know what a schedule does.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_wire::data::DataVersion;

use crate::area::Area;
use crate::link::Link;
use crate::mooncake::{self, Client, Job, Server};
use crate::orders::{AREA, EngineSetup, Limits, MARGIN, Said, Setup};
use crate::plan::{BEST, Kind, TCP, Wiring};
use crate::process::Node;
use crate::proxy::{Gate, Port, Proxy};
use crate::remote::Remote;
use crate::sealing::Sealing;

/// Every engine has an address of its own, so they can all have the same port.
const HANDSHAKE_PORT: u16 = 17_500;

/// What every engine is told: short, so that many schedules fit a minute.
pub(crate) const LIMITS: Limits = Limits { connect: 500, handshake: 500, progress: 500, unregister: 1500 };

pub(crate) struct Rig {
    worker: usize,
    wiring: Wiring,
    sealing: Sealing,
    pub link: Option<Link>,
    pub proxy: Option<Proxy>,
    pub seats: [Option<Seat>; 2],
    strangers: HashMap<Kind, (Server, Area)>,
    pub client: Client,
    client_area: Area,
    remote: Rc<Remote>,
    /// Schedules since it was made.
    pub schedules: usize,
}

/// A node and its memory: by engine, brought and managed.
pub(crate) struct Seat {
    pub node: Node,
    pub areas: [[Area; 2]; 2],
}

/// Whose memory an area is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Node(usize),
    Stranger(Kind),
    Client,
}

impl Rig {
    pub(crate) fn new(worker: usize, wiring: Wiring, sealing: Sealing) -> Result<Self, String> {
        let proxy = if wiring == Wiring::Proxied {
            Some(Proxy::start().map_err(|error| format!("the proxy cannot start: {error}"))?)
        } else {
            None
        };
        let client = Client::new(AREA as usize);
        let client_area = Area::of_harness(Arc::clone(&client.memory), 0);
        let mut rig = Self {
            worker,
            wiring,
            sealing,
            link: None,
            proxy,
            seats: [None, None],
            strangers: HashMap::new(),
            client,
            client_area,
            remote: Rc::new(Remote::new(AREA)),
            schedules: 0,
        };
        if wiring == Wiring::Linked {
            let ends = [0, 1].map(|seat| [TCP, BEST].map(|engine| rig.private(seat, engine).to_string()));
            rig.link = Some(Link::new(worker, &ends[0], &ends[1])?);
        }
        Ok(rig)
    }

    /// Starts the nodes that do not run.
    pub(crate) fn ensure_nodes(&mut self) -> Result<(), String> {
        for seat in 0..2 {
            if self.seats[seat].is_none() {
                self.seats[seat] = Some(self.start(seat)?);
            }
        }
        Ok(())
    }

    /// Ends a node; [`Rig::ensure_nodes`] starts it again, at the same address.
    pub(crate) fn end(&mut self, seat: usize) {
        if let Some(mut seat) = self.seats[seat].take() {
            seat.node.kill();
        }
        if let Some(proxy) = &self.proxy {
            proxy.close(seat);
        }
    }

    fn start(&self, seat: usize) -> Result<Seat, String> {
        let engines = [TCP, BEST].map(|engine| EngineSetup {
            name: self.name(Owner::Node(seat), engine),
            listen: self.private(seat, engine),
            shm: engine == BEST,
        });
        let prefix = self.link.as_ref().filter(|_| seat == 1).map_or_else(Vec::new, Link::prefix);
        let lanes = [4, 1, 2][self.worker % 3];
        let sealing = self.sealing.clone();
        let node =
            Node::start(&Setup { engines: engines.to_vec(), limits: LIMITS, lanes, sealing }, &prefix)?;
        for (engine, up) in node.engines.iter().enumerate() {
            let hosts = (self.public(seat, engine), self.private(seat, engine));
            self.open_gates(seat, engine, hosts, up.data_port)?;
        }
        let areas = [TCP, BEST].map(|engine| {
            let up = &node.engines[engine];
            [up.own, up.managed].map(|at| Area::of_process(node.pid(), at, AREA as usize))
        });
        Ok(Seat { node, areas })
    }

    fn open_gates(
        &self,
        node: usize,
        engine: usize,
        (public, private): (IpAddr, IpAddr),
        data_port: u16,
    ) -> Result<(), String> {
        let Some(proxy) = &self.proxy else { return Ok(()) };
        for (port, number) in [(Port::Handshake, HANDSHAKE_PORT), (Port::Data, data_port)] {
            let gate = Gate { node, engine, port };
            let (at, to) = (SocketAddr::new(public, number), SocketAddr::new(private, number));
            proxy.open(gate, at, to).map_err(|error| format!("the proxy cannot listen at {at}: {error}"))?;
        }
        Ok(())
    }

    /// The stranger of that kind, started when it is first asked for.
    pub(crate) fn stranger(&mut self, kind: Kind) -> Result<&Server, String> {
        if !self.strangers.contains_key(&kind) {
            let seat = stranger_seat(kind);
            let (public, private) = (self.public(seat, TCP), self.private(seat, TCP));
            let server = Server::start(kind, public, HANDSHAKE_PORT, private, AREA as usize)
                .map_err(|error| format!("a Mooncake server cannot start: {error}"))?;
            self.open_gates(seat, TCP, (public, private), server.data_port)?;
            let area = Area::of_harness(Arc::clone(&server.memory), mooncake::BASE);
            self.strangers.insert(kind, (server, area));
        }
        Ok(&self.strangers[&kind].0)
    }

    /// The name under which peers reach an engine.
    pub(crate) fn name(&self, owner: Owner, engine: usize) -> String {
        SocketAddr::new(self.public(seat_of(owner), engine), HANDSHAKE_PORT).to_string()
    }

    pub(crate) fn gate(&self, owner: Owner, engine: usize, port: Port) -> Gate {
        Gate { node: seat_of(owner), engine, port }
    }

    /// An area, unless its owner has ended.
    pub(crate) fn area(&mut self, owner: Owner, engine: usize, managed: bool) -> Option<&mut Area> {
        match owner {
            Owner::Node(seat) => {
                self.seats[seat].as_mut().map(|seat| &mut seat.areas[engine][usize::from(managed)])
            }
            Owner::Stranger(kind) => self.strangers.get_mut(&kind).map(|(_, area)| area),
            Owner::Client => Some(&mut self.client_area),
        }
    }

    /// Stores bytes in an area.
    pub(crate) fn put(
        &mut self,
        (owner, engine, managed): (Owner, usize, bool),
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), String> {
        let remote = Rc::clone(&self.remote);
        let outcome = match self.area(owner, engine, managed) {
            Some(area) => area.put(&remote, offset, bytes),
            None => Err(std::io::ErrorKind::NotFound.into()),
        };
        outcome.map_err(|error| format!("memory of {owner:?} cannot be set: {error}"))
    }

    /// Waits until a target has passed whatever receive it was in, and knows of every connection that was ended.
    ///
    /// `drain`: also until what ended connections have left in its sockets is stored, as nobody was told of a failure
    /// and nobody reset them.
    pub(crate) fn settle(
        &mut self,
        target: Owner,
        engine: usize,
        drain: bool,
        patience: Duration,
    ) -> Result<(), String> {
        let began = Instant::now();
        if let Some(proxy) = &self.proxy {
            proxy.settle();
        }
        match target {
            Owner::Client => Ok(()),
            Owner::Stranger(kind) => {
                while self.strangers.get(&kind).is_some_and(|(server, _)| server.busy()) {
                    if began.elapsed() > patience {
                        return Err("a Mooncake server still waits for the rest of a request".to_owned());
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
                Ok(())
            }
            Owner::Node(seat) => {
                for _ in 0..if drain { 16 } else { 1 } {
                    self.ping(seat, engine, patience)?;
                }
                Ok(())
            }
        }
    }

    /// A round trip through a node's data thread, past the proxy.
    fn ping(&self, seat: usize, engine: usize, patience: Duration) -> Result<(), String> {
        let Some(Seat { node, .. }) = &self.seats[seat] else { return Ok(()) };
        let up = &node.engines[engine];
        let pong = Client::new(1);
        pong.start(Job {
            transfer: 0,
            version: DataVersion::V2,
            to: SocketAddr::new(self.private(seat, engine), up.data_port),
            write: false,
            pieces: vec![(0, up.managed, 1)],
            patience,
        });
        match pong.hear(patience * 2) {
            Some(Said::Done { outcome: Ok(()), .. }) => Ok(()),
            other => Err(format!("the data port of node {seat} does not answer: {other:?}")),
        }
    }

    /// Where the data port of a node is, as peers see it.
    pub(crate) fn data_address(&self, seat: usize, engine: usize) -> Option<SocketAddr> {
        let port = self.seats[seat].as_ref()?.node.engines[engine].data_port;
        Some(SocketAddr::new(self.public(seat, engine), port))
    }

    /// The last lines that the nodes wrote to their logs.
    pub(crate) fn logs(&self) -> String {
        let logs = self.seats.iter().enumerate().filter_map(|(nth, seat)| {
            let log = seat.as_ref()?.node.log();
            Some(format!("log of node {nth}:\n    {log}"))
        });
        logs.collect::<Vec<_>>().join("\n    ")
    }

    fn public(&self, seat: usize, engine: usize) -> IpAddr {
        self.address(if self.wiring == Wiring::Proxied { 0 } else { 1 }, seat, engine)
    }

    fn private(&self, seat: usize, engine: usize) -> IpAddr {
        self.address(1, seat, engine)
    }

    /// Addresses that nobody else on the machine is likely to use: of this process, rig and engine.
    fn address(&self, half: u8, seat: usize, engine: usize) -> IpAddr {
        let process = 64 + (std::process::id() % 80) as u8 * 2;
        let rig = self.worker as u8 * 2 + u8::from(self.wiring == Wiring::Proxied);
        let first = if self.wiring == Wiring::Linked { 10 } else { 127 };
        IpAddr::V4(Ipv4Addr::new(first, process + half, rig, (seat * 2 + engine + 1) as u8))
    }
}

fn stranger_seat(kind: Kind) -> usize {
    2 + Kind::ALL.iter().position(|each| *each == kind).unwrap_or(0)
}

fn seat_of(owner: Owner) -> usize {
    match owner {
        Owner::Node(seat) => seat,
        Owner::Stranger(kind) => stranger_seat(kind),
        Owner::Client => 9,
    }
}

const _: () = assert!(MARGIN * 2 < AREA);
