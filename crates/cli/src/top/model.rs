//! What is known of the engines, and the figures made of it.
//!
//! Owns the last report of each engine and the rates between two of them. Pure: no clock, no socket, no screen; the moment is a
//! parameter.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use super::endpoint::Endpoint;
use super::report::{Failed, Op, Peer, Report};

/// All engines that are looked at, by where their reports are.
#[derive(Debug, Default)]
pub(crate) struct Model {
    engines: BTreeMap<Endpoint, Engine>,
    /// Why the list of engines cannot be read, if so.
    pub(crate) trouble: Option<String>,
}

#[derive(Debug, Default)]
struct Engine {
    /// Announced by a metadata server, and not given by the user.
    announced: bool,
    last: Option<Report>,
    rates: Option<Rates>,
    /// Why it could not be asked lately, and since when.
    unreachable: Option<(String, Instant)>,
    restarts: u64,
}

/// What changed between two reports of one process, a second.
#[derive(Debug, Default)]
struct Rates {
    ops: BTreeMap<Key, OpRate>,
    bytes_in: f64,
    bytes_out: f64,
}

/// Peer, path, op.
type Key = (String, String, String);

#[derive(Debug, Clone, Copy, Default)]
struct OpRate {
    bytes: f64,
    transfers: f64,
}

/// One engine, as it is shown. Rates are a second; `None` until two reports of the same process are there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct EngineRow {
    pub(crate) url: String,
    /// Its own name, or where it is while that is not known.
    pub(crate) name: String,
    pub(crate) release: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) epoch: Option<String>,
    pub(crate) uptime_seconds: Option<f64>,
    /// Bytes that its own transfers moved.
    pub(crate) moved: Option<f64>,
    /// Bytes that peers wrote here over sockets.
    pub(crate) served_in: Option<f64>,
    /// Bytes that peers read from here over sockets.
    pub(crate) served_out: Option<f64>,
    pub(crate) refused: u64,
    pub(crate) regions: u64,
    pub(crate) registered_bytes: u64,
    /// Times it was found to be another process than before.
    pub(crate) restarts: u64,
    /// Why it could not be asked.
    pub(crate) unreachable: Option<String>,
    pub(crate) unreachable_seconds: Option<u64>,
}

/// One engine's transfers with one peer, in one direction over one path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) engine: String,
    pub(crate) peer: String,
    pub(crate) path: Option<String>,
    pub(crate) op: Option<String>,
    pub(crate) bytes_per_second: Option<f64>,
    pub(crate) transfers_per_second: Option<f64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) transfers: u64,
    pub(crate) bytes: u64,
    pub(crate) failures: u64,
    pub(crate) lanes: u64,
    pub(crate) queued_bytes: u64,
    pub(crate) retries: u64,
}

/// A failure, and whose it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct FailureRow {
    pub(crate) engine: String,
    pub(crate) peer: Option<String>,
    pub(crate) op: Option<String>,
    pub(crate) code: String,
    pub(crate) stage: String,
    pub(crate) retry_safe: bool,
    pub(crate) message: String,
    /// Age when its engine last reported.
    pub(crate) seconds_ago: u64,
    /// The command that says more.
    pub(crate) explain: String,
}

impl Model {
    pub(crate) fn new(given: &[Endpoint]) -> Self {
        let engines = given.iter().map(|at| (at.clone(), Engine::default())).collect();
        Self { engines, trouble: None }
    }

    /// Takes an engine's answer, or why there was none.
    pub(crate) fn take(&mut self, at: &Endpoint, outcome: Result<Report, String>, now: Instant) {
        let Some(engine) = self.engines.get_mut(at) else { return };
        match outcome {
            Ok(report) => engine.take(report),
            Err(why) => {
                let since = engine.unreachable.take().map_or(now, |(_, since)| since);
                engine.unreachable = Some((why, since));
                engine.rates = None;
            }
        }
    }

    /// Takes the list of announced engines: those that are new are shown, those that are gone are not.
    pub(crate) fn announce(&mut self, listed: &[Endpoint]) {
        self.engines.retain(|at, engine| !engine.announced || listed.contains(at));
        for at in listed {
            let announced = || Engine { announced: true, ..Engine::default() };
            self.engines.entry(at.clone()).or_insert_with(announced);
        }
    }

    pub(crate) fn knows(&self, at: &Endpoint) -> bool {
        self.engines.contains_key(at)
    }

    /// The engines, by name.
    pub(crate) fn engines(&self, now: Instant) -> Vec<EngineRow> {
        let mut rows: Vec<EngineRow> = self.engines.iter().map(|(at, engine)| engine.row(at, now)).collect();
        rows.sort_by(|a, b| (&a.name, &a.url).cmp(&(&b.name, &b.url)));
        rows
    }

    /// Every engine's transfers. What an engine did that cannot be asked now is not shown as if it went on.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let reachable = self.engines.values().filter(|engine| engine.unreachable.is_none());
        reachable.flat_map(Engine::rows).collect()
    }

    /// Every engine's failures, newest first.
    pub(crate) fn failures(&self) -> Vec<FailureRow> {
        let mut all: Vec<(u64, FailureRow)> = Vec::new();
        for report in self.engines.values().filter_map(|engine| engine.last.as_ref()) {
            all.extend(report.failures.iter().map(|failed| (failed.time_ms, FailureRow::of(report, failed))));
        }
        all.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        all.into_iter().map(|(_, row)| row).collect()
    }
}

