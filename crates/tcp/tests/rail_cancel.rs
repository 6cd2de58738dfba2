//! Calls that end before their work is done, on rail lanes: what the target confirms is exact, the lane serves the next
//! call, and where no confirmation comes the lane is reset. Through a relay, so that a call can be held in the middle.
#![allow(clippy::unwrap_used, missing_docs)]

mod gate;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use moonrail_tcp::{ServerOptions, TcpPath, TcpServer};
use moonrail_transport::testkit::Side;
use moonrail_transport::{Code, Control, Dialect, Entry, Failure, Opcode, Path, Retry, Stop, Target, Work};

use gate::{Gate, OPEN};

const EPOCH: u64 = 42;
const MIB: u64 = 1 << 20;
const COUNT: u64 = 32;
/// Bytes let through before a call stands still.
const HELD: u64 = 3 * MIB;

struct Pair {
    path: TcpPath,
    near: Side,
    far: Side,
    gate: Gate,
    target: Target,
    local: u64,
    remote: u64,
    _server: TcpServer,
}

impl Pair {
    /// A path, and a target behind a gate that leaves these feature bits; [`COUNT`] MiB on each side.
    fn new(features: u32) -> Self {
        let (near, far) = (Side::new(), Side::new());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = ServerOptions { epoch: EPOCH, ..ServerOptions::default() };
        let server = TcpServer::start(listener, Arc::clone(&far.regions), options).unwrap();
        let gate = Gate::new(server.address(), features);
        let target = Target {
            name: "far".to_owned(),
            addresses: vec![gate.address],
            dialect: Dialect::Rail { epoch: EPOCH },
            tls: None,
            generation: 1,
            same_host: None,
        };
        let (local, remote) = (near.buffer(&ones()), far.buffer(&zeroes()));
        let pair = Self { path: TcpPath::new(4), near, far, gate, target, local, remote, _server: server };
        // Opens the lane: only a welcomed one can end a call in order.
        pair.call(Opcode::Read, &[Entry { local: pair.local, remote: pair.remote, len: 1 }], &|| None)
            .unwrap();
        pair.near.set(pair.local, &[1]);
        pair
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |at| Entry { local: self.local + at * MIB, remote: self.remote + at * MIB, len: MIB };
        (0..COUNT).map(entry).collect()
    }

    fn call(
        &self,
        opcode: Opcode,
        entries: &[Entry],
        stop: &(dyn Fn() -> Option<Stop> + Sync),
    ) -> Result<(), Failure> {
        let want = match opcode {
            Opcode::Read => moonrail_memory::Want::Write,
            Opcode::Write => moonrail_memory::Want::Read,
        };
        let ranges = entries.iter().map(|entry| (entry.local, entry.len));
        let holds = self.near.regions.hold_all(ranges, want).unwrap();
        let limit = Duration::from_secs(5);
        let control = Control { deadline: None, connect: limit, progress: limit, stop };
        self.path.execute(&self.target, &Work { opcode, entries, holds: &holds }, &control)
    }

    /// Lets [`HELD`] bytes of the batch through, and stops the call once it stands still; `opened`: the gate is opened then.
    fn stopped(&self, opcode: Opcode, opened: bool) -> Failure {
        let way = if opcode == Opcode::Read { &self.gate.to_initiator } else { &self.gate.to_target };
        way.store(HELD, SeqCst);
        let stop = || {
            if !self.gate.stuck.load(SeqCst) {
                return None;
            }
            if opened {
                way.store(OPEN, SeqCst);
            }
            Some(Stop::Cancelled)
        };
        let failure = self.call(opcode, &self.entries(), &stop).unwrap_err();
        assert_eq!(failure.error.code(), Code::Cancelled, "{failure}");
        failure
    }

    fn there(&self) -> Vec<u8> {
        self.far.get(self.remote, (COUNT * MIB) as usize)
    }

    fn connections(&self) -> usize {
        self.gate.connections.load(SeqCst)
    }

