//! Against genuine Mooncake engines. Needs a Python with the wheel `mooncake-transfer-engine-non-cuda` 0.3.13.post1:
//! `MOONRAIL_GENUINE_PYTHON=/path/to/python cargo test -p moonrail-metadata --test genuine -- --ignored`
//! The last test needs one with 0.3.9 or older, in `MOONRAIL_GENUINE_OLD_PYTHON`.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use moonrail_metadata::{
    Directory, HandshakeClient, HttpDirectory, MetadataErrorKind, MetadataServer, ServerLimits,
};
use moonrail_wire::address::HostPort;
use moonrail_wire::directory::RpcMeta;
use moonrail_wire::handshake::Notify;
use moonrail_wire::segment::ReleaseLine;

/// Evaluates each line that it is sent and prints the value; `e` is the engine.
const SCRIPT: &str = r"
import sys
from mooncake.engine import TransferEngine
e = TransferEngine()
for line in sys.stdin:
    print('=', eval(line), flush=True)
";

struct Genuine {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Genuine {
    fn start(name: &str, metadata_server: &str) -> (Genuine, String) {
        Genuine::start_with("MOONRAIL_GENUINE_PYTHON", name, metadata_server)
    }

    fn start_with(variable: &str, name: &str, metadata_server: &str) -> (Genuine, String) {
        let python = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"));
        let mut child = Command::new(python)
            .args(["-c", SCRIPT])
            .env("MC_LOG_LEVEL", "ERROR")
            .env("MC_TCP_BIND_ADDRESS", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut engine = Genuine { child, stdin, stdout };
        let result = engine.eval(&format!("e.initialize({name:?}, {metadata_server:?}, 'tcp', '')"));
        (engine, result)
    }

    fn eval(&mut self, expression: &str) -> String {
        writeln!(self.stdin, "{expression}").unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(
                self.stdout.read_line(&mut line).unwrap(),
                0,
                "the genuine engine died on {expression}"
            );
            if let Some(value) = line.strip_prefix("= ") {
                return value.trim_end().to_owned();
            }
        }
    }

