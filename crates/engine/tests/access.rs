//! Engines with and without a shared key, over real sockets: who gets through, what the others are told, and that the
//! memory of an engine stays as it was. Also regions that may only be read.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use moonrail::{
    Access, Code, Config, Engine, Entry, Error, KeySource, MetadataServer, Notify, Opcode, RegionOptions,
    Request, ServerLimits,
};

const KEY: &str = "the shared key of these tests";
const OTHER: &str = "another key of these tests";
const GUARD: u8 = 0xa5;
const LEN: u64 = 4096;
/// Without a key nothing has to be allowed; it is only asked for then.
const SHM: &str = "shm";
const P2P: &str = "P2PHANDSHAKE";

fn engine_of(name: &str, metadata: &str, key: Option<&str>, allow: &str) -> Engine {
    LazyLock::force(&LOG);
    let mut config = Config::new(name, metadata);
    config.key = key.map(|key| KeySource::text("the test", key));
    // With a key the path is asked for, to see that it is off.
    config.paths.shm = key.is_some() || allow == SHM;
    config.allow = allow.replace(SHM, "").parse().unwrap();
    Engine::start(config).unwrap()
}

fn engine(key: Option<&str>, allow: &str) -> Engine {
    engine_of("127.0.0.1", P2P, key, allow)
}

/// An engine with memory, every byte of it known.
struct Target {
    engine: Engine,
    addr: u64,
}

impl Target {
    fn new(engine: Engine) -> Self {
        Self::with(engine, Access::ReadWrite)
    }

    fn with(engine: Engine, access: Access) -> Self {
        let addr = engine.allocate(LEN).unwrap();
        engine.write_local(addr, &[GUARD; LEN as usize]).unwrap();
        let target = Self { engine, addr };
        if access == Access::ReadOnly {
            target.engine.free(target.addr).unwrap();
            let options = RegionOptions { access, ..RegionOptions::default() };
            return Self { addr: target.engine.allocate_with(LEN, options).unwrap(), ..target };
        }
        target
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN as usize];
        self.engine.read_local(self.addr, &mut bytes).unwrap();
        bytes
    }

    fn untouched(&self) {
        assert!(self.bytes().iter().all(|&byte| byte == GUARD), "memory was written");
        let report = self.engine.report().unwrap();
        assert_eq!((report.served, report.bytes_in, report.bytes_out), (0, 0, 0));
    }

    fn moved_by(&self, initiator: &Engine, opcode: Opcode) -> Result<(), Error> {
        let local = initiator.allocate(LEN).unwrap();
        initiator.write_local(local, &[7; LEN as usize]).unwrap();
        let entry = Entry { local, remote: self.addr, len: LEN };
        let outcome = initiator.transfer(&Request::new(self.engine.name(), opcode, vec![entry]));
        let mut here = vec![0; LEN as usize];
        initiator.read_local(local, &mut here).unwrap();
        let expected = if outcome.is_ok() && opcode == Opcode::Read { GUARD } else { 7 };
        assert!(here.iter().all(|&byte| byte == expected), "local memory");
        outcome
    }

    /// Neither reads nor writes get through, with this code.
    fn bars(&self, initiator: &Engine, code: Code) {
        for opcode in [Opcode::Read, Opcode::Write] {
            let error = self.moved_by(initiator, opcode).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert_eq!(error.peer(), Some(self.engine.name()));
            assert!(!error.to_string().contains(KEY) && !error.to_string().contains(OTHER));
        }
        self.untouched();
    }
}

/// What this process logs, as one text.
static LOG: LazyLock<Arc<Mutex<Vec<u8>>>> = LazyLock::new(|| {
    let log = Arc::new(Mutex::new(Vec::new()));
    let writer = Arc::clone(&log);
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || Pen(Arc::clone(&writer)))
        .init();
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

/// The one warning about this caller.
fn told(caller: SocketAddr) -> String {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    assert!(!log.contains(KEY) && !log.contains(OTHER), "a key in the log");
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("WARN") && line.contains(&format!("{caller} "))).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines[0].to_owned()
}

