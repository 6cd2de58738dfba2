//! The data port with a shared key: strangers, wrong keys, recorded, reflected and changed bytes. After each, nothing was
//! read, no byte of the guarded memory changed, and one line of the log names the caller.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use moonrail_access::{AccessControl, Allow, Initiator, KeySource, Step, nonce};
use moonrail_memory::Want;
use moonrail_tcp::{ServerOptions, TcpPath, TcpServer};
use moonrail_transport::testkit::Side;
use moonrail_transport::{Code, Control, Dialect, Entry, Failure, Opcode, Path, Target, Work};
use moonrail_wire::auth::{FEATURE_KEY, Port};
use moonrail_wire::data::{DataVersion, Op, RequestHeader, STATUS_REJECTED, decode_status};
use moonrail_wire::rail::{Hello, Range, Request, RequestKind, VERSION, Welcome, WelcomeStatus};

const KEY: &str = "the shared key of these tests";
const EPOCH: u64 = 42;
const LEN: usize = 8192;
const GUARD: u8 = 0xa5;

fn control(key: &str, allow: &str) -> Option<Arc<AccessControl>> {
    let allow: Allow = allow.parse().unwrap();
    Some(Arc::new(AccessControl::open(KeySource::text("the test", key), allow).unwrap()))
}

struct Server {
    side: Side,
    server: TcpServer,
    addr: u64,
}

impl Server {
    fn new(access: Option<Arc<AccessControl>>) -> Self {
        LazyLock::force(&LOG);
        let side = Side::new();
        let addr = side.buffer(&[GUARD; LEN]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = ServerOptions { epoch: EPOCH, access, ..ServerOptions::default() };
        let server = TcpServer::start(listener, Arc::clone(&side.regions), options).unwrap();
        Self { side, server, addr }
    }

    fn connect(&self) -> (TcpStream, SocketAddr) {
        let stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let caller = stream.local_addr().unwrap();
        (stream, caller)
    }

    /// Sends raw bytes; what came back until the server closed.
    fn say(&self, bytes: &[u8]) -> (SocketAddr, Vec<u8>) {
        let (mut stream, caller) = self.connect();
        let _ = stream.write_all(bytes);
        (caller, drain(&mut stream))
    }

    fn write_frame(&self) -> Vec<u8> {
        let first = Range { addr: self.addr, len: 4 };
        let head = Request { kind: RequestKind::Write, count: 1, id: 1, payload: 4, epoch: EPOCH, first };
        [&head.encode()[..], b"evil"].concat()
    }

    fn untouched(&self) {
        assert!(self.side.get(self.addr, LEN).iter().all(|&byte| byte == GUARD), "memory was written");
        let counters = self.server.counters();
        assert_eq!(counters.bytes_in.load(Ordering::Relaxed), 0);
        assert_eq!(counters.bytes_out.load(Ordering::Relaxed), 0);
    }

    /// One write of four bytes by an engine with this access control, to the server or to whoever stands before it.
    fn write_by(
        &self,
        access: Option<Arc<AccessControl>>,
        at: SocketAddr,
        dialect: Dialect,
    ) -> Result<(), Failure> {
        let near = Side::new();
        let local = near.buffer(b"good");
        let entries = [Entry { local, remote: self.addr, len: 4 }];
        let holds = near.regions.hold_all([(local, 4)], Want::Read).unwrap();
        let target = Target {
            name: "far".to_owned(),
            addresses: vec![at],
            dialect,
            tls: None,
            generation: 1,
            same_host: None,
        };
        let second = Duration::from_secs(2);
        let control = Control { deadline: None, connect: second, progress: second, stop: &|| None };
        let work = Work { opcode: Opcode::Write, entries: &entries, holds: &holds };
        TcpPath::new(1).guarded(access).execute(&target, &work, &control)
    }

    fn rail_write(&self, access: Option<Arc<AccessControl>>) -> Result<(), Failure> {
        self.write_by(access, self.server.address(), RAIL)
    }
}

const RAIL: Dialect = Dialect::Rail { epoch: EPOCH };

fn drain(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return all,
            Err(error) => panic!("the server neither answered nor closed: {error}"),
        }
    }
}

