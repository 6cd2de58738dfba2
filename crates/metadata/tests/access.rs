//! The handshake port with a shared key: who is admitted, and what strangers, wrong keys, recorded and changed bytes come to.
//! After each refusal the handler was not asked, and one line of the log names the caller.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use common::*;
use moonrail_access::{AccessControl, Allow, Denied, KeySource};
use moonrail_metadata::{HandshakeClient, HandshakeServer, Limits, MetadataErrorKind};
use moonrail_wire::address::HostPort;
use moonrail_wire::handshake::Notify;

const KEY: &str = "the shared key of these tests";

fn control(key: &str, allow: &str) -> Arc<AccessControl> {
    let allow: Allow = allow.parse().unwrap();
    Arc::new(AccessControl::open(KeySource::text("the test", key), allow).unwrap())
}

struct Guarded {
    _server: HandshakeServer,
    recorder: Arc<Recorder>,
    address: HostPort,
    at: SocketAddr,
}

fn guarded(access: Option<Arc<AccessControl>>) -> Guarded {
    LazyLock::force(&LOG);
    let listener = TcpListener::bind((V4, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let address = HostPort::new(V4.to_string(), at.port());
    let recorder = Arc::new(Recorder::default());
    *recorder.descriptor.lock().unwrap() = Some(descriptor(&address.to_string(), 16792).to_json().into());
    let server = HandshakeServer::guarded(listener, recorder.clone(), Limits::default(), access).unwrap();
    Guarded { _server: server, recorder, address, at }
}

impl Guarded {
    fn with_key(allow: &str) -> Self {
        guarded(Some(control(KEY, allow)))
    }

    /// Nobody's request has come through.
    fn untouched(&self) {
        assert!(self.recorder.callers.lock().unwrap().is_empty());
        assert!(self.recorder.notes.lock().unwrap().is_empty());
    }
}

fn with(key: &str, allow: &str) -> HandshakeClient {
    HandshakeClient { access: Some(control(key, allow)), ..client(2000) }
}

fn note() -> Notify {
    Notify { name: "n".to_owned(), message: "m".to_owned() }
}

/// What all servers of this process log, as one text.
static LOG: LazyLock<Arc<Mutex<Vec<u8>>>> = LazyLock::new(|| {
    let log = Arc::new(Mutex::new(Vec::new()));
    let writer = Arc::clone(&log);
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || Pen(Arc::clone(&writer)))
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
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

fn lines_with(part: &str) -> Vec<String> {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    assert!(!log.contains(KEY), "a key in the log");
    log.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

/// The one line about this caller.
fn told(caller: SocketAddr) -> String {
    let lines = lines_with(&format!("refused {caller} on the handshake port"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines[0].clone()
}

/// A caller of a raw connection, and what it got.
fn say(at: SocketAddr, bytes: &[u8]) -> (SocketAddr, Vec<u8>) {
    let mut stream = connect(at);
    let caller = stream.local_addr().unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    (caller, drain(&mut stream))
}

#[test]
fn members_exchange_descriptors_and_notes() {
    within(20, || {
        let server = Guarded::with_key("");
        let own = descriptor("127.0.0.1:1", 1);
        for key in [KEY, " the shared key of these tests\n"] {
            let found = with(key, "").exchange_metadata(&server.address, &own).unwrap();
            assert_eq!(found.name, server.address.to_string());
        }
        with(KEY, "").notify(&server.address, &note()).unwrap();
        assert_eq!(server.recorder.notes.lock().unwrap().len(), 1);
        assert!(!with(KEY, "").probe(&server.address, &own).unwrap().legacy);
    });
}

#[test]
fn callers_without_the_key_are_turned_away() {
    within(20, || {
        let server = Guarded::with_key("");
        let own = descriptor("127.0.0.1:1", 1);
        let error = client(2000).exchange_metadata(&server.address, &own).unwrap_err();
        assert_eq!(error.kind, MetadataErrorKind::Denied(Denied::KeyRequired), "{error}");
        assert!(error.message.contains("MOONRAIL_KEY_FILE"), "{error}");
        let error = client(2000).notify(&server.address, &note()).unwrap_err();
        assert_eq!(error.kind, MetadataErrorKind::Rejected, "{error}");
        let error =
            with("another key of these tests", "").exchange_metadata(&server.address, &own).unwrap_err();
        assert_eq!(error.kind, MetadataErrorKind::Denied(Denied::KeyRefused), "{error}");
        server.untouched();
        let lines = lines_with("on the handshake port").len();
        assert!(lines >= 3, "each was told");
        // But that it lives is told to everybody.
        assert!(!client(2000).probe(&server.address, &own).unwrap().legacy);
        server.untouched();
    });
}

#[test]
fn genuine_requests_touch_nothing_and_are_told_once_each() {
    within(20, || {
        let server = Guarded::with_key("");
        let own = descriptor("127.0.0.1:1", 1).to_json();
        for (kind, body) in [
            (1, &own[..]),
            (2, br#"{"name":"n","notify_msg":"m"}"#),
            (0, br#"{"local_nic_path":"a","peer_nic_path":"b"}"#),
        ] {
            let (caller, answer) = say(server.at, &frame(kind, body));
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(!answer.contains("tcp_data_port"), "{answer}");
            assert!(told(caller).contains("a shared key is required"), "{}", told(caller));
        }
        let (caller, answer) = say(server.at, &untyped(br#"{"local_nic_path":"a"}"#));
        assert!(!String::from_utf8_lossy(&answer).contains("tcp_data_port"));
        told(caller);
        server.untouched();
    });
}

/// Stands between a client and a server, and keeps what either said.
fn between(
    server: SocketAddr,
    change: impl Fn(bool, &mut Vec<u8>) + Send + Sync + 'static,
) -> (HostPort, Arc<Mutex<[Vec<u8>; 2]>>) {
    let record = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
    let kept = Arc::clone(&record);
    let change = Arc::new(change);
    let address = peer(move |_, near| {
        let far = connect(server);
        let pump = |mut from: TcpStream, mut to: TcpStream, outward: bool| {
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
                let _ = to.shutdown(Shutdown::Write);
            });
        };
        pump(near.try_clone().unwrap(), far.try_clone().unwrap(), true);
        pump(far, near, false);
    });
    (address, record)
}

#[test]
fn recorded_bytes_are_refused_when_they_are_sent_again() {
    within(20, || {
        let server = Guarded::with_key("");
        let (way, record) = between(server.at, |_, _| {});
        with(KEY, "").notify(&way, &note()).unwrap();
        let [said, answered] = record.lock().unwrap().clone();
        assert_eq!(server.recorder.notes.lock().unwrap().len(), 1);
        let (caller, _) = say(server.at, &said);
        assert!(told(caller).contains("did not prove its key"), "{}", told(caller));
        assert_eq!(server.recorder.notes.lock().unwrap().len(), 1, "the note was taken once");
        // And what the server said convinces nobody a second time.
        let parrot = peer(move |_, mut stream| {
            let _ = stream.write_all(&answered);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.read(&mut [0; 4096]);
        });
        let error = with(KEY, "").notify(&parrot, &note()).unwrap_err();
        assert_eq!(error.kind, MetadataErrorKind::Denied(Denied::Impostor), "{error}");
    });
}

#[test]
fn a_mirror_and_a_mute_convince_nobody() {
    within(20, || {
        let mirror = peer(|_, mut stream| {
            let mut copy = stream.try_clone().unwrap();
            thread::spawn(move || std::io::copy(&mut stream, &mut copy));
        });
        let error = with(KEY, "").notify(&mirror, &note()).unwrap_err();
        assert_eq!(error.kind, MetadataErrorKind::Denied(Denied::Malformed), "{error}");
        // A hello that is led back to its own sender's port, which is another process of the same key or the very same.
        let server = Guarded::with_key("");
        let mut stream = connect(server.at);
        let caller = stream.local_addr().unwrap();
        stream.write_all(b"MHAND\x00\x01\xff").unwrap();
        stream.write_all(&[0; 56]).unwrap();
        drain(&mut stream);
        told(caller);
        server.untouched();
    });
}

#[test]
fn a_descriptor_that_was_changed_on_the_way_is_not_believed() {
    within(20, || {
        let server = Guarded::with_key("");
        let own = descriptor("127.0.0.1:1", 1);
        let (way, _) = between(server.at, |outward, bytes| {
            if let Some(at) = bytes.windows(5).position(|five| five == b"16792")
                && !outward
            {
                bytes[at] = b'2';
            }
        });
        let error = with(KEY, "").exchange_metadata(&way, &own).unwrap_err();
        assert_eq!(error.kind, MetadataErrorKind::Denied(Denied::Impostor), "{error}");
        // Nor is a note taken that was.
        let (way, _) = between(server.at, |outward, bytes| {
            if let Some(at) = bytes.windows(10).position(|ten| ten == b"notify_msg")
                && outward
            {
                bytes[at + 13] ^= 1;
            }
        });
        with(KEY, "").notify(&way, &note()).unwrap_err();
        assert!(server.recorder.notes.lock().unwrap().is_empty());
    });
}

#[test]
fn a_caller_with_a_key_does_not_go_on_without_it_unless_allowed() {
    within(20, || {
        let plain = guarded(None);
        let own = descriptor("127.0.0.1:1", 1);
        let error = with(KEY, "").exchange_metadata(&plain.address, &own).unwrap_err();
        assert_eq!(error.kind, MetadataErrorKind::Denied(Denied::NotAsked), "{error}");
        assert!(error.message.contains("MOONRAIL_ALLOW=mooncake"), "{error}");
        plain.untouched();
        let found = with(KEY, "mooncake").exchange_metadata(&plain.address, &own).unwrap();
        assert_eq!(found.name, plain.address.to_string());
        let mixed = Guarded::with_key("mooncake");
        client(2000).exchange_metadata(&mixed.address, &own).unwrap();
        with(KEY, "").exchange_metadata(&mixed.address, &own).unwrap();
    });
}

#[test]
fn keys_are_changed_without_a_restart() {
    within(20, || {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("key");
        let write = |text: &str| {
            use std::os::unix::fs::OpenOptionsExt;
            let new = folder.path().join("new");
            let mut file = std::fs::OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)
                .unwrap();
            file.write_all(text.as_bytes()).unwrap();
            std::fs::rename(&new, &path).unwrap();
        };
        write(KEY);
        let access = AccessControl::open(KeySource::File(path.clone()), Allow::default()).unwrap();
        let server = guarded(Some(Arc::new(access)));
        let (old, new) = (with(KEY, ""), with("a new key of these tests", ""));
        old.notify(&server.address, &note()).unwrap();
        new.notify(&server.address, &note()).unwrap_err();
        write(&format!("a new key of these tests\n{KEY}\n"));
        old.notify(&server.address, &note()).unwrap();
        new.notify(&server.address, &note()).unwrap();
        write("a new key of these tests\n");
        old.notify(&server.address, &note()).unwrap_err();
        new.notify(&server.address, &note()).unwrap();
        assert_eq!(server.recorder.notes.lock().unwrap().len(), 4);
    });
}
