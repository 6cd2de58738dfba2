//! Two engines in one process over loopback: the whole way of a request, with the bytes checked. Every test runs on
//! each path; the file that includes this one says which.

use std::time::{Duration, Instant};

use moonrail::{Code, Config, Engine, Entry, MemoryRange, Notify, Opcode, RegionOptions, Request};
use moonrail_transport::testkit::Side;

/// Memory of the test's own, registered with an engine by the test.
struct Pool {
    range: MemoryRange,
    _keep: Side,
}

impl Pool {
    fn new(len: usize, fill: impl Fn(usize) -> u8) -> Self {
        let side = Side::new();
        let range = side.range(len as u64);
        let mut bytes = vec![0; len];
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = fill(at));
        Side::poke(range, &bytes);
        Self { range, _keep: side }
    }

    fn addr(&self) -> u64 {
        self.range.addr()
    }

    fn register(&self, engine: &Engine) {
        engine.register(self.range, RegionOptions::default()).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        Side::peek(self.range)
    }
}

fn engine() -> Engine {
    engine_at("127.0.0.1")
}

fn engine_at(host: &str) -> Engine {
    Engine::start(config(host)).unwrap()
}

fn config(host: &str) -> Config {
    let mut config = Config::new(host, "P2PHANDSHAKE");
    config.paths.shm = super::SHM;
    config
}

fn pair(len: usize) -> (Pool, Pool, Engine, Engine) {
    let (ours, theirs) = (Pool::new(len, |at| (at * 31 % 251) as u8), Pool::new(len, |_| 0));
    let (initiator, target) = (engine(), engine());
    ours.register(&initiator);
    theirs.register(&target);
    (ours, theirs, initiator, target)
}

fn write(engine: &Engine, peer: &Engine, entries: Vec<Entry>) -> Result<(), moonrail::Error> {
    engine.transfer(&Request::new(peer.name(), Opcode::Write, entries))
}

#[test]
fn a_write_and_a_read_move_the_bytes() {
    let len = 3 << 20;
    let (ours, theirs, initiator, target) = pair(len);
    let entry = Entry { local: ours.addr(), remote: theirs.addr(), len: len as u64 };
    write(&initiator, &target, vec![entry]).unwrap();
    assert!(theirs.bytes() == ours.bytes());
    let back = Pool::new(len, |_| 7);
    back.register(&initiator);
    let entry = Entry { local: back.addr(), remote: theirs.addr(), len: len as u64 };
    initiator.transfer(&Request::new(target.name(), Opcode::Read, vec![entry])).unwrap();
    assert!(back.bytes() == ours.bytes());
}

#[test]
fn a_batch_of_mixed_sizes_is_applied_in_both_directions() {
    let sizes = [0u64, 1, 64, 4096, 65_535, 65_536, 65_537, 300_000];
    let count = 800;
    let len: u64 = (0..count).map(|at| sizes[at % sizes.len()]).sum();
    let (ours, theirs, initiator, target) = pair(len as usize);
    // The far side holds the pieces in reverse order.
    let mut entries = Vec::new();
    let (mut near, mut far) = (0, len);
    for at in 0..count {
        let size = sizes[at % sizes.len()];
        far -= size;
        entries.push(Entry { local: ours.addr() + near, remote: theirs.addr() + far, len: size });
        near += size;
    }
    write(&initiator, &target, entries.clone()).unwrap();
    let (here, there) = (ours.bytes(), theirs.bytes());
    for entry in &entries {
        let at = (entry.local - ours.addr()) as usize..(entry.local - ours.addr() + entry.len) as usize;
        let to = (entry.remote - theirs.addr()) as usize..(entry.remote - theirs.addr() + entry.len) as usize;
        assert!(here[at] == there[to]);
    }
    let back = Pool::new(len as usize, |_| 9);
    back.register(&initiator);
    let moved: Vec<_> = entries
        .iter()
        .map(|entry| Entry { local: entry.local - ours.addr() + back.addr(), ..*entry })
        .collect();
    initiator.transfer(&Request::new(target.name(), Opcode::Read, moved)).unwrap();
    assert!(back.bytes() == here);
}

