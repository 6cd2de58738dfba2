//! Many peers for a long time, some of which die and return all the while.
//!
//! Owns the processes and the sums. Each peer judges its own bytes ([`peer`]); what a process takes is read from `/proc`,
//! for those that are never killed.

mod peer;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::dice::Dice;

pub(crate) use peer::run as run_peer;
use peer::{Roster, Word};

#[derive(Args)]
pub(crate) struct SoakArgs {
    /// How long
    #[arg(long, default_value_t = 3.0)]
    minutes: f64,
    /// Processes, each an engine that writes to and reads from all others
    #[arg(long, default_value_t = 200)]
    peers: usize,
    /// Processes killed and started again every second
    #[arg(long, default_value_t = 10)]
    deaths: usize,
    /// Rounds (a write, a read back, a comparison) that each begins every second
    #[arg(long, default_value_t = 5)]
    rate: u64,
}

/// Peers that are never killed, and whose memory and descriptors are watched.
const SURVIVORS: usize = 10;
/// What comes before this is warming up: lanes to everyone are opened.
const WARM: f64 = 0.4;
/// How much more a survivor may have at the end than when it was warm.
const GROWTH_KIB: u64 = 8 << 10;
/// Every peer has an address of its own, so all have the same port.
const PORT: u16 = 17_600;

/// Runs it, and says what came of it.
pub(crate) fn run(args: &SoakArgs) -> ExitCode {
    let peers = args.peers.max(SURVIVORS + 2);
    let roster =
        Roster { names: (0..peers).map(|nth| format!("{}:{PORT}", address(nth))).collect(), rate: args.rate };
    let (say, said) = channel();
    let mut all: Vec<Peer> = (0..peers).map(|nth| Peer::start(nth, &roster, say.clone())).collect();
    let mut sum = Sum::default();
    let (began, mut dice) = (Instant::now(), Dice::new(u64::from(std::process::id())));
    let (length, mut warm) = (Duration::from_secs_f64(args.minutes * 60.0), None);
    let mut next = began;
    while began.elapsed() < length {
        sum.hear(&said, next);
        next += Duration::from_secs(1);
        for _ in 0..args.deaths {
            let nth = SURVIVORS + dice.below((peers - SURVIVORS) as u64) as usize;
            all[nth].kill();
            all[nth] = Peer::start(nth, &roster, say.clone());
            sum.deaths += 1;
        }
        for peer in &mut all[..SURVIVORS] {
            if let Ok(Some(status)) = peer.child.try_wait() {
                sum.findings.push(format!("peer {} ended by itself: {status}", peer.nth));
            }
        }
        if warm.is_none() && began.elapsed() > length.mul_f64(WARM) {
            warm = Some(survey(&all));
        }
        if !sum.findings.is_empty() {
            break;
        }
    }
    let (warm, end) = (warm.unwrap_or_default(), survey(&all));
    drop(all);
    for ((nth, before), after) in warm.iter().enumerate().zip(&end) {
        if after.resident_kib > before.resident_kib + GROWTH_KIB {
            let text =
                format!("peer {nth} has grown from {} to {} KiB", before.resident_kib, after.resident_kib);
            sum.findings.push(text);
        }
        // Each peer is connected to at most so often: lanes, and the pieces of the same-host path, both ways.
        if after.files > before.files + peers {
            let text = format!("peer {nth} had {} descriptors, now {}", before.files, after.files);
            sum.findings.push(text);
        }
    }
    sum.print(began.elapsed(), peers, &warm, &end);
    if sum.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn address(nth: usize) -> IpAddr {
    let process = 64 + (std::process::id() % 160) as u8;
    IpAddr::V4(Ipv4Addr::new(127, process, 1 + (nth / 200) as u8, 1 + (nth % 200) as u8))
}

struct Peer {
    nth: usize,
    child: Child,
}

impl Peer {
    fn start(nth: usize, roster: &Roster, say: Sender<(usize, Word)>) -> Self {
        let mut child = Command::new("/proc/self/exe")
            .args(["soak-peer", &nth.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process can be started");
        let line = serde_json::to_string(roster).expect("it can be written");
        if let Some(input) = &mut child.stdin {
            let _ = writeln!(input, "{line}");
        }
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let Ok(word) = serde_json::from_str(&line) else { return };
                    if say.send((nth, word)).is_err() {
                        return;
                    }
                }
            });
        }
        Self { nth, child }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

#[derive(Default, Clone, Copy)]
struct Facts {
    files: usize,
    threads: u64,
    resident_kib: u64,
}

fn survey(all: &[Peer]) -> Vec<Facts> {
    let facts = |peer: &Peer| {
        let pid = peer.child.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let files = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        Facts { files, threads: field("Threads:"), resident_kib: field("VmRSS:") }
    };
    all[..SURVIVORS].iter().map(facts).collect()
}

#[derive(Default)]
struct Sum {
    deaths: usize,
    rounds: u64,
    bytes: u64,
    failed: BTreeMap<String, u64>,
    slowest: Duration,
    findings: Vec<String>,
}

impl Sum {
    fn hear(&mut self, said: &Receiver<(usize, Word)>, until: Instant) {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((nth, word)) = said.recv_timeout(left) else { return };
            self.rounds += word.rounds;
            self.bytes += word.bytes;
            for (code, count) in word.failed {
                *self.failed.entry(code).or_default() += count;
            }
            self.slowest = self.slowest.max(Duration::from_micros(word.slowest_micros));
            self.findings.extend(word.findings.into_iter().map(|text| format!("peer {nth}: {text}")));
        }
    }

    fn print(&self, took: Duration, peers: usize, warm: &[Facts], end: &[Facts]) {
        let seconds = took.as_secs_f64();
        println!(
            "soak: {peers} peers for {seconds:.0} s, {} killed and started again; {} rounds ({:.0}/s), {} MiB",
            self.deaths,
            self.rounds,
            self.rounds as f64 / seconds,
            self.bytes >> 20
        );
        let failed: Vec<String> = self.failed.iter().map(|(code, count)| format!("{code} {count}")).collect();
        println!(
            "calls that failed: {}; slowest call {:.2} s",
            failed.join(", "),
            self.slowest.as_secs_f64()
        );
        let most = |facts: &[Facts], of: fn(&Facts) -> u64| facts.iter().map(of).max().unwrap_or(0);
        for (name, facts) in [("warm", warm), ("end", end)] {
            println!(
                "{name}: at most {} KiB resident, {} descriptors, {} threads in a peer that was never killed",
                most(facts, |facts| facts.resident_kib),
                most(facts, |facts| facts.files as u64),
                most(facts, |facts| facts.threads)
            );
        }
        println!("findings: {}", self.findings.len());
        self.findings.iter().for_each(|text| println!("  {text}"));
    }
}
