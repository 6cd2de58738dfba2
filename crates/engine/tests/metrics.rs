//! The figures of an engine, asked for over HTTP: they are what was moved, and nobody can disturb the engine by asking.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use moonrail::{Code, Config, Engine, Entry, Event, Opcode, Request};

fn engine(shm: bool) -> Engine {
    let mut config = Config::new("127.0.0.1", "P2PHANDSHAKE");
    config.paths.shm = shm;
    config.metrics = Some("127.0.0.1:0".to_owned());
    Engine::start(config).unwrap()
}

fn get(at: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn figures(engine: &Engine) -> String {
    let text = get(engine.report().unwrap().metrics.unwrap(), "/metrics");
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("text/plain; version=0.0.4"), "{text}");
    text
}

fn report(engine: &Engine) -> serde_json::Value {
    let text = get(engine.report().unwrap().metrics.unwrap(), "/report");
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// The value of a sample whose name and labels begin so.
fn sample(text: &str, begins: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(begins));
    let value = line.and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value.parse().unwrap());
    value.unwrap_or_else(|| panic!("no sample {begins} in {text}"))
}

fn moves_and_counts(shm: bool) {
    let (initiator, target) = (engine(shm), engine(shm));
    let len = 1 << 20;
    let (local, remote) = (initiator.allocate(len).unwrap(), target.allocate(len).unwrap());
    let entry = |len| Entry { local, remote, len };
    let request = |op, lens: &[u64]| {
        Request::new(target.name(), op, lens.iter().map(|&len| entry(len)).collect::<Vec<_>>())
    };
    // The first call meets the peer; small ones go their own way on one host.
    for _ in 0..130 {
        initiator.transfer(&request(Opcode::Write, &[64])).unwrap();
    }
    initiator.transfer(&request(Opcode::Write, &[len, 4096, 0])).unwrap();
    initiator.transfer(&request(Opcode::Read, &[300_000])).unwrap();
    initiator.submit(request(Opcode::Read, &[100])).unwrap().wait(None).unwrap().unwrap();

    let path = if shm { "shm" } else { "tcp" };
    let text = figures(&initiator);
    let labels = |op: &str| format!("{{op=\"{op}\",path=\"{path}\",peer=\"{}\"}}", target.name());
    let (writes, reads) = (labels("write"), labels("read"));
    assert_eq!(sample(&text, &format!("moonrail_transfers_total{writes}")), 131.0);
    assert_eq!(sample(&text, &format!("moonrail_transfers_total{reads}")), 2.0);
    let written = 130 * 64 + len + 4096;
    assert_eq!(sample(&text, &format!("moonrail_transfer_bytes_total{writes}")), written as f64);
    assert_eq!(sample(&text, &format!("moonrail_transfer_bytes_total{reads}")), 300_100.0);
    let timed = sample(&text, &format!("moonrail_transfer_seconds_count{writes}"));
    assert!(if shm { (3.0..=10.0).contains(&timed) } else { timed == 131.0 }, "{timed} timed");
    assert_eq!(sample(&text, "moonrail_registered_bytes"), len as f64);
    assert_eq!(sample(&text, "moonrail_regions"), 1.0);
    assert_eq!(sample(&text, &format!("moonrail_queued_bytes{{peer=\"{}\"}}", target.name())), 0.0);
    let lanes = sample(&text, &format!("moonrail_lanes{{peer=\"{}\"}}", target.name()));
    assert_eq!(lanes > 0.0, !shm, "{lanes} lanes");
    let served = figures(&target);
    if !shm {
        assert_eq!(sample(&served, "moonrail_received_bytes_total"), written as f64);
        assert_eq!(sample(&served, "moonrail_sent_bytes_total"), 300_100.0);
    }

    let report = report(&initiator);
    let peer = &report["peers"][0];
    assert_eq!((peer["name"].as_str(), peer["path"].as_str()), (Some(target.name()), Some(path)));
    let ops = peer["ops"].as_array().unwrap();
    let write = ops.iter().find(|op| op["op"] == "write").unwrap();
    assert_eq!((write["transfers"].as_u64(), write["bytes"].as_u64()), (Some(131), Some(written)));
    let (p50, p99) =
        (write["latency_us"]["p50"].as_f64().unwrap(), write["latency_us"]["p99"].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p99, "{p50} {p99}");
}

#[test]
fn over_tcp_the_counters_are_what_was_moved() {
    moves_and_counts(false);
}

#[test]
fn on_one_host_the_counters_are_what_was_moved() {
    moves_and_counts(true);
}

#[test]
fn failures_are_counted_by_code_and_told() {
    let (initiator, target) = (engine(false), engine(false));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&heard);
    initiator.subscribe(Box::new(move |event| {
        if let Event::TransferFailed { op, error } = event {
            told.lock().unwrap().push((*op, error.code()));
        }
    }));
    let local = initiator.allocate(4096).unwrap();
    let entry = Entry { local, remote: 4096, len: 64 };
    let request = Request::new(target.name(), Opcode::Write, vec![entry]);
    for _ in 0..3 {
        assert_eq!(initiator.transfer(&request).unwrap_err().code(), Code::RemoteNotRegistered);
    }
    let outcome = initiator.submit(request).unwrap().wait(None).unwrap();
    assert_eq!(outcome.unwrap_err().code(), Code::RemoteNotRegistered);
    let elsewhere = Entry { local: 64, ..entry };
    let request = Request::new(target.name(), Opcode::Read, vec![elsewhere]);
    assert_eq!(initiator.submit(request).unwrap_err().code(), Code::LocalNotRegistered);

    let text = figures(&initiator);
    let labels = |code: &str, op: &str| format!("{{code=\"{code}\",op=\"{op}\",peer=\"{}\"}}", target.name());
    let failures = |code, op| sample(&text, &format!("moonrail_transfer_failures_total{}", labels(code, op)));
    assert_eq!(failures("REMOTE_NOT_REGISTERED", "write"), 4.0);
    assert_eq!(failures("LOCAL_NOT_REGISTERED", "read"), 1.0);
    let report = report(&initiator);
    let kept = report["failures"].as_array().unwrap();
    assert_eq!(kept.len(), 5);
    assert_eq!(kept[0]["code"], "REMOTE_NOT_REGISTERED");
    assert_eq!(kept[4]["stage"], "arguments");
    assert_eq!(kept[4]["peer"].as_str(), Some(target.name()));
    assert_eq!(heard.lock().unwrap().len(), 5);
}

