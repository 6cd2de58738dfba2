//! What stands on screens of several sizes.

#![allow(clippy::unwrap_used)]

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use super::*;

fn engine(name: &str, unreachable: Option<&str>) -> EngineRow {
    EngineRow {
        url: format!("http://{name}:1"),
        name: name.to_owned(),
        release: Some("Moonrail 0.1.0".to_owned()),
        pid: Some(1),
        epoch: None,
        uptime_seconds: Some(300.0),
        moved: unreachable.is_none().then_some(3e9),
        served_in: None,
        served_out: None,
        refused: 0,
        regions: 1,
        registered_bytes: 1 << 30,
        restarts: 0,
        unreachable: unreachable.map(str::to_owned),
        unreachable_seconds: unreachable.map(|_| 7),
    }
}

fn transfer(peer: &str) -> Row {
    Row {
        engine: "near".to_owned(),
        peer: peer.to_owned(),
        path: Some("tcp".to_owned()),
        op: Some("write".to_owned()),
        bytes_per_second: Some(1024.0 * 1024.0),
        transfers_per_second: Some(16.0),
        p50_us: Some(87.0),
        p99_us: Some(1500.0),
        transfers: 100,
        bytes: 6_553_600,
        failures: 3,
        lanes: 2,
        queued_bytes: 0,
        retries: 1,
    }
}

fn failure() -> FailureRow {
    FailureRow {
        engine: "near".to_owned(),
        peer: Some("gone".to_owned()),
        op: None,
        code: "PEER_GONE".to_owned(),
        stage: "wait".to_owned(),
        retry_safe: false,
        message: "x".to_owned(),
        seconds_ago: 90,
        explain: "moonrail explain PEER_GONE".to_owned(),
    }
}

struct Shown {
    engines: Vec<EngineRow>,
    rows: Vec<Row>,
    failures: Vec<FailureRow>,
    choice: Choice,
    paused: bool,
    scroll: usize,
    colours: bool,
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            engines: vec![engine("near", None), engine("far", Some("connection refused"))],
            rows: (0..30).map(|index| transfer(&format!("peer-{index}"))).collect(),
            failures: vec![failure()],
            choice: Choice::default(),
            paused: false,
            scroll: 0,
            colours: true,
        }
    }
}

impl Shown {
    fn draw(&self, width: u16, height: u16) -> Buffer {
        let scene = Scene {
            engines: &self.engines,
            rows: &self.rows,
            failures: &self.failures,
            trouble: None,
            choice: &self.choice,
            paused: self.paused,
            typing: false,
            scroll: self.scroll,
            interval: Duration::from_secs(1),
            colours: self.colours,
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| scene.draw(frame)).unwrap();
        terminal.backend().buffer().clone()
    }

    fn lines(&self, width: u16, height: u16) -> Vec<String> {
        let buffer = self.draw(width, height);
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..height).map(line).collect()
    }
}

#[test]
fn a_usual_screen_has_engines_transfers_failures_and_keys() {
    let lines = Shown::default().lines(140, 40);
    let text = lines.join("\n");
    assert!(lines[0].starts_with("moonrail top  1 of 2 engines  2.79 GiB/s"), "{text}");
    for part in [
        "unreachable for 7 s: connection refused",
        "up 5 min",
        "1.00 MiB/s",
        "87 us",
        "1.50 ms",
        "newest failures",
        "90 s ago  PEER_GONE  near to gone, wait  moonrail explain PEER_GONE",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(lines[39].starts_with("q quit"), "{text}");
}

#[test]
fn a_narrow_screen_keeps_peers_and_rates() {
    let text = Shown::default().lines(40, 20).join("\n");
    assert!(text.contains("peer-0") && text.contains("1.00 MiB/s"), "{text}");
    assert!(!text.contains("retries") && !text.contains("p50"), "{text}");
}

#[test]
fn no_size_panics() {
    for width in [0, 1, 2, 5, 17, 80, 300] {
        for height in [0, 1, 2, 3, 5, 8, 100] {
            Shown::default().draw(width, height);
            Shown { engines: vec![], rows: vec![], failures: vec![], ..Shown::default() }.draw(width, height);
        }
    }
}

#[test]
fn scrolling_begins_further_down_and_never_behind_the_end() {
    let shown = |scroll| Shown { scroll, ..Shown::default() }.lines(140, 40).join("\n");
    assert!(!shown(3).contains("peer-2 ") && shown(3).contains("peer-3 "));
    assert!(shown(500).contains("peer-29"));
}

#[test]
fn pause_and_filter_are_on_the_first_line() {
    let choice = Choice { filter: "abc".to_owned(), ..Choice::default() };
    let lines = Shown { choice, paused: true, ..Shown::default() }.lines(100, 20);
    assert!(lines[0].contains("PAUSED") && lines[0].contains("filter: abc"), "{}", lines[0]);
}

#[test]
fn without_colours_none_is_used() {
    let coloured = |colours| {
        let buffer = Shown { colours, ..Shown::default() }.draw(140, 40);
        buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(coloured(true) && !coloured(false));
}