/// What all servers of this process log, as one text.
static LOG: LazyLock<Arc<Mutex<Vec<u8>>>> = LazyLock::new(|| {
    let log = Arc::new(Mutex::new(Vec::new()));
    let writer = Arc::clone(&log);
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || Pen(Arc::clone(&writer))).init();
    log
});

struct Pen(Arc<Mutex<Vec<u8>>>);

impl Write for Pen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The one line about this caller.
fn told(caller: SocketAddr) -> String {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    assert!(!log.contains(KEY), "a key in the log");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&format!("{caller} "))).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines[0].to_owned()
}

#[test]
fn members_write_and_others_do_not() {
    let server = Server::new(control(KEY, ""));
    let failure = server.rail_write(control("another key of these tests", "")).unwrap_err();
    assert_eq!(failure.error.code(), Code::KeyRefused, "{failure}");
    assert!(failure.untouched && !failure.stale);
    let failure = server.rail_write(None).unwrap_err();
    assert_eq!(failure.error.code(), Code::KeyRequired, "{failure}");
    assert!(failure.untouched && failure.to_string().contains("MOONRAIL_KEY_FILE"), "{failure}");
    for dialect in [Dialect::MooncakeV2, Dialect::MooncakeV1] {
        let failure = server.write_by(None, server.server.address(), dialect).unwrap_err();
        assert!(failure.to_string().contains("far"), "{failure}");
    }
    server.untouched();
    server.rail_write(control(KEY, "")).unwrap();
    assert_eq!(server.side.get(server.addr, 4), b"good");
}

#[test]
fn a_member_speaks_to_nobody_without_the_key() {
    let plain = Server::new(None);
    let failure = plain.rail_write(control(KEY, "")).unwrap_err();
    assert_eq!(failure.error.code(), Code::PeerUnproven, "{failure}");
    for dialect in [Dialect::MooncakeV2, Dialect::MooncakeV1] {
        let failure = plain.write_by(control(KEY, ""), plain.server.address(), dialect).unwrap_err();
        assert_eq!(failure.error.code(), Code::PeerUnproven, "{failure}");
    }
    plain.untouched();
    plain.write_by(control(KEY, "mooncake"), plain.server.address(), Dialect::MooncakeV2).unwrap();
}

#[test]
fn mooncakes_protocol_touches_nothing() {
    let server = Server::new(control(KEY, ""));
    for version in [DataVersion::V2, DataVersion::V1] {
        for op in [Op::Write, Op::Read] {
            let header = RequestHeader { size: 4, addr: server.addr, op, version }.encode();
            let (caller, answer) = server.say(&[&header[..], b"evil"].concat());
            match version {
                DataVersion::V2 => {
                    assert_eq!(decode_status(&answer[..].try_into().unwrap()).unwrap(), STATUS_REJECTED);
                }
                DataVersion::V1 => assert_eq!(answer, b""),
            }
            assert!(told(caller).contains("Mooncake's protocol"), "{}", told(caller));
        }
    }
    server.untouched();
    let mixed = Server::new(control(KEY, "mooncake"));
    mixed.write_by(None, mixed.server.address(), Dialect::MooncakeV2).unwrap();
    mixed.write_by(None, mixed.server.address(), RAIL).unwrap();
    mixed.rail_write(control(KEY, "")).unwrap();
    assert_eq!(
        mixed.rail_write(control("another key of these tests", "")).unwrap_err().error.code(),
        Code::KeyRefused
    );
}