    /// One more call works.
    fn goes_on(&self) {
        let last = Entry { local: self.local, remote: self.remote + (COUNT - 1) * MIB, len: MIB };
        self.call(Opcode::Write, &[last], &|| None).unwrap();
        assert!(self.far.get(last.remote, MIB as usize) == self.near.get(self.local, MIB as usize));
    }
}

fn ones() -> Vec<u8> {
    vec![1; (COUNT * MIB) as usize]
}

fn zeroes() -> Vec<u8> {
    vec![0; (COUNT * MIB) as usize]
}

#[test]
fn a_cancelled_write_says_exactly_what_was_applied_and_keeps_its_lane() {
    // With and without the cancel frame: the answers to what was sent say the same.
    for features in [u32::MAX, 0] {
        let pair = Pair::new(features);
        let failure = pair.stopped(Opcode::Write, true);
        let there = pair.there();
        let applied = failure.error.index().unwrap() * MIB as usize;
        assert!((1..COUNT as usize * MIB as usize).contains(&applied), "{failure}");
        assert!(there[..applied].iter().all(|&byte| byte == 1), "{failure}");
        assert!(there[applied..].iter().all(|&byte| byte == 0), "{failure}");
        assert!(failure.to_string().contains("confirmed"), "{failure}");
        thread::sleep(Duration::from_millis(30));
        assert!(pair.there() == there);
        pair.goes_on();
        assert_eq!(pair.connections(), 1);
    }
}

#[test]
fn a_cancelled_read_is_not_sent_to_its_end_and_keeps_its_lane() {
    for features in [u32::MAX, 0] {
        let pair = Pair::new(features);
        let failure = pair.stopped(Opcode::Read, true);
        let here = pair.near.get(pair.local, (COUNT * MIB) as usize);
        let come = failure.error.index().unwrap() * MIB as usize;
        assert!(here[..come].iter().all(|&byte| byte == 0), "{failure}");
        assert!(here[come..].iter().all(|&byte| byte == 1), "{failure}");
        // What was asked for ahead is 16 MiB; without a cancel frame all of it has to come.
        assert_eq!(come as u64 >= 16 * MIB, features == 0, "{failure}");
        assert_eq!(failure.error.retry(), Retry::Safe, "{failure}");
        thread::sleep(Duration::from_millis(30));
        assert!(pair.near.get(pair.local, (COUNT * MIB) as usize) == here);
        pair.goes_on();
        assert_eq!(pair.connections(), 1);
    }
}

#[test]
fn without_a_confirmation_the_lane_is_reset_and_nothing_more_lands() {
    let pair = Pair::new(u32::MAX);
    let since = Instant::now();
    let failure = pair.stopped(Opcode::Write, false);
    assert!(since.elapsed() < Duration::from_secs(1));
    assert!(!failure.to_string().contains("confirmed"), "{failure}");
    assert_eq!(failure.error.retry(), Retry::Unsafe, "{failure}");
    pair.gate.to_target.store(OPEN, SeqCst);
    thread::sleep(Duration::from_millis(100));
    assert!(pair.there()[HELD as usize..].iter().all(|&byte| byte == 0));
    pair.goes_on();
    assert_eq!(pair.connections(), 2);
}

#[test]
fn a_refusal_in_the_middle_leaves_the_lane_in_step_both_ways() {
    let pair = Pair::new(u32::MAX);
    for opcode in [Opcode::Write, Opcode::Read] {
        let mut entries = pair.entries();
        entries[5].remote = 4096;
        let failure = pair.call(opcode, &entries, &|| None).unwrap_err();
        assert_eq!(failure.error.code(), Code::RemoteRefused, "{failure}");
        assert_eq!(failure.error.index(), Some(5), "{failure}");
        let there = pair.there();
        thread::sleep(Duration::from_millis(30));
        assert!(pair.there() == there);
        pair.goes_on();
    }
    // A read whose refusal came together with other answers cannot stay in step.
    assert!(pair.connections() <= 2);
}
