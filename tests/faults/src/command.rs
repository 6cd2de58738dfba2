//! The command line, and many schedules at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};

use crate::hostile::{self, HostileArgs};
use crate::link::Link;
use crate::plan::{Plan, Wiring};
use crate::rig::Rig;
use crate::run::{self, Tally};
use crate::sealing::{Over, Sealed, Sealing};
use crate::soak::{self, SoakArgs};

/// Seeds that failed once; replayed first in every run over a range.
const KEPT: &str = include_str!("../seeds.txt");

#[derive(Parser)]
#[command(about = "Moonrail's fault suite")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs seeded schedules
    Run(RunArgs),
    /// Runs many peers, some of which die and return all the while
    Soak(SoakArgs),
    /// Throws hostile messages at the live ports of one process, while honest clients use it
    Hostile(HostileArgs),
    /// The process that is thrown at
    #[command(hide = true)]
    HostileTarget,
    /// A process under test, told what to do on its standard input
    #[command(hide = true)]
    Node,
    /// One peer of a soak
    #[command(hide = true)]
    SoakPeer { nth: usize },
}

#[derive(Args)]
struct RunArgs {
    /// The seeds to run, FROM..TO
    #[arg(long, value_name = "FROM..TO", value_parser = range, default_value = "0..1000")]
    seeds: Range<u64>,
    /// One seed only
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// How often to run each; what is a matter of timing shows more often then
    #[arg(long, default_value_t = 1)]
    times: u64,
    /// Sets of processes at once
    #[arg(long, default_value_t = 8)]
    sets: usize,
    /// What the nodes' bytes travel over
    #[arg(long, value_enum, default_value_t = Over::Clear)]
    over: Over,
    /// Print each seed's plan, and run nothing
    #[arg(long)]
    show: bool,
    /// Print one message of each kind of failure that transfers ended with
    #[arg(long)]
    messages: bool,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("a range looks like 0..1000")?;
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
    Ok(number(from)?..number(to)?)
}

pub(crate) fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Node => {
            crate::node::run();
            ExitCode::SUCCESS
        }
        Command::SoakPeer { nth } => {
            soak::run_peer(nth);
            ExitCode::SUCCESS
        }
        Command::Soak(args) => soak::run(&args),
        Command::Hostile(args) => hostile::run(&args),
        Command::HostileTarget => {
            hostile::run_target();
            ExitCode::SUCCESS
        }
        Command::Run(args) => run_all(&args),
    }
}

fn run_all(args: &RunArgs) -> ExitCode {
    let seeds: Vec<u64> = match args.seed {
        Some(seed) => vec![seed],
        None => kept().chain(args.seeds.clone()).collect(),
    };
    let seeds: Vec<u64> = (0..args.times).flat_map(|_| seeds.iter().copied()).collect();
    if args.show {
        seeds.iter().for_each(|seed| println!("{seed}: {}", Plan::draw(*seed).summary()));
        return ExitCode::SUCCESS;
    }
    let began = Instant::now();
    let no_link = Link::new(99, &[], &[]).err();
    let (next, stop, sum) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::default());
    let sealed = Sealed::new(args.over);
    let sealing = sealed.sealing.clone();
    let all = Shared { seeds, next, stop, sum, no_link, sealing };
    thread::scope(|scope| {
        for worker in 0..args.sets.clamp(1, all.seeds.len().max(1)) {
            let all = &all;
            scope.spawn(move || all.work(worker));
        }
    });
    let no_link = all.no_link;
    let sum = all.sum.into_inner().expect("no holder panics");
    sum.print(began.elapsed());
    if let Some(why) = no_link.filter(|_| sum.unlinked > 0) {
        println!("{} schedules skipped that need a link between network namespaces: {why}", sum.unlinked);
    }
    if args.messages {
        sum.samples.values().for_each(|text| println!("    {text}"));
    }
    if sum.findings == 0 && sum.too_late() {
        println!("FAILED: bytes of reported failures land too often when a stopped target goes on");
        return ExitCode::FAILURE;
    }
    if sum.findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn kept() -> impl Iterator<Item = u64> {
    let lines = KEPT.lines().filter_map(|line| line.split_whitespace().next());
    lines.filter_map(|word| word.parse().ok())
}