#[test]
fn a_hundred_thousand_small_descriptors_in_one_call() {
    let (count, size) = (100_000u64, 256u64);
    let (ours, theirs, initiator, target) = pair((count * size) as usize);
    let entries = (0..count)
        .map(|at| Entry {
            local: ours.addr() + at * size,
            remote: theirs.addr() + (at * 7919 % count) * size,
            len: size,
        })
        .collect();
    write(&initiator, &target, entries).unwrap();
    let (here, there) = (ours.bytes(), theirs.bytes());
    for at in 0..count {
        let (from, to) = ((at * size) as usize, ((at * 7919 % count) * size) as usize);
        assert!(here[from..from + size as usize] == there[to..to + size as usize]);
    }
}

#[test]
fn ranges_outside_the_peers_buffers_are_refused_with_their_index_and_disturb_nothing() {
    let (ours, theirs, initiator, target) = pair(1 << 16);
    let good = Entry { local: ours.addr(), remote: theirs.addr(), len: 4096 };
    let bad = Entry { remote: theirs.addr() + (1 << 16) - 100, ..good };
    let error = write(&initiator, &target, vec![good, bad]).unwrap_err();
    assert_eq!((error.code(), error.index()), (Code::RemoteNotRegistered, Some(1)));
    assert!(theirs.bytes().iter().all(|&byte| byte == 0), "nothing of a refused batch is applied");
    for _ in 0..3 {
        let since = Instant::now();
        write(&initiator, &target, vec![good]).unwrap();
        assert!(since.elapsed() < Duration::from_millis(50));
    }
}

#[test]
fn memory_unregistered_since_is_refused_by_the_target_itself() {
    let (ours, theirs, initiator, target) = pair(1 << 16);
    let entry = Entry { local: ours.addr(), remote: theirs.addr(), len: 4096 };
    write(&initiator, &target, vec![entry]).unwrap();
    target.unregister(theirs.addr()).unwrap();
    let error = write(&initiator, &target, vec![entry]).unwrap_err();
    assert_eq!(error.code(), Code::RemoteNotRegistered, "{error}");
    // Registered anew, it is usable at once.
    theirs.register(&target);
    write(&initiator, &target, vec![entry]).unwrap();
}

#[test]
fn a_local_range_must_be_registered() {
    let (_ours, theirs, initiator, target) = pair(1 << 16);
    let stray = Pool::new(4096, |_| 1);
    let error =
        write(&initiator, &target, vec![Entry { local: stray.addr(), remote: theirs.addr(), len: 16 }])
            .unwrap_err();
    assert_eq!(error.code(), Code::LocalNotRegistered);
    assert!(theirs.bytes().iter().all(|&byte| byte == 0));
}

#[test]
fn nobody_at_the_port_is_an_error_within_100_ms() {
    let ours = Pool::new(4096, |_| 1);
    let initiator = engine();
    ours.register(&initiator);
    let since = Instant::now();
    let entry = Entry { local: ours.addr(), remote: 1 << 20, len: 16 };
    let error = initiator.transfer(&Request::new("127.0.0.1:1", Opcode::Write, vec![entry])).unwrap_err();
    assert_eq!(error.code(), Code::PeerUnreachable, "{error}");
    assert!(since.elapsed() < Duration::from_millis(100));
}