impl Engine {
    fn take(&mut self, report: Report) {
        self.unreachable = None;
        if let Some(before) = &self.last {
            if before.epoch != report.epoch || report.uptime_seconds < before.uptime_seconds {
                self.restarts += 1;
                self.rates = None;
            } else if report.uptime_seconds > before.uptime_seconds {
                self.rates = Rates::between(before, &report);
            }
        }
        self.last = Some(report);
    }

    fn row(&self, at: &Endpoint, now: Instant) -> EngineRow {
        let last = self.last.as_ref();
        let rates = self.rates.as_ref();
        EngineRow {
            url: at.to_string(),
            name: last.map_or_else(|| at.authority().to_owned(), |report| report.name.clone()),
            release: last.map(|report| report.release.clone()),
            pid: last.map(|report| report.pid),
            epoch: last.map(|report| report.epoch.clone()),
            uptime_seconds: last.map(|report| report.uptime_seconds),
            moved: rates.map(|rates| rates.ops.values().map(|rate| rate.bytes).sum()),
            served_in: rates.map(|rates| rates.bytes_in),
            served_out: rates.map(|rates| rates.bytes_out),
            refused: last.map_or(0, |report| report.served.refused),
            regions: last.map_or(0, |report| report.regions),
            registered_bytes: last.map_or(0, |report| report.registered_bytes),
            restarts: self.restarts,
            unreachable: self.unreachable.as_ref().map(|(why, _)| why.clone()),
            unreachable_seconds: self
                .unreachable
                .as_ref()
                .map(|(_, since)| now.saturating_duration_since(*since).as_secs()),
        }
    }

    fn rows(&self) -> Vec<Row> {
        let Some(report) = &self.last else { return Vec::new() };
        let row = |peer: &Peer, op: Option<&Op>| {
            let rate = op.and_then(|op| self.rates.as_ref()?.ops.get(&key(peer, op)));
            let latency = op.map(|op| op.latency_us).filter(|latency| latency.count > 0);
            Row {
                engine: report.name.clone(),
                peer: peer.name.clone(),
                path: op.map(|op| op.path.clone()).or_else(|| peer.path.clone()),
                op: op.map(|op| op.op.clone()),
                bytes_per_second: rate.map(|rate| rate.bytes),
                transfers_per_second: rate.map(|rate| rate.transfers),
                p50_us: latency.map(|latency| latency.p50),
                p99_us: latency.map(|latency| latency.p99),
                transfers: op.map_or(0, |op| op.transfers),
                bytes: op.map_or(0, |op| op.bytes),
                failures: op.map_or(0, |op| op.failures),
                lanes: peer.lanes,
                queued_bytes: peer.queued_bytes,
                retries: peer.retries,
            }
        };
        let of_peer = |peer: &Peer| -> Vec<Row> {
            match peer.ops.as_slice() {
                [] => vec![row(peer, None)],
                ops => ops.iter().map(|op| row(peer, Some(op))).collect(),
            }
        };
        report.peers.iter().flat_map(of_peer).collect()
    }
}

impl Rates {
    /// `None` where a counter fell: then it is not the same engine any more, whatever its epoch says.
    fn between(before: &Report, now: &Report) -> Option<Self> {
        let seconds = now.uptime_seconds - before.uptime_seconds;
        let per_second = |before: u64, now: u64| Some(now.checked_sub(before)? as f64 / seconds);
        let earlier = ops(before);
        let nothing = Op::default();
        let mut rates = Rates {
            ops: BTreeMap::new(),
            bytes_in: per_second(before.served.bytes_in, now.served.bytes_in)?,
            bytes_out: per_second(before.served.bytes_out, now.served.bytes_out)?,
        };
        for (key, op) in ops(now) {
            // Peers that are new were at 0 before.
            let before = earlier.get(&key).copied().unwrap_or(&nothing);
            let bytes = per_second(before.bytes, op.bytes)?;
            let transfers = per_second(before.transfers, op.transfers)?;
            rates.ops.insert(key, OpRate { bytes, transfers });
        }
        Some(rates)
    }
}

impl FailureRow {
    fn of(report: &Report, failed: &Failed) -> Self {
        let known = !failed.code.is_empty()
            && failed.code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        Self {
            engine: report.name.clone(),
            peer: failed.peer.clone(),
            op: failed.op.clone(),
            code: failed.code.clone(),
            stage: failed.stage.clone(),
            retry_safe: failed.retry_safe,
            message: failed.message.clone(),
            seconds_ago: report.time_ms.saturating_sub(failed.time_ms) / 1000,
            // What is pasted into a shell is a code, or nothing.
            explain: if known { format!("moonrail explain {}", failed.code) } else { String::new() },
        }
    }
}

fn ops(report: &Report) -> BTreeMap<Key, &Op> {
    report.peers.iter().flat_map(|peer| peer.ops.iter().map(move |op| (key(peer, op), op))).collect()
}

fn key(peer: &Peer, op: &Op) -> Key {
    (peer.name.clone(), op.path.clone(), op.op.clone())
}

#[cfg(test)]
mod tests;