    fn port(&mut self) -> u16 {
        self.eval("e.get_rpc_port()").parse().unwrap()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it the way a program ends.
    fn exit(mut self) {
        drop(self.stdin);
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
#[ignore = "needs a genuine engine (MOONRAIL_GENUINE_PYTHON)"]
fn we_call_a_genuine_handshake_port() {
    within(60, || {
        let (mut genuine, result) = Genuine::start("127.0.0.1", "P2PHANDSHAKE");
        assert_eq!(result, "0");
        let buffer: u64 = genuine.eval("e.allocate_managed_buffer(1 << 20)").parse().unwrap();
        let peer = HostPort::new("127.0.0.1", genuine.port());
        let client = HandshakeClient::default();
        let own = descriptor("127.0.0.1:1", 7);

        let theirs = client.exchange_metadata(&peer, &own).unwrap();
        assert_eq!(theirs.name, peer.to_string());
        assert_eq!(theirs.release_line(), ReleaseLine::V0_3_13);
        // Managed buffers come out of one region that starts below or at what is handed out.
        assert!(theirs.buffers.iter().any(|b| b.addr <= buffer && buffer + (1 << 20) <= b.addr + b.length));

        let outcome = client.probe(&peer, &own).unwrap();
        assert!(!outcome.legacy, "0.3.13 knows probes");
        for i in 0..3 {
            let note = Notify { name: format!("n{i}"), message: "grüße\0\"".to_owned() };
            client.notify(&peer, &note).unwrap();
        }
        assert_eq!(genuine.eval("[n.name for n in e.get_notifies()]"), "['n0', 'n1', 'n2']");
        client.notify(&peer, &Notify { name: "x".to_owned(), message: "grüße\0\"".to_owned() }).unwrap();
        assert_eq!(genuine.eval("[n.msg for n in e.get_notifies()] == ['gr\\u00fc\\u00dfe\\0\"']"), "True");

        // It serves one connection at a time: callers that come together queue up, and nobody is left out.
        let callers: Vec<_> = (0..32)
            .map(|_| {
                let (client, peer, own) = (client.clone(), peer.clone(), own.clone());
                thread::spawn(move || client.exchange_metadata(&peer, &own).unwrap().name)
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.join().unwrap(), peer.to_string());
        }
        let started = Instant::now();
        genuine.kill();
        assert_eq!(client.probe(&peer, &own).unwrap_err().kind, MetadataErrorKind::Refused);
        assert!(started.elapsed() < Duration::from_millis(500));
    });
}

#[test]
#[ignore = "needs a genuine engine (MOONRAIL_GENUINE_PYTHON)"]
fn genuine_engines_call_our_handshake_port() {
    within(60, || {
        let (mut genuine, result) = Genuine::start("127.0.0.1", "P2PHANDSHAKE");
        assert_eq!(result, "0");
        let (_server, recorder, address) = engine(V4);
        assert_eq!(
            genuine.eval(&format!("e.get_first_buffer_address('{address}')")),
            0x7f00_0000_0000_u64.to_string()
        );
        let port = genuine.port();
        assert_eq!(*recorder.callers.lock().unwrap(), [Some(format!("127.0.0.1:{port}"))]);
        assert_eq!(genuine.eval(&format!("e.send_probe('{address}')")), "0");

        // Turned away, it fails to open and lives on.
        let (_other, recorder, refusing) = engine(V4);
        *recorder.refusal.lock().unwrap() = Some("no".to_owned());
        assert_eq!(genuine.eval(&format!("e.get_first_buffer_address('{refusing}')")), "0");
        *recorder.refusal.lock().unwrap() = None;
        *recorder.descriptor.lock().unwrap() = None;
        assert_eq!(genuine.eval(&format!("e.get_first_buffer_address('{refusing}')")), "0");
        assert_eq!(genuine.eval(&format!("e.send_probe('{refusing}')")), "0");
        genuine.exit();
    });
}

#[test]
#[ignore = "needs a genuine engine (MOONRAIL_GENUINE_PYTHON)"]
fn genuine_engines_live_with_our_metadata_server() {
    within(120, || {
        let server = MetadataServer::bind(SocketAddr::new(V4, 0), ServerLimits::default()).unwrap();
        let url = server.url("127.0.0.1");
        let directory = || HttpDirectory::new(&url, None, client(2000)).unwrap();
        let reader = directory();
        let own = descriptor("me", 7);

        let (mut first, result) = Genuine::start("nodeA:12345", &url);
        assert_eq!(result, "0");
        first.eval("e.allocate_managed_buffer(1 << 20)");
        let before = reader.lookup("nodeA:12345", &own).unwrap();
        assert_eq!(before.descriptor.buffers.len(), 1);
        assert_eq!(before.data_host, "127.0.0.1");
        let handshake = reader.handshake_address("nodeA:12345").unwrap();
        assert_eq!(handshake, HostPort::new("127.0.0.1", first.port()));
        client(2000).probe(&handshake, &own).unwrap();

        // A second engine opens the first by name.
        let (mut second, result) = Genuine::start("nodeB", &url);
        assert_eq!(result, "0");
        assert_eq!(
            second.eval("e.get_first_buffer_address('nodeA:12345')"),
            before.descriptor.buffers[0].addr.to_string()
        );
        assert_eq!(second.eval("e.send_probe('nodeA:12345')"), "0");

        // While it lives, the name is its own, against a genuine engine and against us.
        let (rival, result) = Genuine::start("nodeA:12345", &url);
        assert_eq!(result, "-1");
        rival.kill();
        let (_engine, _, ours) = engine(V4);
        let claim = RpcMeta { ip_or_host_name: "127.0.0.1".to_owned(), rpc_port: ours.port.unwrap() };
        assert_eq!(directory().claim("nodeA:12345", &claim).unwrap_err().kind, MetadataErrorKind::NameTaken);

        // After a crash the next one starts under its name, with nothing of the old one's memory.
        first.kill();
        let (mut again, result) = Genuine::start("nodeA:12345", &url);
        assert_eq!(result, "0");
        let after = reader.lookup("nodeA:12345", &own).unwrap();
        assert_eq!(after.descriptor.buffers, []);
        again.eval("e.allocate_managed_buffer(1 << 20)");
        let after = reader.lookup("nodeA:12345", &own).unwrap();
        assert_eq!(after.descriptor.buffers.len(), 1);
        assert_ne!(after.data_port, before.data_port);

        // Our own engine takes over from a crashed genuine one, and a genuine one from us.
        again.kill();
        let directory = directory();
        directory.claim("nodeA:12345", &claim).unwrap();
        directory.publish(&descriptor("nodeA:12345", 16000)).unwrap();
        let (mut third, result) = Genuine::start("nodeC", &url);
        assert_eq!(result, "0");
        assert_eq!(third.eval("e.get_first_buffer_address('nodeA:12345')"), 0x7f00_0000_0000_u64.to_string());
        assert_eq!(third.eval("e.send_probe('nodeA:12345')"), "0");
        drop(_engine);
        let (last, result) = Genuine::start("nodeA:12345", &url);
        assert_eq!(result, "0");

        // They leave nothing behind.
        for genuine in [second, third, last] {
            genuine.exit();
        }
        for name in ["nodeA:12345", "nodeB", "nodeC"] {
            assert_eq!(reader.lookup(name, &own).unwrap_err().kind, MetadataErrorKind::NotFound);
            assert_eq!(reader.handshake_address(name).unwrap_err().kind, MetadataErrorKind::NotFound);
        }
    });
}

#[test]
#[ignore = "needs a genuine engine (MOONRAIL_GENUINE_PYTHON)"]
fn we_live_with_the_genuine_metadata_server() {
    within(120, || {
        let python = std::env::var("MOONRAIL_GENUINE_PYTHON").expect("MOONRAIL_GENUINE_PYTHON is not set");
        let port = dead_port();
        let program = std::path::Path::new(&python).with_file_name("mooncake_http_metadata_server");
        let mut server = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let url = format!("http://127.0.0.1:{port}/metadata");
        let started = Instant::now();
        while std::net::TcpStream::connect((V4, port)).is_err() {
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "the genuine metadata server does not start"
            );
            thread::sleep(Duration::from_millis(100));
        }
        let directory = || HttpDirectory::new(&url, Some("c"), client(2000)).unwrap();
        let own = descriptor("nodeA", 16000);
        let dead = directory();
        dead.claim("nodeA", &RpcMeta { ip_or_host_name: "127.0.0.1".to_owned(), rpc_port: dead_port() })
            .unwrap();
        dead.publish(&own).unwrap();

        let (_engine, _, ours) = engine(V4);
        let claim = RpcMeta { ip_or_host_name: "127.0.0.1".to_owned(), rpc_port: ours.port.unwrap() };
        let next = directory();
        next.claim("nodeA", &claim).unwrap();
        assert_eq!(next.lookup("nodeA", &own).unwrap_err().kind, MetadataErrorKind::NotFound);
        next.publish(&own).unwrap();
        assert_eq!(next.lookup("nodeA", &own).unwrap().descriptor, own);
        assert!(!next.reannounce(&own).unwrap());
        let (_other, _, theirs) = engine(V4);
        let rival = RpcMeta { ip_or_host_name: "127.0.0.1".to_owned(), rpc_port: theirs.port.unwrap() };
        assert_eq!(directory().claim("nodeA", &rival).unwrap_err().kind, MetadataErrorKind::NameTaken);
        next.withdraw().unwrap();
        directory().claim("nodeA", &rival).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    });
}

#[test]
#[ignore = "needs an old genuine engine (MOONRAIL_GENUINE_OLD_PYTHON)"]
fn an_old_genuine_engine_is_seen_alive_and_keeps_its_name() {
    within(60, || {
        let old =
            |name: &str, metadata: &str| Genuine::start_with("MOONRAIL_GENUINE_OLD_PYTHON", name, metadata);
        let (mut genuine, result) = old("127.0.0.1", "P2PHANDSHAKE");
        assert_eq!(result, "0");
        genuine.eval("e.allocate_managed_buffer(1 << 20)");
        let peer = HostPort::new("127.0.0.1", genuine.port());
        let own = descriptor("127.0.0.1:1", 7);
        assert!(HandshakeClient::default().probe(&peer, &own).unwrap().legacy);
        let theirs = HandshakeClient::default().exchange_metadata(&peer, &own).unwrap();
        assert_eq!(theirs.release_line(), ReleaseLine::V1);
        assert_eq!(theirs.buffers.len(), 1);
        HandshakeClient::default()
            .notify(&peer, &Notify { name: "n".to_owned(), message: "m".to_owned() })
            .unwrap();

        let (_server, _, address) = engine(V4);
        assert_eq!(
            genuine.eval(&format!("e.get_first_buffer_address('{address}')")),
            0x7f00_0000_0000_u64.to_string()
        );
        let (_other, refusing, turned_away) = engine(V4);
        *refusing.refusal.lock().unwrap() = Some("no".to_owned());
        assert_eq!(genuine.eval(&format!("e.get_first_buffer_address('{turned_away}')")), "0");
        genuine.kill();

        let server = MetadataServer::bind(SocketAddr::new(V4, 0), ServerLimits::default()).unwrap();
        let url = server.url("127.0.0.1");
        let (first, result) = old("nodeA", &url);
        assert_eq!(result, "0");
        // It knows no probe, but it lives.
        let (second, result) = old("nodeA", &url);
        assert_eq!(result, "-1");
        second.kill();
        first.kill();
        let (third, result) = old("nodeA", &url);
        assert_eq!(result, "0");
        third.kill();
    });
}