#[test]
fn a_peer_that_comes_back_at_the_same_port_works_on_the_first_call() {
    let (ours, theirs, initiator, target) = pair(1 << 16);
    let entry = Entry { local: ours.addr(), remote: theirs.addr(), len: 4096 };
    write(&initiator, &target, vec![entry]).unwrap();
    let name = target.name().to_owned();
    drop(target);
    let error = initiator.transfer(&Request::new(&name, Opcode::Write, vec![entry])).unwrap_err();
    assert_eq!(error.code(), Code::PeerUnreachable, "{error}");
    let again = engine_at(&name);
    assert_eq!(again.name(), name);
    let fresh = Pool::new(1 << 16, |_| 0);
    fresh.register(&again);
    let old = initiator.transfer(&Request::new(&name, Opcode::Write, vec![entry])).unwrap_err();
    assert_eq!(old.code(), Code::RemoteNotRegistered, "{old}");
    write(&initiator, &again, vec![Entry { remote: fresh.addr(), ..entry }]).unwrap();
    assert!(fresh.bytes()[..4096] == ours.bytes()[..4096]);
}

#[test]
fn background_batches_complete_and_tell() {
    let (ours, theirs, initiator, target) = pair(1 << 20);
    let entry = Entry { local: ours.addr(), remote: theirs.addr(), len: 1 << 20 };
    let completion = initiator.submit(Request::new(target.name(), Opcode::Write, vec![entry])).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    completion.on_done(Box::new(move |outcome| tell.send(outcome.is_ok()).unwrap()));
    assert!(completion.wait(Some(Duration::from_secs(10))).unwrap().is_ok());
    assert!(told.recv_timeout(Duration::from_secs(5)).unwrap());
    assert!(completion.poll().unwrap().is_ok(), "the outcome stays");
    assert!(theirs.bytes() == ours.bytes());
}

#[test]
fn a_background_batch_to_a_mute_peer_can_be_cancelled() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = Pool::new(4096, |_| 1);
    let initiator = engine();
    ours.register(&initiator);
    let peer = mute.local_addr().unwrap().to_string();
    let entry = Entry { local: ours.addr(), remote: 1 << 20, len: 16 };
    let completion = initiator.submit(Request::new(peer, Opcode::Write, vec![entry])).unwrap();
    assert!(completion.wait(Some(Duration::from_millis(100))).is_none());
    let since = Instant::now();
    completion.cancel();
    let error = completion.wait(Some(Duration::from_secs(2))).unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Cancelled);
    assert!(since.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_call_keeps_its_own_deadline() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = Pool::new(4096, |_| 1);
    let initiator = engine();
    ours.register(&initiator);
    let entry = Entry { local: ours.addr(), remote: 1 << 20, len: 16 };
    let mut request = Request::new(mute.local_addr().unwrap().to_string(), Opcode::Read, vec![entry]);
    request.timeout = Some(Duration::from_millis(300));
    let since = Instant::now();
    let error = initiator.transfer(&request).unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!((Duration::from_millis(290)..Duration::from_millis(900)).contains(&since.elapsed()));
}

#[test]
fn notifications_arrive_in_order_after_the_bytes() {
    let (ours, theirs, initiator, target) = pair(1 << 16);
    let mut request = Request::new(
        target.name(),
        Opcode::Write,
        vec![Entry { local: ours.addr(), remote: theirs.addr(), len: 1 << 16 }],
    );
    for number in 0..3 {
        request.notify =
            Some(Notify { name: initiator.name().to_owned(), message: format!("done {number}") });
        initiator.transfer(&request).unwrap();
    }
    let messages: Vec<_> = target.take_notifies().into_iter().map(|notify| notify.message).collect();
    assert_eq!(messages, ["done 0", "done 1", "done 2"]);
    assert!(target.take_notifies().is_empty());
}

#[test]
fn the_first_buffer_is_the_first_registered_one() {
    let target = engine();
    let first = target.allocate(1 << 20).unwrap();
    let second = target.allocate(1 << 12).unwrap();
    let initiator = engine();
    assert_eq!(initiator.first_buffer(target.name()).unwrap(), first);
    target.free(first).unwrap();
    assert_eq!(initiator.first_buffer(target.name()).unwrap(), second);
}

