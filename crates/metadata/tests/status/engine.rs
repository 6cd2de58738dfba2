//! Engines as the server meets them at `/report`: a socket that answers HTTP with what the test says.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// Answers for as long as the test process lives.
pub(crate) struct FakeEngine {
    address: SocketAddr,
    says: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

impl FakeEngine {
    pub(crate) fn start(report: Value) -> FakeEngine {
        FakeEngine::answering(answer("200 OK", "", &report.to_string()))
    }

    pub(crate) fn redirecting(to: &str) -> FakeEngine {
        FakeEngine::answering(answer("302 Found", &format!("Location: {to}/report\r\n"), ""))
    }

    fn answering(text: String) -> FakeEngine {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (says, asked) = (Arc::new(Mutex::new(text)), Arc::new(AtomicUsize::new(0)));
        let (text, count) = (says.clone(), asked.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let text = text.lock().unwrap().clone();
                thread::spawn(move || serve(stream.unwrap(), &text));
            }
        });
        FakeEngine { address, says, asked }
    }

    pub(crate) fn say(&self, report: Value) {
        *self.says.lock().unwrap() = answer("200 OK", "", &report.to_string());
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer(status: &str, more: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn serve(mut stream: TcpStream, text: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    let mut first = true;
    loop {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if std::mem::take(&mut first) {
            assert!(line.starts_with("GET /report HTTP/1.1"), "asked for {line}");
        }
        if line == "\r\n" {
            break;
        }
    }
    // The other side may have had enough before the end.
    let _ = stream.write_all(text.as_bytes());
}

/// A report as an engine of this epoch gives it.
pub(crate) fn report(epoch: u64) -> Value {
    json!({
        "schema": 1,
        "time_ms": 1_000_000,
        "name": "prefill",
        "release": "Moonrail 0.1.0",
        "pid": 1,
        "epoch": format!("{epoch:016x}"),
        "uptime_seconds": 12.5,
        "paths": ["tcp"],
        "fallbacks": [],
        "regions": 1,
        "registered_bytes": 1024,
        "served": { "requests": 3, "refused": 1, "bytes_in": 10, "bytes_out": 20 },
        "peers": [{
            "name": "decode", "release": null, "path": "tcp", "lanes": 2, "queued_bytes": 0, "retries": 0,
            "ops": [{ "op": "read", "path": "tcp", "transfers": 7, "bytes": 0, "failures": 0,
                      "latency_us": { "count": 7, "p50": 12.5, "p99": 80.0 } }]
        }],
        "failures": []
    })
}