#[test]
fn nothing_is_open_unless_asked_for_and_a_bad_address_is_refused() {
    let quiet = Engine::start(Config::new("127.0.0.1", "P2PHANDSHAKE")).unwrap();
    assert_eq!(quiet.report().unwrap().metrics, None);
    let taken = engine(false).report().unwrap().metrics.unwrap();
    let busy = engine(false);
    let at = busy.report().unwrap().metrics.unwrap();
    for (text, code) in [
        (at.to_string(), Code::ListenFailed),
        ("127.0.0.1".to_owned(), Code::InvalidArgument),
        ("127.0.0.1:99999".to_owned(), Code::InvalidArgument),
    ] {
        let mut config = Config::new("127.0.0.1", "P2PHANDSHAKE");
        config.metrics = Some(text.clone());
        let error = Engine::start(config).unwrap_err();
        assert_eq!(error.code(), code, "{text}: {error}");
        assert!(error.to_string().contains("metrics"), "{error}");
    }
    assert!(TcpStream::connect(taken).is_err(), "the port of an engine that is gone is closed");
}

#[test]
fn peers_read_where_the_figures_are() {
    let (initiator, target) = (engine(false), engine(false));
    let at = target.report().unwrap().metrics.unwrap();
    let seen = initiator.peer(target.name()).unwrap();
    assert_eq!(seen.metrics.as_deref(), Some(format!("http://{at}").as_str()));
}

#[test]
fn whoever_holds_the_port_open_disturbs_nobody() {
    let engine = engine(false);
    let at = engine.report().unwrap().metrics.unwrap();
    let limit = Duration::from_secs(20);
    // Idle ones, ones in the middle of a head, one whose head never ends, one that speaks no HTTP: more than are served.
    let mut held: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(at).unwrap()).collect();
    for (nth, stream) in held.iter_mut().rev().enumerate().take(26) {
        stream.write_all(&b"GET /metrics HTTP/1.1\r\nX: "[..nth]).unwrap();
    }
    let mut endless = TcpStream::connect(at).unwrap();
    endless.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
    let refused = (0..64).any(|_| endless.write_all(&[b'a'; 64 << 10]).is_err());
    assert!(refused, "4 MiB of one head were taken");
    TcpStream::connect(at).unwrap().write_all(&[0xff; 100]).unwrap();
    let began = Instant::now();
    for _ in 0..20 {
        assert!(get(at, "/nothing").starts_with("HTTP/1.1 404"));
        assert!(figures(&engine).contains("moonrail_info"));
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // The oldest was pushed out, and time ends the newest.
    for nth in [0, 299] {
        held[nth].set_read_timeout(Some(limit)).unwrap();
        let _ = held[nth].read_to_end(&mut Vec::new());
        assert!(began.elapsed() < limit, "connection {nth} is still open");
    }
    let _held = TcpStream::connect(at).unwrap();
    let began = Instant::now();
    engine.shutdown();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn figures_outlive_a_peer_that_is_restarted() {
    let initiator = engine(false);
    let restarts = Arc::new(Mutex::new(0));
    let told = Arc::clone(&restarts);
    initiator.subscribe(Box::new(move |event| {
        *told.lock().unwrap() += u32::from(matches!(event, Event::PeerRestarted { .. }));
    }));
    let len = 1 << 20;
    let local = initiator.allocate(len).unwrap();
    let mut target = engine(false);
    let name = target.name().to_owned();
    let write = |remote| Request::new(&name, Opcode::Write, vec![Entry { local, remote, len }]);
    for _ in 0..2 {
        let remote = target.allocate(len).unwrap();
        initiator.transfer(&write(remote)).unwrap();
        target.shutdown();
        initiator.transfer(&write(remote)).unwrap_err();
        target = Engine::start(Config::new(&name, "P2PHANDSHAKE")).unwrap();
    }
    let remote = target.allocate(len).unwrap();
    initiator.transfer(&write(remote)).unwrap();
    let text = figures(&initiator);
    let moved = format!("moonrail_transfer_bytes_total{{op=\"write\",path=\"tcp\",peer=\"{name}\"}}");
    assert_eq!(sample(&text, &moved), (3 * len) as f64);
    let report = report(&initiator);
    assert_eq!(report["failures"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(report["peers"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(*restarts.lock().unwrap(), 2);
}

#[test]
fn the_newest_failures_are_kept() {
    let engine = engine(false);
    let local = engine.allocate(64).unwrap();
    for len in 1..=70 {
        let entry = Entry { local: local + 64, remote: 1, len };
        engine.transfer(&Request::new("127.0.0.1:1", Opcode::Read, vec![entry])).unwrap_err();
    }
    let report = report(&engine);
    let failures = report["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 64);
    assert!(failures[0]["message"].as_str().unwrap().contains(" 7 bytes"), "{}", failures[0]);
    assert!(failures[63]["message"].as_str().unwrap().contains(" 70 bytes"), "{}", failures[63]);
}