#[test]
fn ipv6_works_without_a_switch() {
    for host in ["::1", "[::1]"] {
        let (ours, theirs) = (Pool::new(4096, |at| at as u8), Pool::new(4096, |_| 0));
        let (initiator, target) = (engine_at(host), engine_at(host));
        ours.register(&initiator);
        theirs.register(&target);
        assert!(target.name().starts_with("[::1]:"), "{}", target.name());
        write(&initiator, &target, vec![Entry { local: ours.addr(), remote: theirs.addr(), len: 4096 }])
            .unwrap();
        assert!(theirs.bytes() == ours.bytes());
    }
}

#[test]
fn a_port_in_the_name_is_served_or_refused() {
    let first = engine();
    let error = Engine::start(config(first.name())).unwrap_err();
    assert_eq!(error.code(), Code::ListenFailed, "{error}");
    assert!(error.to_string().contains("taken"), "{error}");
}

#[test]
fn many_threads_share_the_lanes_of_one_peer() {
    let (threads, size) = (32usize, 64usize << 10);
    let (ours, theirs, initiator, target) = pair(threads * size);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (initiator, target) = (&initiator, &target);
            let at = (thread * size) as u64;
            let entry = Entry { local: ours.addr() + at, remote: theirs.addr() + at, len: size as u64 };
            scope.spawn(move || (0..20).for_each(|_| write(initiator, target, vec![entry]).unwrap()));
        }
    });
    assert!(theirs.bytes() == ours.bytes());
}

#[test]
fn the_protocol_argument_decides() {
    let start = |protocol: &str, strict| {
        let mut config = config("127.0.0.1");
        config.protocol = protocol.to_owned();
        config.strict = strict;
        Engine::start(config)
            .map(|engine| engine.report().unwrap().fallbacks.len())
            .map_err(|error| error.code())
    };
    assert_eq!(start("tcp", false), Ok(0));
    assert_eq!(start("rdma", false), Ok(1));
    assert_eq!(start("rdma", true), Err(Code::UnknownProtocol));
    assert_eq!(start("foo", false), Err(Code::UnknownProtocol));
}

#[test]
fn a_closed_engine_says_so() {
    let engine = engine();
    engine.shutdown();
    assert_eq!(engine.unregister(4096).unwrap_err().code(), Code::NotInitialized);
    engine.shutdown();
}

#[test]
fn any_call_can_be_interrupted() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = mute.local_addr().unwrap().to_string();
    let (engine, since) = (engine(), Instant::now());
    let late = || since.elapsed() > Duration::from_millis(200);
    let error = engine.interruptible(&late, move |engine| engine.probe(&peer)).unwrap_err();
    assert_eq!(error.code(), Code::Interrupted);
    assert!(since.elapsed() < Duration::from_millis(700));
    let other = self::engine();
    let name = other.name().to_owned();
    engine.interruptible(&|| false, move |engine| engine.probe(&name)).unwrap();
}

#[test]
fn the_path_is_the_one_asked_for() {
    let (ours, theirs, initiator, target) = pair(4096);
    write(&initiator, &target, vec![Entry { local: ours.addr(), remote: theirs.addr(), len: 4096 }]).unwrap();
    let peer = initiator.peer(target.name()).unwrap();
    assert_eq!(peer.path, if super::SHM { "shm" } else { "tcp" }, "{:?}", peer.why_not_shm);
    assert_eq!(peer.dialect, "rail");
    let served = target.report().unwrap().bytes_in;
    assert_eq!(served, if super::SHM { 0 } else { 4096 });
}

#[test]
fn many_small_pieces_go_over_tcp_also_on_one_host() {
    let (ours, theirs, initiator, target) = pair(1 << 20);
    let piece = |at: u64| Entry { local: ours.addr() + at * 256, remote: theirs.addr() + at * 256, len: 256 };
    write(&initiator, &target, (0..4096).map(piece).collect()).unwrap();
    assert!(theirs.bytes() == ours.bytes());
    assert_eq!(target.report().unwrap().bytes_in, 1 << 20);
}