struct Shared {
    seeds: Vec<u64>,
    next: AtomicUsize,
    stop: AtomicBool,
    sum: Mutex<Sum>,
    /// Why no link between namespaces can be made here.
    no_link: Option<String>,
    sealing: Sealing,
}

impl Shared {
    fn work(&self, worker: usize) {
        let mut rigs: BTreeMap<Wiring, Rig> = BTreeMap::new();
        while !self.stop.load(Ordering::Relaxed) {
            let Some(&seed) = self.seeds.get(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            let plan = Plan::draw(seed);
            if plan.wiring == Wiring::Linked && self.no_link.is_some() {
                self.sum.lock().expect("no holder panics").unlinked += 1;
                continue;
            }
            let rig = match rigs.remove(&plan.wiring) {
                Some(rig) => Ok(rig),
                None => Rig::new(worker, plan.wiring, self.sealing.clone()),
            };
            let outcome = rig.and_then(|mut rig| {
                let before = rig.schedules;
                match run::run(&mut rig, &plan) {
                    Ok(tally) => {
                        rigs.insert(plan.wiring, rig);
                        Ok(tally)
                    }
                    // The set of processes is in doubt, and ends here.
                    Err(wrong) => {
                        Err(format!("{wrong}\n    in the set's schedule {}, {}", before + 1, rig.logs()))
                    }
                }
            });
            let mut sum = self.sum.lock().expect("no holder panics");
            match outcome {
                Ok(tally) => sum.add(&tally),
                Err(wrong) => {
                    sum.findings += 1;
                    println!("FAILED seed {seed}: {wrong}\n    plan: {}", plan.summary());
                    println!(
                        "    again: cargo xtask faults --seed {seed} --times 50 --over {}",
                        self.sealing.name()
                    );
                    if sum.findings >= 10 {
                        self.stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    }
}

#[derive(Default)]
struct Sum {
    schedules: usize,
    findings: usize,
    fired: usize,
    stood_still: usize,
    late: usize,
    unlinked: usize,
    succeeded: usize,
    unreported: usize,
    failed: BTreeMap<String, usize>,
    samples: BTreeMap<String, String>,
    slowest: Duration,
}

impl Sum {
    fn add(&mut self, tally: &Tally) {
        self.schedules += 1;
        self.fired += usize::from(tally.fired);
        self.stood_still += usize::from(tally.stood_still);
        self.late += usize::from(tally.late);
        self.succeeded += tally.succeeded;
        self.unreported += tally.unreported;
        for (code, count) in &tally.failed {
            *self.failed.entry(code.clone()).or_default() += count;
        }
        for (code, text) in &tally.samples {
            self.samples.entry(code.clone()).or_insert_with(|| text.clone());
        }
        self.slowest = self.slowest.max(tally.slowest);
    }

    /// A thread can be stopped between its look at a connection and its receive (docs/guarantees.md). That is rare; without
    /// the look it would be the rule.
    fn too_late(&self) -> bool {
        self.late > 3 + self.stood_still / 20
    }

    fn print(&self, took: Duration) {
        let failed: usize = self.failed.values().sum();
        println!(
            "faults: {} schedules in {:.1} s, {} with a fault that came about, {} findings",
            self.schedules + self.findings,
            took.as_secs_f64(),
            self.fired,
            self.findings
        );
        println!(
            "transfers: {} succeeded, {failed} failed as they should, {} died with their process; slowest {:.2} s",
            self.succeeded,
            self.unreported,
            self.slowest.as_secs_f64()
        );
        println!(
            "{} schedules with a target that stood still; in {} of them a receive went on when it did",
            self.stood_still, self.late
        );
        let codes: Vec<String> = self.failed.iter().map(|(code, count)| format!("{code} {count}")).collect();
        println!("failures: {}", codes.join(", "));
    }
}
