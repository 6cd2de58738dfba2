//! An HTTP server that answers as an engine's does: `/report` with figures that rise with its uptime, or with what it is told.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Bytes and calls a second that it claims.
pub(crate) const RATE: f64 = 64.0 * 1024.0 * 1024.0;
const CALLS: f64 = 1000.0;
/// No two are the same process.
static EPOCH: AtomicU64 = AtomicU64::new(1);

pub(crate) struct Reporter {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    /// Reports that were asked for.
    asked: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    pub(crate) fn start(name: &str) -> Self {
        Self::on("127.0.0.1:0".parse().unwrap(), name)
    }

    /// On an address that another one has left.
    pub(crate) fn on(address: SocketAddr, name: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ending, count, name) = (Arc::clone(&over), Arc::clone(&asked), name.to_owned());
        let began = Instant::now();
        let epoch = format!("{:016x}", EPOCH.fetch_add(1, Ordering::SeqCst));
        let serve = move || {
            for stream in listener.incoming() {
                if ending.load(Ordering::SeqCst) {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                answer(stream.unwrap(), &report(&name, &epoch, began.elapsed()));
            }
        };
        let thread = Some(std::thread::spawn(serve));
        Self { address, over, asked, thread }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().unwrap().join();
    }
}

/// As the observability page of the book has it.
fn report(name: &str, epoch: &str, up: Duration) -> Value {
    let up = up.as_secs_f64();
    json!({
        "schema": 1, "time_ms": 1_700_000_000_000_u64, "name": name, "release": "Moonrail 0.1.0", "pid": 7,
        "epoch": epoch, "uptime_seconds": up, "paths": ["tcp"], "fallbacks": [], "regions": 2,
        "registered_bytes": 1 << 20,
        "served": { "requests": 0, "refused": 0, "bytes_in": 0, "bytes_out": 0 },
        "peers": [{
            "name": "far:15000", "release": "Moonrail 0.1.0", "path": "tcp", "lanes": 3, "queued_bytes": 0, "retries": 1,
            "ops": [{
                "op": "write", "path": "tcp", "transfers": (up * CALLS) as u64, "bytes": (up * RATE) as u64, "failures": 1,
                "latency_us": { "count": 1, "p50": 120.0, "p99": 950.0 },
            }],
        }],
        "failures": [{
            "time_ms": 1_699_999_995_000_u64, "code": "PEER_GONE", "stage": "wait", "peer": "far:15000", "op": "write",
            "retry_safe": false, "message": "the peer \u{1b}[31mhas gone",
        }],
    })
}

fn answer(mut stream: TcpStream, report: &Value) {
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut request = Vec::new();
    while !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(got) => request.extend_from_slice(&bytes[..got]),
        }
    }
    let (status, body) = if request.starts_with(b"GET /report HTTP/1.1") {
        ("200 OK", report.to_string())
    } else {
        ("404 Not Found", String::new())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}
