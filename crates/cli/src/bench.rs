//! `moonrail bench`: batches of equal blocks from several threads, for a while.
//!
//! The workload is that of Mooncake's `transfer_engine_bench`, so that numbers compare: each thread repeats one batch,
//! the blocks of all threads lie side by side, and a batch is timed from its start until all of it is applied.

mod load;
mod units;

use std::io::Write;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use moonrail::{Engine, Opcode, PeerReport};
use serde_json::json;

use crate::bench::load::{Load, Outcome, Shared};
use crate::bench::units::Unit;
use crate::endpoint::{self, Metadata};
use crate::failure::Failure;
use crate::output::{Facts, Output, human_time, progress};
use crate::{serve, size};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// initiator measures; target is `moonrail serve` with a buffer of --buffer-size
    #[arg(long, value_enum, default_value_t = Mode::Initiator)]
    mode: Mode,
    /// The target: host:port, or with a metadata server its segment's name [initiator]
    #[arg(long, alias = "segment_id", value_name = "PEER")]
    segment_id: Option<String>,
    /// Direction, seen from the initiator
    #[arg(long, value_enum, default_value_t = Operation::Read)]
    operation: Operation,
    /// Bytes a block
    #[arg(long, alias = "block_size", value_parser = size::parse_positive, default_value = "64KiB")]
    block_size: u64,
    /// Blocks a batch
    #[arg(long, alias = "batch_size", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    batch_size: u64,
    /// Threads, each with one batch in flight
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Seconds to measure
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration: u64,
    /// Bytes of registered memory on this side
    #[arg(long, alias = "buffer_size", value_parser = size::parse_positive, default_value = "1GiB")]
    buffer_size: u64,
    /// Unit of the throughput
    #[arg(long, alias = "report_unit", value_enum, default_value_t = Unit::GigaBytes)]
    report_unit: Unit,
    /// Digits of the throughput behind the point
    #[arg(long, alias = "report_precision", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=12))]
    report_precision: u8,
    #[command(flatten)]
    metadata: Metadata,
    /// This side's host (P2P; default: the address that this host uses towards the target) or segment name
    #[arg(long, alias = "local_server_name", value_name = "NAME")]
    local_server_name: Option<String>,
    /// tcp; rdma is carried out over tcp, and says so
    #[arg(long, default_value = "tcp")]
    protocol: String,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Target,
    Initiator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Operation {
    Read,
    Write,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
        }
    }
}

impl Args {
    /// Whether this is `serve` under its other name.
    pub(crate) fn is_target(&self) -> bool {
        self.mode == Mode::Target
    }
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    if args.is_target() {
        return serve::run(&target(args)?, out);
    }
    let Some(peer) = args.segment_id.as_deref() else {
        return Err(Failure::usage("bench needs a target")
            .fix("give --segment-id HOST:PORT; `moonrail serve` is one"));
    };
    let needed = needed(args)?;
    let mut config = endpoint::caller(peer, args.local_server_name.as_deref(), &args.metadata, None)?;
    config.protocol.clone_from(&args.protocol);
    let engine = endpoint::start(config)?;
    for fallback in engine.report().map(|report| report.fallbacks).unwrap_or_default() {
        let _ = writeln!(std::io::stderr(), "moonrail: {fallback}");
    }
    let failed = |what: &'static str| move |error: moonrail::Error| Failure::engine(what, &error);
    let report = engine.peer(peer).map_err(failed("bench: cannot open the target"))?;
    let remote = remote_buffer(&report, needed)?;
    let local = engine.allocate(args.buffer_size).map_err(failed("bench: cannot allocate the buffer"))?;
    serve::touch(&engine, local, args.buffer_size)?;
    let opcode = match args.operation {
        Operation::Read => Opcode::Read,
        Operation::Write => Opcode::Write,
    };
    let load = Load {
        peer: peer.to_owned(),
        opcode,
        block: args.block_size,
        batch: args.batch_size,
        threads: args.threads,
        local,
        remote,
    };
    let outcome = measure(args, &engine, &load)?;
    print(args, &report, &outcome, out)
}

/// Bytes that the blocks of all threads cover, which must fit on both sides.
fn needed(args: &Args) -> Result<u64, Failure> {
    let needed =
        args.block_size.checked_mul(args.batch_size).and_then(|batch| batch.checked_mul(args.threads));
    match needed {
        Some(needed) if needed <= args.buffer_size => Ok(needed),
        needed => {
            let total = needed.map_or_else(|| "more than 2^64 bytes".to_owned(), size::human);
            let what = format!(
                "--block-size {} x --batch-size {} x --threads {} is {total}, more than --buffer-size {}",
                size::human(args.block_size),
                args.batch_size,
                args.threads,
                size::human(args.buffer_size)
            );
            Err(Failure::usage(what).fix("make the buffer larger, or one of the others smaller"))
        }
    }
}

