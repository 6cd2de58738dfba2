//! Engines, their memory, a metadata server that anybody may change, and what this process logs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use moonrail::{
    Code, Config, Engine, Entry, Error, MetadataServer, Opcode, Request, ServerLimits, TlsSource,
};

const GUARD: u8 = 0xa5;
pub const LEN: u64 = 4096;

pub fn start(name: &str, metadata: &str, tls: Option<TlsSource>, change: impl Fn(&mut Config)) -> Engine {
    LazyLock::force(&LOG);
    let mut config = Config::new(name, metadata);
    // With TLS the path is asked for, to see that it is off.
    config.paths.shm = tls.is_some();
    config.tls = tls;
    change(&mut config);
    Engine::start(config).unwrap()
}

pub fn engine(tls: Option<TlsSource>, allow: &str) -> Engine {
    start("127.0.0.1", "P2PHANDSHAKE", tls, |config| config.allow = allow.parse().unwrap())
}

/// An engine with memory, every byte of it known.
pub struct Target {
    pub engine: Engine,
    pub addr: u64,
}

impl Target {
    pub fn new(engine: Engine) -> Self {
        let addr = engine.allocate(LEN).unwrap();
        engine.write_local(addr, &[GUARD; LEN as usize]).unwrap();
        Self { engine, addr }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN as usize];
        self.engine.read_local(self.addr, &mut bytes).unwrap();
        bytes
    }

    pub fn untouched(&self) {
        assert!(self.bytes().iter().all(|&byte| byte == GUARD), "memory was written");
        let report = self.engine.report().unwrap();
        assert_eq!((report.served, report.bytes_in, report.bytes_out), (0, 0, 0));
    }

    pub fn moved_by(&self, initiator: &Engine, opcode: Opcode) -> Result<(), Error> {
        let local = initiator.allocate(LEN).unwrap();
        initiator.write_local(local, &[7; LEN as usize]).unwrap();
        let entry = Entry { local, remote: self.addr, len: LEN };
        let outcome = initiator.transfer(&Request::new(self.engine.name(), opcode, vec![entry]));
        let mut here = vec![0; LEN as usize];
        initiator.read_local(local, &mut here).unwrap();
        if outcome.is_err() || opcode == Opcode::Write {
            assert!(here.iter().all(|&byte| byte == 7), "local memory");
        } else {
            assert_eq!(here, self.bytes());
        }
        initiator.free(local).unwrap();
        outcome
    }

    /// Neither reads nor writes get through, with this code.
    pub fn bars(&self, initiator: &Engine, code: Code) {
        for opcode in [Opcode::Read, Opcode::Write] {
            let error = self.moved_by(initiator, opcode).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert_eq!(error.peer(), Some(self.engine.name()));
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
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
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

pub fn log() -> String {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    assert!(!log.contains("PRIVATE"), "a key in the log");
    log
}

/// The refusals that were told so far by this process. A test has a process of its own under nextest; under `cargo test` those
/// of other tests are told too, so callers look at what is new.
pub fn log_of(_: &Target) -> Vec<String> {
    // The servers write theirs on their own threads.
    std::thread::sleep(Duration::from_millis(100));
    log().lines().filter(|line| line.contains("refused ")).map(str::to_owned).collect()
}

/// The one warning about this caller; its connection may end a moment before it is told.
pub fn told(caller: SocketAddr) -> String {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let log = log();
        let about = |line: &&str| line.contains("WARN") && line.contains(&format!("{caller} "));
        let lines: Vec<&str> = log.lines().filter(about).collect();
        assert!(lines.len() <= 1 && Instant::now() < until, "{caller}: {log}");
        match lines.first() {
            Some(line) => return (*line).to_owned(),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// A metadata server, with keys and values that anybody may change.
pub struct Directory {
    server: MetadataServer,
    pub url: String,
}

impl Directory {
    pub fn new() -> Self {
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
    pub fn change(&self, name: &str, change: impl Fn(String) -> String) {
        let path = format!("/metadata?key=mooncake%2Fram%2F{name}");
        let before = self.ask(&format!("GET {path}"), "");
        let after = change(before.clone());
        assert_ne!(before, after);
        self.ask(&format!("PUT {path}"), &after);
    }
}
