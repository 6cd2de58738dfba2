//! The report as JSON: docs/observability.md, "The report".

use std::time::SystemTime;

use moonrail_transport::Retry;
use serde::Serialize;

use super::quantile::quantiles;
use super::{Metrics, Moved, OPS, PATHS, PeerMetrics, milliseconds};
use crate::report::EngineReport;

/// What the engine knows at the moment of a question.
pub(crate) struct Now {
    pub engine: EngineReport,
    pub peers: Vec<KnownPeer>,
}

/// A peer that was met.
pub(crate) struct KnownPeer {
    pub name: String,
    pub release: String,
    pub path: &'static str,
    pub lanes: u64,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    time_ms: u64,
    name: &'a str,
    release: String,
    pid: u32,
    epoch: String,
    uptime_seconds: f64,
    paths: &'a [&'static str],
    fallbacks: &'a [String],
    regions: u64,
    registered_bytes: u64,
    served: Served,
    peers: Vec<Peer>,
    failures: Vec<Failure>,
}

#[derive(Serialize)]
struct Served {
    requests: u64,
    refused: u64,
    bytes_in: u64,
    bytes_out: u64,
}

#[derive(Serialize)]
struct Peer {
    name: String,
    release: Option<String>,
    path: Option<&'static str>,
    lanes: u64,
    queued_bytes: u64,
    retries: u64,
    ops: Vec<Op>,
}

#[derive(Serialize)]
struct Op {
    op: &'static str,
    path: &'static str,
    transfers: u64,
    bytes: u64,
    failures: u64,
    latency_us: Latency,
}

#[derive(Serialize)]
struct Latency {
    count: u64,
    p50: f64,
    p99: f64,
}

#[derive(Serialize)]
struct Failure {
    time_ms: u64,
    code: String,
    stage: &'static str,
    peer: Option<String>,
    op: &'static str,
    retry_safe: bool,
    message: String,
}

impl Metrics {
    /// What is known, as JSON.
    pub(crate) fn report(&self, now: &Now) -> String {
        let engine = &now.engine;
        let mut names: Vec<String> =
            self.peers.read().keys().filter(|name| !name.is_empty()).cloned().collect();
        names.sort_unstable();
        let failures = self.failures.lock().iter().map(failure).collect();
        let report = Report {
            schema: 1,
            time_ms: milliseconds(SystemTime::now()),
            name: &engine.name,
            release: format!("Moonrail {}", crate::RELEASE),
            pid: std::process::id(),
            epoch: format!("{:016x}", engine.epoch),
            uptime_seconds: self.began.elapsed().as_secs_f64(),
            paths: &engine.paths,
            fallbacks: &engine.fallbacks,
            regions: engine.regions as u64,
            registered_bytes: engine.registered_bytes,
            served: Served {
                requests: engine.served,
                refused: engine.refused,
                bytes_in: engine.bytes_in,
                bytes_out: engine.bytes_out,
            },
            peers: names.into_iter().map(|name| self.peer_report(name, now)).collect(),
            failures,
        };
        serde_json::to_string(&report).unwrap_or_default()
    }

    fn peer_report(&self, name: String, now: &Now) -> Peer {
        let (figures, known) = (self.peer(&name), now.peers.iter().find(|known| known.name == name));
        figures.gather();
        Peer {
            release: known.map(|known| known.release.clone()),
            path: known.map(|known| known.path),
            lanes: known.map_or(0, |known| known.lanes),
            queued_bytes: u64::try_from(figures.queued.get()).unwrap_or(0),
            retries: figures.retries.get(),
            ops: figures.ops(known.map(|known| known.path)),
            name,
        }
    }
}

impl PeerMetrics {
    /// What there is anything to say of. Failures stand with the path that the peer is reached by.
    fn ops(&self, path: Option<&str>) -> Vec<Op> {
        let usual = usize::from(path != Some(PATHS[0]));
        let each = |path: usize, op: usize| {
            let Moved { transfers, bytes, seconds } = &self.moved[path][op];
            let (count, [p50, p99]) = quantiles(seconds, [0.5, 0.99]);
            Op {
                op: OPS[op].as_str(),
                path: PATHS[path],
                transfers: transfers.get(),
                bytes: bytes.get(),
                failures: if path == usual { self.failed[op].get() } else { 0 },
                latency_us: Latency { count, p50, p99 },
            }
        };
        let all = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(path, op)| each(path, op));
        all.into_iter().filter(|op| op.transfers + op.failures > 0).collect()
    }
}

fn failure(failed: &super::Failed) -> Failure {
    let error = &failed.error;
    Failure {
        time_ms: milliseconds(failed.at),
        code: error.code().to_string(),
        stage: error.stage().as_str(),
        peer: error.peer().map(ToOwned::to_owned),
        op: failed.op.as_str(),
        retry_safe: error.retry() == Retry::Safe,
        message: error.to_string(),
    }
}