#[test]
fn frames_behind_a_hello_are_not_looked_at_before_the_proof() {
    let server = Server::new(control(KEY, ""));
    let plain = Hello { version: VERSION, features: 0, target_epoch: EPOCH };
    let asked = Hello { features: FEATURE_KEY, ..plain };
    let keys = control(KEY, "").unwrap().keys();
    let honest = Initiator::new(Port::Data, &keys, EPOCH, 0, nonce().unwrap());
    for (hello, status, why) in [
        (plain.encode(), WelcomeStatus::KeyRequired, "a shared key is required"),
        (asked.encode(), WelcomeStatus::NotAdmitted, "none of the keys"),
        // The right key's id, and a frame where the proof belongs.
        (*honest.hello(), WelcomeStatus::Prove, "did not prove its key"),
    ] {
        let (caller, answer) = server.say(&[&hello[..], &server.write_frame()].concat());
        let welcome = Welcome::decode(answer[..32].try_into().unwrap()).unwrap();
        assert_eq!(welcome.status, status);
        assert!(told(caller).contains(why), "{}", told(caller));
        server.untouched();
    }
    // A hello to the other port is Mooncake's protocol here, and a nonsensical one.
    let (caller, _) = server.say(Initiator::new(Port::Handshake, &keys, 0, 0, nonce().unwrap()).hello());
    told(caller);
    server.untouched();
}

/// Stands between an initiator and a server, and keeps what either said.
fn between(
    server: SocketAddr,
    change: impl Fn(bool, &mut Vec<u8>) + Send + Sync + 'static,
) -> (SocketAddr, Arc<Mutex<[Vec<u8>; 2]>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let record = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
    let (kept, change) = (Arc::clone(&record), Arc::new(change));
    thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(server).unwrap());
            for (outward, mut from, mut to) in [
                (true, near.try_clone().unwrap(), far.try_clone().unwrap()),
                (false, far.try_clone().unwrap(), near.try_clone().unwrap()),
            ] {
                let (kept, change) = (Arc::clone(&kept), Arc::clone(&change));
                thread::spawn(move || {
                    let mut chunk = [0; 65_536];
                    while let Ok(count @ 1..) = from.read(&mut chunk) {
                        let mut bytes = chunk[..count].to_vec();
                        change(outward, &mut bytes);
                        kept.lock().unwrap()[usize::from(!outward)].extend_from_slice(&bytes);
                        if to.write_all(&bytes).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (at, record)
}

#[test]
fn a_recorded_lane_cannot_be_played_again() {
    let server = Server::new(control(KEY, ""));
    let (way, record) = between(server.server.address(), |_, _| {});
    server.write_by(control(KEY, ""), way, RAIL).unwrap();
    server.side.set(server.addr, &[GUARD; 4]);
    let stored = server.server.counters().bytes_in.load(Ordering::Relaxed);
    let [said, answered] = record.lock().unwrap().clone();
    assert!(said.windows(4).any(|four| four == b"good"));
    let (caller, _) = server.say(&said);
    assert!(told(caller).contains("did not prove its key"), "{}", told(caller));
    assert_eq!(server.side.get(server.addr, 4), [GUARD; 4]);
    assert_eq!(server.server.counters().bytes_in.load(Ordering::Relaxed), stored);
    // Nor does what the target said open a lane of an initiator, or get it to send its payload.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let leaked = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&leaked);
    let parrot = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&answered).unwrap();
        seen.store(drain(&mut stream).windows(4).any(|four| four == b"good"), Ordering::Relaxed);
    });
    let failure = server.write_by(control(KEY, ""), at, RAIL).unwrap_err();
    assert_eq!(failure.error.code(), Code::PeerUnproven, "{failure}");
    parrot.join().unwrap();
    assert!(!leaked.load(Ordering::Relaxed), "payload went to an impostor");
}