fn say(at: SocketAddr, bytes: &[u8]) -> (SocketAddr, Vec<u8>) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let caller = stream.local_addr().unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    // A reset is a refusal as well.
    let _ = stream.read_to_end(&mut answer);
    (caller, answer)
}

#[test]
fn members_of_one_key_reach_each_other_and_over_tcp_only() {
    let (target, initiator) = (Target::new(engine(Some(KEY), "")), engine(Some(KEY), ""));
    assert_eq!(target.engine.report().unwrap().paths, ["tcp"]);
    target.moved_by(&initiator, Opcode::Read).unwrap();
    target.moved_by(&initiator, Opcode::Write).unwrap();
    assert!(target.bytes().iter().all(|&byte| byte == 7));
    initiator.notify(target.engine.name(), &Notify { name: "a".into(), message: "b".into() }).unwrap();
    assert_eq!(target.engine.take_notifies().len(), 1);
    let peer = initiator.peer(target.engine.name()).unwrap();
    assert_eq!((peer.dialect, peer.path), ("rail", "tcp"));
    initiator.probe(target.engine.name()).unwrap();
}

#[test]
fn strangers_and_members_of_another_key_are_kept_out() {
    let target = Target::new(engine(Some(KEY), ""));
    target.bars(&engine(None, ""), Code::KeyRequired);
    target.bars(&engine(Some(OTHER), ""), Code::KeyRefused);
    let error = engine(None, "").notify(target.engine.name(), &Notify::default()).unwrap_err();
    assert_eq!(error.code(), Code::NotifyRejected, "{error}");
    assert!(target.engine.take_notifies().is_empty());
    let error = engine(None, "").first_buffer(target.engine.name()).unwrap_err();
    assert_eq!(error.code(), Code::KeyRequired, "{error}");
}

#[test]
fn a_member_trusts_no_stranger_unless_that_is_allowed() {
    let plain = Target::new(engine(None, ""));
    plain.bars(&engine(Some(KEY), ""), Code::PeerUnproven);
    let lenient = engine(Some(KEY), "mooncake");
    assert_eq!(lenient.peer(plain.engine.name()).unwrap().dialect, "mooncake-v2");
    plain.moved_by(&lenient, Opcode::Write).unwrap();
    let open = Target::new(engine(Some(KEY), "mooncake"));
    open.moved_by(&engine(None, ""), Opcode::Read).unwrap();
    open.moved_by(&engine(Some(KEY), ""), Opcode::Write).unwrap();
    open.moved_by(&engine(Some(OTHER), ""), Opcode::Read).unwrap_err();
}

#[test]
fn the_same_host_path_is_off_with_a_key_unless_it_is_allowed() {
    let (target, initiator) = (Target::new(engine(Some(KEY), "same-host")), engine(Some(KEY), "same-host"));
    assert_eq!(target.engine.report().unwrap().paths, ["shm", "tcp"]);
    assert_eq!(initiator.peer(target.engine.name()).unwrap().path, "shm");
    target.moved_by(&initiator, Opcode::Write).unwrap();
    // To one that does not allow it, and by one that does not.
    let strict = Target::new(engine(Some(KEY), ""));
    assert_eq!(initiator.peer(strict.engine.name()).unwrap().path, "tcp");
    assert_eq!(engine(Some(KEY), "").peer(target.engine.name()).unwrap().path, "tcp");
}

