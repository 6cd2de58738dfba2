//! How long batches take over the path, by the kernel's copies and through mapped memory, next to the bare system calls between
//! the same processes, in turns.
//!
//! `cargo run --release -p moonrail-shm --example timing`
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_memory::Want;
use moonrail_memory::cross::{HeldCopy, MAX_PIECES};
use moonrail_shm::{ShmPath, ShmServer};
use moonrail_transport::testkit::Side;
use moonrail_transport::{Control, Dialect, Entry, Opcode, Path, Target, Work};

const POOL: u64 = 128 << 20;
const CASES: [(&str, u64, u64, usize); 8] = [
    ("64 B", 64, 1, 20_000),
    ("4 KiB", 4096, 1, 20_000),
    ("64 KiB", 64 << 10, 1, 2000),
    ("1 MiB", 1 << 20, 1, 300),
    ("128 x 4 KiB", 4096, 128, 500),
    ("4096 x 4 KiB", 4096, 4096, 30),
    ("20000 x 1 KiB", 1024, 20_000, 20),
    ("128 MiB", POOL, 1, 8),
];

fn main() {
    if let Some(kind) = std::env::args().nth(1) {
        return serve(side(&kind));
    }
    let mut across = Far::start("private");
    let mut mapped = Far::start("shared");
    measure(&across, &mapped);
    for far in [&mut across, &mut mapped] {
        far.process.kill().unwrap();
        far.process.wait().unwrap();
    }
}

fn side(kind: &str) -> Side {
    if kind == "private" { Side::private() } else { Side::new() }
}

fn serve(side: Side) {
    let buffer = side.buffer(&vec![1; POOL as usize]);
    let server = ShmServer::start(Arc::clone(&side.regions), 1).unwrap();
    println!("{buffer} {}", server.contact());
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Another process, and a buffer of it.
struct Far {
    process: Child,
    target: Target,
    buffer: u64,
}

impl Far {
    fn start(kind: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .arg(kind)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (buffer, contact) = line.trim_end().split_once(' ').unwrap();
        let target = Target {
            name: "far".to_owned(),
            addresses: Vec::new(),
            dialect: Dialect::MooncakeV2,
            tls: None,
            generation: 1,
            same_host: Some(contact.to_owned()),
        };
        Self { buffer: buffer.parse().unwrap(), process, target }
    }
}

fn measure(across: &Far, mapped: &Far) {
    let (near, path) = (Side::new(), ShmPath::new());
    let local = near.buffer(&vec![2; POOL as usize]);
    let limit = Duration::from_secs(5);
    let control = Control { deadline: None, connect: limit, progress: limit, stop: &|| None };
    println!(
        "{:<14} {:<6} {:>12} {:>12} {:>7} {:>12}",
        "case", "", "bare us", "across us", "ratio", "mapped us"
    );
    for (name, len, count, calls) in CASES {
        let entries = |far: &Far| -> Vec<Entry> {
            let remote = |at| far.buffer + at * 7919 % count * len;
            (0..count).map(|at| Entry { local: local + at * len, remote: remote(at), len }).collect()
        };
        let (by_kernel, by_map) = (entries(across), entries(mapped));
        for opcode in [Opcode::Write, Opcode::Read] {
            let want = if opcode == Opcode::Read { Want::Write } else { Want::Read };
            let holds = near.regions.hold_all([(local, POOL)], want).unwrap();
            let hold = holds.iter().next().unwrap();
            let timed = |far: &Far, entries: &[Entry], times: &mut Vec<Duration>| {
                let work = Work { opcode, entries, holds: &holds };
                let since = Instant::now();
                path.execute(&far.target, &work, &control).unwrap();
                times.push(since.elapsed());
            };
            let mut bare = HeldCopy::default();
            let (mut kernel, mut map, mut calls_only) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..calls {
                timed(across, &by_kernel, &mut kernel);
                timed(mapped, &by_map, &mut map);
                let since = Instant::now();
                for chunk in by_kernel.chunks(MAX_PIECES) {
                    bare.clear();
                    for entry in chunk {
                        bare.push(hold, entry.local, entry.remote, entry.len).unwrap();
                    }
                    while bare.bytes() > 0 {
                        let pid = across.process.id() as i32;
                        let copied =
                            if opcode == Opcode::Read { bare.read_from(pid) } else { bare.write_to(pid) };
                        bare.advance(copied.unwrap());
                    }
                }
                calls_only.push(since.elapsed());
            }
            let [kernel, map, bare] = [kernel, map, calls_only].map(median);
            println!(
                "{name:<14} {:<6} {bare:>12.2} {kernel:>12.2} {:>7.3} {map:>12.2}",
                opcode.as_str(),
                kernel / bare
            );
        }
        let bytes = path.mapped_bytes(&mapped.target);
        assert!(bytes >= POOL && path.mapped_bytes(&across.target) == 0, "{bytes} bytes are mapped");
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