#[test]
fn a_mirror_is_no_peer() {
    let server = Server::new(control(KEY, ""));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mirror = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // First a challenge of its own, then the initiator's own proof.
        let mut hello = [0; 64];
        stream.read_exact(&mut hello).unwrap();
        let welcome = |status| {
            Welcome { version: VERSION, status, features: FEATURE_KEY, epoch: EPOCH, max_payload: 1 << 20 }
                .encode()
        };
        stream.write_all(&welcome(WelcomeStatus::Prove)).unwrap();
        stream.write_all(&hello[24..56]).unwrap();
        let mut proof = [0; 32];
        stream.read_exact(&mut proof).unwrap();
        stream.write_all(&welcome(WelcomeStatus::Open)).unwrap();
        stream.write_all(&proof).unwrap();
        drain(&mut stream)
    });
    let failure = server.write_by(control(KEY, ""), at, RAIL).unwrap_err();
    assert_eq!(failure.error.code(), Code::PeerUnproven, "{failure}");
    assert_eq!(mirror.join().unwrap(), b"", "and it was sent nothing more");
}

#[test]
fn a_lane_is_not_talked_down_on_its_way() {
    let server = Server::new(control(KEY, ""));
    // The hello's feature bit taken away: the server asks for the key, and the initiator will not do without.
    let (way, _) = between(server.server.address(), |outward, bytes| {
        if outward && bytes.starts_with(b"MRAIL") {
            bytes[12] = 0;
        }
    });
    let failure = server.write_by(control(KEY, ""), way, RAIL).unwrap_err();
    assert_eq!(failure.error.code(), Code::PeerUnproven, "{failure}");
    // The challenge turned into a plain welcome.
    let (way, _) = between(server.server.address(), |outward, bytes| {
        if !outward && bytes.starts_with(b"MRAIL") {
            bytes[10] = 0;
        }
    });
    let failure = server.write_by(control(KEY, ""), way, RAIL).unwrap_err();
    assert_eq!(failure.error.code(), Code::PeerUnproven, "{failure}");
    // A limit of the challenge changed: the proof no longer fits.
    let (way, _) = between(server.server.address(), |outward, bytes| {
        if !outward && bytes.starts_with(b"MRAIL") {
            bytes[24] ^= 1;
        }
    });
    let failure = server.write_by(control(KEY, ""), way, RAIL).unwrap_err();
    assert_eq!(failure.error.code(), Code::KeyRefused, "{failure}");
    server.untouched();
}

#[test]
fn a_lane_is_proven_to_the_run_that_is_meant() {
    let server = Server::new(control(KEY, ""));
    let dialect = Dialect::Rail { epoch: EPOCH + 1 };
    let failure = server.write_by(control(KEY, ""), server.server.address(), dialect).unwrap_err();
    assert_eq!(failure.error.code(), Code::PeerGone, "{failure}");
    assert!(failure.untouched && failure.stale);
    server.untouched();
}

#[test]
fn who_does_not_finish_the_proof_is_dropped_and_delays_nobody() {
    let side = Side::new();
    let addr = side.buffer(&[GUARD; 16]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ServerOptions {
        epoch: EPOCH,
        access: control(KEY, ""),
        stall: Duration::from_millis(200),
        ..ServerOptions::default()
    };
    let server = TcpServer::start(listener, Arc::clone(&side.regions), options).unwrap();
    let keys = control(KEY, "").unwrap().keys();
    let mut initiator = Initiator::new(Port::Data, &keys, EPOCH, 0, nonce().unwrap());
    let hello = *initiator.hello();
    let waiting: Vec<TcpStream> = [0, 5, 24, 63, 64]
        .into_iter()
        .map(|bytes| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.write_all(&hello[..bytes]).unwrap();
            stream
        })
        .collect();
    // Meanwhile an honest one gets through, byte by byte.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for byte in &hello {
        stream.write_all(&[*byte]).unwrap();
    }
    loop {
        let mut block = [0; 32];
        stream.read_exact(&mut block).unwrap();
        match initiator.take(&block).unwrap() {
            Step::Receive => {}
            Step::Send(proof) => stream.write_all(&proof).unwrap(),
            Step::Done(admitted) => {
                assert_eq!(admitted.welcome.status, WelcomeStatus::Open);
                break;
            }
        }
    }
    for mut stream in waiting {
        drain(&mut stream);
    }
    assert_eq!(side.get(addr, 16), [GUARD; 16]);
}