#[test]
fn genuine_bytes_on_both_ports_touch_nothing() {
    let target = Target::new(engine(Some(KEY), ""));
    let report = target.engine.report().unwrap();
    for opcode in [0x80_u8, 0x81, 0, 1] {
        let mut request = Vec::from(4_u64.to_le_bytes());
        request.extend(target.addr.to_le_bytes());
        request.extend([opcode, 0, 0, 0, 0, 0, 0, 0]);
        request.extend(b"evil");
        let (caller, answer) = say(report.data, &request);
        assert!(answer.len() <= 8, "nothing was read: {answer:02x?}");
        assert!(told(caller).contains("data port"), "{}", told(caller));
    }
    for (kind, body) in [(1_u8, "{}"), (2, r#"{"name":"n","notify_msg":"m"}"#), (0, "{}")] {
        let mut frame = Vec::from((body.len() as u64 + 1).to_le_bytes());
        frame.push(kind);
        frame.extend(body.bytes());
        let (caller, answer) = say(report.handshake, &frame);
        assert!(!String::from_utf8_lossy(&answer).contains("buffers"));
        assert!(told(caller).contains("handshake port"), "{}", told(caller));
    }
    assert!(target.engine.take_notifies().is_empty());
    let bytes = target.bytes();
    assert!(bytes.iter().all(|&byte| byte == GUARD));
    let report = target.engine.report().unwrap();
    assert_eq!((report.served, report.bytes_in, report.bytes_out), (0, 0, 0));
    assert_eq!(report.refused, 4);
}

/// A metadata server, with keys and values that anybody may change.
struct Directory {
    server: MetadataServer,
    url: String,
}

impl Directory {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = MetadataServer::start(listener, ServerLimits::default()).unwrap();
        let url = server.url("127.0.0.1");
        Self { server, url }
    }

    fn ask(&self, request: &str, body: &str) -> String {
        let text = format!(
            "{request} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(self.server.local_addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Changes what stands there of a segment.
    fn change(&self, name: &str, change: impl Fn(String) -> String) {
        let path = format!("/metadata?key=mooncake%2Fram%2F{name}");
        let before = self.ask(&format!("GET {path}"), "");
        let after = change(before.clone());
        assert_ne!(before, after);
        self.ask(&format!("PUT {path}"), &after);
    }
}

#[test]
fn a_descriptor_that_anybody_may_read_lets_nobody_in() {
    let directory = Directory::new();
    let target = Target::new(engine_of("guarded", &directory.url, Some(KEY), ""));
    target.bars(&engine_of("stranger", &directory.url, None, SHM), Code::KeyRequired);
    target.bars(&engine_of("other", &directory.url, Some(OTHER), ""), Code::KeyRefused);
    target.moved_by(&engine_of("member", &directory.url, Some(KEY), ""), Opcode::Read).unwrap();
}

#[test]
fn a_descriptor_that_was_talked_down_is_not_believed() {
    for down in [
        // The key's feature bit, the rail protocol, all that is Moonrail's.
        |text: String| text.replace(r#""features":7"#, r#""features":5"#),
        |text: String| text.replace(r#""rail":"#, r#""rain":"#),
        |text: String| text.replace(r#""moonrail":"#, r#""moonrain":"#),
    ] {
        let directory = Directory::new();
        let target = Target::new(engine_of("guarded", &directory.url, Some(KEY), ""));
        directory.change("guarded", down);
        target.bars(&engine_of("member", &directory.url, Some(KEY), ""), Code::PeerUnproven);
        // One without a key tries what it is told, in vain.
        let error =
            target.moved_by(&engine_of("stranger", &directory.url, None, ""), Opcode::Write).unwrap_err();
        assert!(matches!(error.code(), Code::KeyRequired | Code::RemoteRefused), "{error}");
        target.untouched();
    }
}

#[test]
fn a_key_file_is_changed_under_running_engines() {
    let folder = tempfile::TempDir::new().unwrap();
    let put = |name: &str, text: &str| {
        let (new, path) = (folder.path().join("new"), folder.path().join(name));
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&new, &path).unwrap();
        path
    };
    let at = |path: &Path| {
        let mut config = Config::new("127.0.0.1", P2P);
        config.key = Some(KeySource::File(path.to_owned()));
        Engine::start(config).unwrap()
    };
    let (theirs, ours) = (put("theirs", KEY), put("ours", KEY));
    let (target, initiator) = (Target::new(at(&theirs)), at(&ours));
    target.moved_by(&initiator, Opcode::Read).unwrap();
    // Both are accepted, then the new one is used, then the old one goes.
    put("theirs", &format!("{KEY}\n{OTHER}\n"));
    put("ours", &format!("{OTHER}\n{KEY}\n"));
    target.moved_by(&initiator, Opcode::Read).unwrap();
    put("theirs", OTHER);
    target.moved_by(&at(&ours), Opcode::Read).unwrap();
    let late = at(&put("late", KEY));
    assert_eq!(target.moved_by(&late, Opcode::Read).unwrap_err().code(), Code::KeyRefused);
    put("late", OTHER);
    target.moved_by(&late, Opcode::Read).unwrap();
}

#[test]
fn a_key_that_cannot_be_used_stops_the_engine_from_starting() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, KEY).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let none = folder.path().join("none");
    for (source, part) in [
        (KeySource::File(path), "mode 0644"),
        (KeySource::File(none), "No such file"),
        (KeySource::text("the test", "brief"), "a key of 5 bytes"),
    ] {
        let mut config = Config::new("127.0.0.1", P2P);
        config.key = Some(source);
        let error = Engine::start(config).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn nothing_an_engine_shows_of_itself_shows_its_key() {
    let mut config = Config::new("127.0.0.1", P2P);
    config.key = Some(KeySource::text("the test", KEY));
    let engine = Engine::start(config.clone()).unwrap();
    let shown = format!("{config:?} {engine:?} {:?} {:?}", engine.config(), engine.report());
    assert!(shown.contains("the test") && !shown.contains(KEY), "{shown}");
}

#[test]
fn read_only_memory_is_not_written_on_any_path() {
    for (key, allow) in [(None, ""), (None, SHM), (Some(KEY), "")] {
        let (target, initiator) = (Target::with(engine(key, allow), Access::ReadOnly), engine(key, allow));
        let local = initiator.allocate(LEN).unwrap();
        initiator.write_local(local, &[7; LEN as usize]).unwrap();
        let entry = Entry { local, remote: target.addr, len: LEN };
        let request = |opcode| Request::new(target.engine.name(), opcode, vec![entry]);
        let error = initiator.transfer(&request(Opcode::Write)).unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied, "{error}");
        assert!(target.bytes().iter().all(|&byte| byte == 0));
        initiator.transfer(&request(Opcode::Read)).unwrap();
        let mut here = vec![1; LEN as usize];
        initiator.read_local(local, &mut here).unwrap();
        assert!(here.iter().all(|&byte| byte == 0));
        // Nor by its owner's own transfers.
        let own = Entry { local: target.addr, remote: local, len: 8 };
        let error =
            target.engine.transfer(&Request::new(initiator.name(), Opcode::Read, vec![own])).unwrap_err();
        assert_eq!(error.code(), Code::LocalNotRegistered, "{error}");
    }
}

#[test]
fn a_key_that_is_taken_out_ends_the_lanes_that_were_opened_with_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str, keys: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, keys).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    };
    let with = |path| {
        let mut config = Config::new("127.0.0.1", P2P);
        config.key = Some(KeySource::File(path));
        Engine::start(config).unwrap()
    };
    let target = Target::new(with(file("target", &format!("{OTHER}\n{KEY}\n"))));
    let (follows, stays) = (with(file("follows", KEY)), with(file("stays", KEY)));
    for initiator in [&follows, &stays] {
        target.moved_by(initiator, Opcode::Read).unwrap();
    }

    file("follows", OTHER);
    file("target", OTHER);
    std::thread::sleep(Duration::from_millis(1100));
    for _ in 0..3 {
        target.moved_by(&follows, Opcode::Read).unwrap();
        for opcode in [Opcode::Write, Opcode::Read] {
            let error = target.moved_by(&stays, opcode).unwrap_err();
            assert_eq!(error.code(), Code::KeyRefused, "{error}");
        }
    }
    assert!(target.bytes().iter().all(|&byte| byte == GUARD), "memory was written");
    target.engine.write_local(target.addr, &[7; LEN as usize]).unwrap();
    target.moved_by(&follows, Opcode::Write).unwrap();
}