/// The target's first buffer that holds the blocks of all threads.
fn remote_buffer(report: &PeerReport, needed: u64) -> Result<u64, Failure> {
    let fits = report.buffers.iter().find(|(_, len)| *len >= needed);
    fits.map(|(addr, _)| *addr).ok_or_else(|| {
        let largest = report.buffers.iter().map(|(_, len)| *len).max().unwrap_or(0);
        let what = format!(
            "bench: {} has no buffer of {}: its largest is {}",
            report.name,
            size::human(needed),
            size::human(largest)
        );
        Failure::failed(what).fix("start the target with a larger buffer, or make the batch smaller")
    })
}

fn target(args: &Args) -> Result<serve::Args, Failure> {
    if args.segment_id.is_some() {
        return Err(
            Failure::usage("--segment-id with --mode target: a target calls nobody").fix("leave it out")
        );
    }
    let local = args.local_server_name.clone();
    let (host, name) = if args.metadata.is_p2p() { (local, None) } else { (None, local) };
    let (host, port) = match host {
        Some(both) if endpoint::has_port(&both) => {
            let (host, port) = both.rsplit_once(':').unwrap_or((&both, ""));
            let port = port
                .parse()
                .map_err(|_| Failure::usage(format!("--local-server-name {both}: no such port")))?;
            (Some(host.to_owned()), Some(port))
        }
        host => (host, None),
    };
    Ok(serve::Args {
        host,
        port,
        metadata: args.metadata.clone(),
        name,
        size: args.buffer_size,
        readonly: false,
        metrics: None,
        protocol: args.protocol.clone(),
        json: args.json,
    })
}

fn measure(args: &Args, engine: &Engine, load: &Load) -> Result<Outcome, Failure> {
    let shared = Shared::new(Duration::from_secs(args.duration));
    let bar = progress(args.duration * 10, "{elapsed_precise} [{bar:40}] {msg}", args.json);
    let outcomes: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..load.threads)
            .map(|thread| {
                let (shared, engine) = (&shared, engine.clone());
                scope.spawn(move || load.work(thread, &engine, shared))
            })
            .collect();
        let mut before = (Instant::now(), 0);
        while !workers.iter().all(|worker| worker.is_finished()) {
            thread::sleep(Duration::from_millis(20));
            if before.0.elapsed() < Duration::from_millis(500) {
                continue;
            }
            let now = (Instant::now(), shared.bytes.load(Ordering::Relaxed));
            let rate = args.report_unit.rate(now.1 - before.1, now.0 - before.0);
            bar.set_message(format!(
                "{rate:.*} {}/s",
                usize::from(args.report_precision),
                args.report_unit.as_str()
            ));
            bar.set_position((shared.elapsed().as_millis() / 100) as u64);
            before = now;
        }
        workers.into_iter().map(|worker| worker.join().expect("invariant: a worker does not panic")).collect()
    });
    bar.finish_and_clear();
    Outcome::merge(outcomes).map_err(|error| Failure::engine("bench: the transfer failed", &error))
}

fn print(args: &Args, target: &PeerReport, outcome: &Outcome, out: &mut Output) -> Result<(), Failure> {
    let batch_bytes = args.block_size * args.batch_size;
    let bytes = outcome.batches * batch_bytes;
    let rate = args.report_unit.rate(bytes, outcome.time);
    let at = |quantile| Duration::from_nanos(outcome.latency.value_at_quantile(quantile));
    let max = Duration::from_nanos(outcome.latency.max());
    let unit = args.report_unit.as_str();
    if args.json {
        return out.json(&json!({
            "target": target.name,
            "release": target.release,
            "operation": args.operation.as_str(),
            "block_size": args.block_size,
            "batch_size": args.batch_size,
            "threads": args.threads,
            "seconds": outcome.time.as_secs_f64(),
            "batches": outcome.batches,
            "bytes": bytes,
            "bytes_per_second": bytes as f64 / outcome.time.as_secs_f64(),
            "throughput": rate,
            "unit": format!("{unit}/s"),
            "batch_latency_us": {
                "p50": at(0.5).as_secs_f64() * 1e6,
                "p99": at(0.99).as_secs_f64() * 1e6,
                "max": max.as_secs_f64() * 1e6,
            },
        }));
    }
    let precision = usize::from(args.report_precision);
    let mut facts = Facts::new();
    facts.add("target", format_args!("{} ({})", target.name, target.release));
    facts.add("operation", args.operation.as_str());
    facts.add(
        "load",
        format_args!(
            "{} threads, batches of {} x {}",
            args.threads,
            args.batch_size,
            size::human(args.block_size)
        ),
    );
    facts.add("moved", format_args!("{} in {} batches", size::human(bytes), outcome.batches));
    facts.add("throughput", format_args!("{rate:.precision$} {unit}/s"));
    facts.add("latency p50", human_time(at(0.5)));
    facts.add("latency p99", human_time(at(0.99)));
    facts.add("latency max", human_time(max));
    facts.print(out)?;
    out.line(format_args!(
        "Test completed: duration {:.2}, batch count {}, throughput {rate:.precision$} {unit}/s",
        outcome.time.as_secs_f64(),
        outcome.batches
    ))
}
