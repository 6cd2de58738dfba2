//! Times the Rust API on small transfers, and what the engine itself costs; prints the rows of engine_bench.py.
//!
//! The target is this program again. The bytes are read back and compared.
#![allow(clippy::print_stdout)] // what it prints is read by compare.py

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use moonrail::{Config, Engine, Entry, Opcode, RegionOptions, Request};
use moonrail_benches::OverNothing;
use moonrail_transport::testkit::Side;

const MIB: u64 = 1 << 20;
/// Name, bytes, calls, calls with --quick.
const CASES: [(&str, u64, usize, usize); 2] = [("sync 64B", 64, 4000, 800), ("sync 4KiB", 4096, 4000, 800)];
const OWN_COST: &str = "own cost 4096 descriptors";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    if flag("--target") {
        return target();
    }
    let only =
        arguments.iter().position(|argument| argument == "--only").and_then(|at| arguments.get(at + 1));
    let chosen = |name: &str| only.is_none_or(|only| name.contains(only.as_str()));
    if CASES.iter().any(|(name, ..)| chosen(name)) {
        let mut bench = Bench::start()?;
        for (name, len, calls, quick) in CASES.into_iter().filter(|(name, ..)| chosen(name)) {
            for opcode in [Opcode::Write, Opcode::Read] {
                let times = bench.times(opcode, len, if flag("--quick") { quick } else { calls });
                row(name, opcode.as_str(), 1, len, times);
            }
        }
        bench.far.kill()?;
        bench.far.wait()?;
    }
    if chosen(OWN_COST) {
        row(OWN_COST, "write", 4096, 0, own_cost(4096));
    }
    Ok(())
}

/// The far end: registered memory, until it is ended.
fn target() -> Outcome<()> {
    let engine = Engine::start(Config::new("127.0.0.1", "P2PHANDSHAKE"))?;
    let memory = Side::new();
    let range = memory.range(MIB);
    Side::poke(range, &vec![0; MIB as usize]);
    engine.register(range, RegionOptions::default())?;
    println!("{} {}", engine.name(), range.addr());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

struct Bench {
    engine: Engine,
    far: Child,
    peer: String,
    remote: u64,
    memory: Side,
    local: u64,
    seed: u8,
}

impl Bench {
    fn start() -> Outcome<Self> {
        let mut far = Command::new(std::env::current_exe()?)
            .arg("--target")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(far.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let (peer, remote) = line.trim().split_once(' ').ok_or("the target did not start")?;
        let engine = Engine::start(Config::new("127.0.0.1", "P2PHANDSHAKE"))?;
        let memory = Side::new();
        let range = memory.range(MIB);
        engine.register(range, RegionOptions::default())?;
        let (peer, remote) = (peer.to_owned(), remote.parse()?);
        Ok(Self { engine, far, peer, remote, local: range.addr(), memory, seed: 0 })
    }

    fn request(&self, opcode: Opcode, len: u64) -> Request {
        let entry = Entry { local: self.local, remote: self.remote, len };
        Request::new(&*self.peer, opcode, vec![entry])
    }

    /// Seconds of each call, rising.
    fn times(&mut self, opcode: Opcode, len: u64, calls: usize) -> Outcome<Vec<f64>> {
        self.seed += 1;
        let bytes: Vec<u8> = (0..len).map(|at| (at % 249) as u8 ^ self.seed).collect();
        let blank = vec![0; len as usize];
        self.memory.set(self.local, &bytes);
        if opcode == Opcode::Read {
            self.engine.transfer(&self.request(Opcode::Write, len))?;
            self.memory.set(self.local, &blank);
        }
        let request = self.request(opcode, len);
        self.engine.transfer(&request)?;
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let began = Instant::now();
            self.engine.transfer(&request)?;
            times.push(began.elapsed().as_secs_f64());
        }
        if opcode == Opcode::Write {
            self.memory.set(self.local, &blank);
            self.engine.transfer(&self.request(Opcode::Read, len))?;
        }
        if self.memory.get(self.local, len as usize) != bytes {
            return Err("the bytes that arrived differ".into());
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }
}

/// Seconds of each call with `count` descriptors whose path does nothing.
fn own_cost(count: u64) -> Outcome<Vec<f64>> {
    let over = OverNothing::start()?;
    let request = over.request(count);
    let mut times = Vec::new();
    for _ in 0..500 {
        let began = Instant::now();
        over.engine.transfer(&request)?;
        times.push(began.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

fn row(case: &str, op: &str, requests: u64, len: u64, times: Outcome<Vec<f64>>) {
    let fields = match times {
        Err(error) => serde_json::json!({"case": case, "op": op, "error": error.to_string()}),
        Ok(times) => {
            let us = |share: f64| times[((times.len() as f64 * share) as usize).min(times.len() - 1)] * 1e6;
            let mut fields = serde_json::json!({
                "case": case, "op": op, "error": null, "requests": requests, "median_us": us(0.5), "min_us": us(0.0),
                "p99_us": us(0.99), "us_per_request": us(0.5) / requests as f64,
            });
            if len > 0 {
                fields["bytes"] = len.into();
                fields["gbps"] = (len as f64 / us(0.5) / 1e3).into();
            }
            fields
        }
    };
    println!("{fields}");
}
