//! `moonrail ping`: is a peer alive, and what does it offer.

use std::thread;
use std::time::Duration;

use moonrail::{Error, PeerReport, ProbeReport};
use serde_json::{Value, json};

use crate::endpoint::{self, Metadata};
use crate::failure::Failure;
use crate::output::{Output, human_time};
use crate::size;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The peer: host:port of its handshake port, or with a metadata server its segment's name
    #[arg(value_name = "HOST:PORT")]
    peer: String,
    /// Probes to send
    #[arg(long, short = 'c', default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Seconds between two probes
    #[arg(long, short = 'i', default_value = "0.2", value_parser = seconds)]
    interval: Duration,
    /// Seconds to wait for an answer
    #[arg(long, short = 't', default_value = "5", value_parser = seconds)]
    timeout: Duration,
    #[command(flatten)]
    metadata: Metadata,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

/// Ends well if and only if the last probe was answered.
pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    if args.metadata.is_p2p() && !endpoint::has_port(&args.peer) {
        let what = format!("{}: a peer is host:port", args.peer);
        return Err(Failure::usage(what).fix("give the port of its handshake, such as 127.0.0.1:15123"));
    }
    let config = endpoint::caller(&args.peer, None, &args.metadata, Some(args.timeout))?;
    let engine = endpoint::start(config)?;
    let mut answers = Vec::new();
    let mut described = None;
    for number in 1..=args.count {
        if number > 1 {
            thread::sleep(args.interval);
        }
        let probe = engine.probe(&args.peer);
        if probe.is_ok() && described.is_none() {
            let description = engine.peer(&args.peer);
            if !args.json {
                describe(&args.peer, &description, out)?;
            }
            described = Some(description);
        }
        if !args.json
            && let Ok(probe) = &probe
        {
            out.line(format_args!("answer {number} in {}{}", human_time(probe.round_trip), legacy(probe)))?;
        }
        let dead = probe.is_err();
        answers.push(probe);
        if dead {
            break;
        }
    }
    conclude(args, &answers, described.as_ref(), out)
}

fn conclude(
    args: &Args,
    answers: &[Result<ProbeReport, Error>],
    described: Option<&Result<PeerReport, Error>>,
    out: &mut Output,
) -> Result<(), Failure> {
    let trips: Vec<Duration> =
        answers.iter().filter_map(|answer| answer.as_ref().ok()).map(|p| p.round_trip).collect();
    let failure = answers.iter().find_map(|answer| answer.as_ref().err());
    if args.json {
        out.json(&as_json(args, answers, described))?;
    } else if let (Some(min), Some(max)) = (trips.iter().min(), trips.iter().max()) {
        let mean = trips.iter().sum::<Duration>() / trips.len() as u32;
        out.line(format_args!(
            "{} of {} answered, round trip min/mean/max {} / {} / {}",
            trips.len(),
            answers.len(),
            human_time(*min),
            human_time(mean),
            human_time(*max)
        ))?;
    }
    match failure {
        // Dead is what was asked for, and has its own, plainest exit code.
        Some(error) => Err(Failure::engine(&format!("{} did not answer", args.peer), error).plain()),
        None => Ok(()),
    }
}

fn describe(peer: &str, description: &Result<PeerReport, Error>, out: &mut Output) -> Result<(), Failure> {
    let report = match description {
        Ok(report) => report,
        Err(error) => {
            out.line(format_args!("{peer} is alive, but does not describe itself: {error}"))?;
            return out
                .line("if it works with a metadata server: --metadata-server URL, and its segment's name");
        }
    };
    out.line(format_args!("{peer}: {}", report.release))?;
    let epoch = report.epoch.map_or_else(String::new, |epoch| format!(", epoch {epoch:016x}"));
    out.line(format_args!("protocol {}, data protocol v{}{epoch}", report.protocol, report.data_version))?;
    let data: Vec<String> = report.data.iter().map(ToString::to_string).collect();
    let why_not = report.why_not_shm.as_ref().map_or_else(String::new, |why| format!(" (not shm: {why})"));
    out.line(format_args!(
        "path {}{why_not}; over tcp {} at data port {}",
        report.path,
        report.dialect,
        data.join(", ")
    ))?;
    let total: u64 = report.buffers.iter().fold(0, |sum, buffer| sum.saturating_add(buffer.1));
    out.line(format_args!("buffers {}, {} in all", report.buffers.len(), size::human(total)))?;
    for (addr, len) in report.buffers.iter().take(8) {
        let name = report
            .names
            .iter()
            .find(|named| named.addr == *addr)
            .map_or_else(String::new, |named| format!(" {}", named.name));
        out.line(format_args!("  {addr:#x} {}{name}", size::human(*len)))?;
    }
    if report.buffers.len() > 8 {
        out.line(format_args!("  and {} more (--json has them all)", report.buffers.len() - 8))?;
    }
    Ok(())
}

fn as_json(
    args: &Args,
    answers: &[Result<ProbeReport, Error>],
    described: Option<&Result<PeerReport, Error>>,
) -> Value {
    let micros: Vec<f64> = answers
        .iter()
        .filter_map(|answer| answer.as_ref().ok())
        .map(|probe| probe.round_trip.as_secs_f64() * 1e6)
        .collect();
    let mut value = json!({
        "peer": args.peer,
        "alive": answers.last().is_some_and(Result::is_ok),
        "sent": answers.len(),
        "answered": micros.len(),
        "round_trips_us": micros,
        "legacy": answers.iter().flatten().any(|probe| probe.legacy),
        "error": answers.iter().find_map(|answer| answer.as_ref().err()).map(error_json),
        "description_error": described.and_then(|d| d.as_ref().err()).map(error_json),
    });
    if let Some(Ok(report)) = described {
        let buffers: Vec<Value> =
            report.buffers.iter().map(|(addr, len)| json!({ "addr": addr, "length": len })).collect();
        let names: Vec<Value> = report
            .names
            .iter()
            .map(|named| json!({ "name": named.name, "addr": named.addr, "length": named.len }))
            .collect();
        value["release"] = json!(report.release);
        value["protocol"] = json!(report.protocol);
        value["data_version"] = json!(report.data_version);
        value["data"] = report.data.iter().map(ToString::to_string).collect();
        value["handshake"] = json!(report.handshake);
        value["epoch"] = json!(report.epoch.map(|epoch| format!("{epoch:016x}")));
        value["path"] = json!(report.path);
        value["why_not_shm"] = json!(report.why_not_shm);
        value["dialect"] = json!(report.dialect);
        value["buffers"] = Value::Array(buffers);
        value["names"] = Value::Array(names);
    }
    value
}

fn error_json(error: &Error) -> Value {
    json!({ "code": error.code().as_str(), "stage": error.stage().as_str(), "message": error.message() })
}

fn legacy(probe: &ProbeReport) -> &'static str {
    if probe.legacy { " (to a metadata request: the peer is too old to know probes)" } else { "" }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration <= Duration::from_secs(3600) && !duration.is_zero() => Ok(duration),
        _ => Err("must be more than 0 and at most 3600 seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_positive_and_finite() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["0", "-1", "nan", "inf", "1e9", "soon"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
