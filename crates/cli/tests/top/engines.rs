//! Two real engines that move bytes, found through a metadata server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use moonrail::{Config, Engine, Entry, Opcode, Request};

use super::support::{Running, finish, json};
use super::terminal::Terminal;

const LEN: u64 = 1 << 20;

/// An engine in this process that writes to `far` all the time.
struct Writer {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn start(metadata: &str) -> Self {
        let mut config = Config::new("near", metadata);
        config.metrics = Some("127.0.0.1:0".to_owned());
        config.listen = Some("127.0.0.1".parse().unwrap());
        config.paths.shm = false;
        let engine = Engine::start(config).unwrap();
        let local = engine.allocate(LEN).unwrap();
        let remote = engine.first_buffer("far").unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&over);
        let write = move || {
            let request = Request::new("far", Opcode::Write, vec![Entry { local, remote, len: LEN }]);
            while !ending.load(Ordering::SeqCst) {
                // It fails once `far` is gone, which is to be shown.
                let _ = engine.transfer(&request);
                std::thread::sleep(Duration::from_millis(3));
            }
        };
        Self { over, thread: Some(std::thread::spawn(write)) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = self.thread.take().unwrap().join();
    }
}

fn transfers(text: &str) -> Option<&str> {
    text.lines().find(|line| line.starts_with("near") && line.contains("write"))
}

#[test]
fn what_two_engines_move_is_shown_and_so_is_the_end_of_one() {
    let mut server = Running::start(&["metadata-server", "--port", "0", "--json"]);
    let url = server.json_line()["url"].as_str().unwrap().to_owned();
    let mut far = Running::start(&[
        "serve",
        "--host",
        "127.0.0.1",
        "--metadata-server",
        &url,
        "--name",
        "far",
        "--metrics",
        "0",
        "--size",
        "8MiB",
        "--json",
    ]);
    assert!(far.json_line()["metrics"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    let _writer = Writer::start(&url);

    let mut terminal = Terminal::start(&["top", "--interval", "0.2", "--metadata", &url], (30, 140), &[]);
    let moving =
        |text: &str| transfers(text).is_some_and(|line| line.contains("far") && line.contains("MiB/s"));
    let first = terminal.wait_for("a rate", moving);
    assert!(first.contains("2 of 2 engines"), "{first}");
    let before = transfers(&first).unwrap().to_owned();
    terminal.wait_for("another rate", |text| moving(text) && transfers(text) != Some(before.as_str()));
    // What one writes, the other is written.
    terminal.wait_for("what is served", |text| {
        text.lines().any(|line| line.starts_with("far") && line.contains("up ") && line.contains("MiB/s"))
    });

    let told = json(&finish(&["top", "--json", "--interval", "0.5", "--metadata", &url]));
    let near = told["engines"].as_array().unwrap().iter().find(|engine| engine["name"] == "near").unwrap();
    let far_in = told["engines"].as_array().unwrap().iter().find(|engine| engine["name"] == "far").unwrap();
    let (moved, served) = (near["moved"].as_f64().unwrap(), far_in["served_in"].as_f64().unwrap());
    assert!(moved > 0.0 && (0.5..2.0).contains(&(served / moved)), "{told}");

    far.signal("KILL");
    terminal.wait_for("the end of one and what failed", |text| {
        text.contains("unreachable for")
            && text.contains("newest failures")
            && text.contains("moonrail explain PEER_")
    });
    terminal.press("q");
    assert_eq!(terminal.assert_restored().code(), Some(0));
}
