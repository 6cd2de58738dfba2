//! How long batches take over the path, next to the bare system calls between the same two processes, in turns.
//!
//! `cargo run --release -p moonrail-shm --example timing`
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
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
    if std::env::args().nth(1).as_deref() == Some("target") {
        return serve();
    }
    let mut other = Command::new(std::env::current_exe().unwrap())
        .arg("target")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (buffer, contact) = line.trim_end().split_once(' ').unwrap();
    let target = Target {
        name: "far".to_owned(),
        addresses: Vec::new(),
        dialect: Dialect::MooncakeV2,
        generation: 1,
        same_host: Some(contact.to_owned()),
    };
    measure(&target, buffer.parse().unwrap(), other.id() as i32);
    other.kill().unwrap();
    other.wait().unwrap();
}

fn serve() {
    let side = Side::new();
    let buffer = side.buffer(&vec![1; POOL as usize]);
    let server = ShmServer::start(Arc::clone(&side.regions), 1).unwrap();
    println!("{buffer} {}", server.contact());
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn measure(target: &Target, remote: u64, pid: i32) {
    let (near, path) = (Side::new(), ShmPath::new());
    let local = near.buffer(&vec![2; POOL as usize]);
    let limit = Duration::from_secs(5);
    let control = Control { deadline: None, connect: limit, progress: limit, stop: &|| None };
    println!("{:<14} {:<6} {:>12} {:>12} {:>7}", "case", "", "path us", "bare us", "ratio");
    for (name, len, count, calls) in CASES {
        let entries: Vec<Entry> = (0..count)
            .map(|at| Entry { local: local + at * len, remote: remote + at * 7919 % count * len, len })
            .collect();
        for opcode in [Opcode::Write, Opcode::Read] {
            let want = if opcode == Opcode::Read { Want::Write } else { Want::Read };
            let holds = near.regions.hold_all([(local, POOL)], want).unwrap();
            let work = Work { opcode, entries: &entries, holds: &holds };
            let hold = holds.iter().next().unwrap();
            let mut bare = HeldCopy::default();
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..calls {
                let since = Instant::now();
                path.execute(target, &work, &control).unwrap();
                ours.push(since.elapsed());
                let since = Instant::now();
                for chunk in entries.chunks(MAX_PIECES) {
                    bare.clear();
                    for entry in chunk {
                        bare.push(hold, entry.local, entry.remote, entry.len).unwrap();
                    }
                    while bare.bytes() > 0 {
                        let copied =
                            if opcode == Opcode::Read { bare.read_from(pid) } else { bare.write_to(pid) };
                        bare.advance(copied.unwrap());
                    }
                }
                theirs.push(since.elapsed());
            }
            let (ours, theirs) = (median(ours), median(theirs));
            println!("{name:<14} {:<6} {ours:>12.2} {theirs:>12.2} {:>7.3}", opcode.as_str(), ours / theirs);
        }
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
