//! The figures of an engine, if it was asked to keep them (docs/observability.md): what was moved, by peer, path and
//! operation, how long that took, and the newest failures.
//!
//! Owns the counters and their names. Must not know who reads them, or how bytes move.

mod quantile;
mod report;
mod tally;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use foldhash::HashMap;
use moonrail_transport::{Error, Opcode};
use parking_lot::{Mutex, RwLock};
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use moonrail_metadata::Figures;

use crate::engine::Inner;
use crate::events::Event;

use report::{KnownPeer, Now};
use tally::{Sums, Tally};

/// Peers with figures of their own; all further ones share those called `other`.
const PEERS: usize = 1000;
const OTHER: &str = "other";
/// Failures that are kept.
const FAILURES: usize = 64;
/// Of the small same-host calls every so many is timed: reading the clock twice would cost a tenth of such a call.
const SAMPLE: u64 = 64;
/// Seconds: from what a mapped copy takes to a whole time limit.
const BUCKETS: [f64; 22] = [
    1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5,
    1.0, 2.0, 5.0, 10.0,
];
const PATHS: [&str; 2] = ["shm", "tcp"];
const OPS: [Opcode; 2] = [Opcode::Read, Opcode::Write];

/// The figures of one engine.
pub(crate) struct Metrics {
    registry: Registry,
    families: Families,
    peers: RwLock<HashMap<String, Arc<PeerMetrics>>>,
    failures: Mutex<VecDeque<Failed>>,
    began: Instant,
    /// One scrape at a time brings the engine's own counters up to date.
    scrape: Mutex<()>,
}

struct Families {
    transfers: IntCounterVec,
    bytes: IntCounterVec,
    failures: IntCounterVec,
    seconds: HistogramVec,
    retries: IntCounterVec,
    queued: IntGaugeVec,
    lanes: IntGaugeVec,
    regions: IntGauge,
    registered_bytes: IntGauge,
    served: IntCounter,
    refused: IntCounter,
    received: IntCounter,
    sent: IntCounter,
}

/// The figures of one peer. A call adds to them without a lock or a look-up.
pub(crate) struct PeerMetrics {
    /// By path and operation, as [`PATHS`] and [`OPS`].
    moved: [[Moved; 2]; 2],
    /// By operation: small calls on the same host that `moved` does not have yet.
    small: [Tally; 2],
    /// By operation: also those that failed before a path was chosen.
    failed: [IntCounter; 2],
    retries: IntCounter,
    queued: IntGauge,
    lanes: IntGauge,
}

struct Moved {
    transfers: IntCounter,
    bytes: IntCounter,
    seconds: Histogram,
}

impl Moved {
    #[inline]
    fn add(&self, Sums { calls, bytes }: Sums) {
        self.transfers.inc_by(calls);
        self.bytes.inc_by(bytes);
    }
}

/// A failure, as it is kept.
struct Failed {
    at: SystemTime,
    op: Opcode,
    error: Error,
}

/// The bytes of a call that is under way, until it is dropped.
pub(crate) struct Queued<'a>(&'a IntGauge, i64);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.sub(self.1);
    }
}

/// What the port of an engine tells. It does not keep the engine.
pub(crate) struct Told {
    pub metrics: Arc<Metrics>,
    pub engine: Weak<Inner>,
}

impl Told {
    fn now(&self) -> Option<Now> {
        self.engine.upgrade()?.figures_now()
    }
}

impl Figures for Told {
    fn metrics(&self) -> Option<String> {
        Some(self.metrics.text(&self.now()?))
    }

    fn report(&self) -> Option<String> {
        Some(self.metrics.report(&self.now()?))
    }
}

impl Inner {
    /// What is asked for anew at each question; `None` once the engine was shut down.
    fn figures_now(&self) -> Option<Now> {
        let views = self.peers.names().into_iter().filter_map(|name| self.peers.get(&name));
        let peers = views.map(|view| {
            let report = self.report(&view);
            let lanes = self.routes.lanes(&view.target) as u64;
            KnownPeer { name: report.name, release: report.release, path: report.path, lanes }
        });
        Some(Now { peers: peers.collect(), engine: self.own_report().ok()? })
    }
}

impl Metrics {
    /// All at zero. `name` is the engine's.
    pub(crate) fn new(name: &str) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let families = Families::new(&registry)?;
        let info = Opts::new(
            "moonrail_info",
            "Always 1; the labels say which release this is, and the engine's name.",
        )
        .const_label("version", crate::RELEASE)
        .const_label("name", name);
        let info = IntGauge::with_opts(info)?;
        info.set(1);
        registry.register(Box::new(info))?;
        Ok(Self {
            registry,
            families,
            peers: RwLock::default(),
            failures: Mutex::default(),
            began: Instant::now(),
            scrape: Mutex::default(),
        })
    }

    /// The figures of the peer called `name`.
    pub(crate) fn peer(&self, name: &str) -> Arc<PeerMetrics> {
        if let Some(peer) = self.peers.read().get(name) {
            return Arc::clone(peer);
        }
        let mut peers = self.peers.write();
        let name = if peers.len() < PEERS || peers.contains_key(name) { name } else { OTHER };
        let make = || Arc::new(PeerMetrics::new(&self.families, name));
        Arc::clone(peers.entry(name.to_owned()).or_insert_with(make))
    }

    /// Takes note of a transfer that failed. The failures are for the page and the report; the counters are by code.
    pub(crate) fn heard(&self, event: &Event) {
        let Event::TransferFailed { op, error } = event else { return };
        let peer = self.peer(error.peer().unwrap_or(""));
        peer.failed[index(*op)].inc();
        let name = self.label(error.peer().unwrap_or(""));
        let code = error.code().to_string();
        self.families.failures.with_label_values(&[name, op.as_str(), &code]).inc();
        let mut failures = self.failures.lock();
        if failures.len() == FAILURES {
            failures.pop_front();
        }
        failures.push_back(Failed { at: SystemTime::now(), op: *op, error: error.clone() });
    }

    fn label<'a>(&self, name: &'a str) -> &'a str {
        if self.peers.read().contains_key(name) { name } else { OTHER }
    }

    /// All of it in Prometheus' text format.
    pub(crate) fn text(&self, now: &Now) -> String {
        let _one = self.scrape.lock();
        self.bring_up_to_date(now);
        let mut text = Vec::new();
        // It fails where the writer fails, and a vector does not, or for a family without a name.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    fn bring_up_to_date(&self, now: &Now) {
        let families = &self.families;
        let raise = |counter: &IntCounter, to: u64| counter.inc_by(to.saturating_sub(counter.get()));
        families.regions.set(signed(now.engine.regions as u64));
        families.registered_bytes.set(signed(now.engine.registered_bytes));
        raise(&families.served, now.engine.served);
        raise(&families.refused, now.engine.refused);
        raise(&families.received, now.engine.bytes_in);
        raise(&families.sent, now.engine.bytes_out);
        for peer in self.peers.read().values() {
            peer.gather();
            peer.lanes.set(0);
        }
        for known in &now.peers {
            self.peer(&known.name).lanes.add(signed(known.lanes));
        }
    }
}

impl PeerMetrics {
    fn new(families: &Families, name: &str) -> Self {
        let moved = |path: usize, op: usize| {
            let labels = [name, PATHS[path], OPS[op].as_str()];
            Moved {
                transfers: families.transfers.with_label_values(&labels),
                bytes: families.bytes.with_label_values(&labels),
                seconds: families.seconds.with_label_values(&labels),
            }
        };
        Self {
            moved: [0, 1].map(|path| [0, 1].map(|op| moved(path, op))),
            small: Default::default(),
            failed: [0, 1]
                .map(|_| IntCounter::new("failed", "of a report").expect("invariant: the name is valid")),
            retries: families.retries.with_label_values(&[name]),
            queued: families.queued.with_label_values(&[name]),
            lanes: families.lanes.with_label_values(&[name]),
        }
    }

    /// Whether the small call that is about to be made is to be timed.
    #[inline]
    pub(crate) fn sample(&self, op: Opcode) -> Option<Instant> {
        self.small[index(op)].calls().is_multiple_of(SAMPLE).then(Instant::now)
    }

    /// Counts a small call by the same-host path.
    #[inline]
    pub(crate) fn copied(&self, op: Opcode, bytes: u64, sampled: Option<Instant>) {
        if bytes > Tally::MOST {
            return self.moved(PATHS[0], op, bytes, sampled.map(|began| began.elapsed()));
        }
        let index = index(op);
        if let Some(began) = sampled {
            self.moved[0][index].seconds.observe(began.elapsed().as_secs_f64());
        }
        if let Some(sums) = self.small[index].add(bytes) {
            self.moved[0][index].add(sums);
        }
    }

    /// Brings `moved` up to date.
    fn gather(&self) {
        for (small, moved) in self.small.iter().zip(&self.moved[0]) {
            moved.add(small.take());
        }
    }

    /// Counts a transfer that succeeded.
    #[inline]
    pub(crate) fn moved(&self, path: &str, op: Opcode, bytes: u64, took: Option<Duration>) {
        let moved = &self.moved[usize::from(path != PATHS[0])][index(op)];
        moved.add(Sums { calls: 1, bytes });
        if let Some(took) = took {
            moved.seconds.observe(took.as_secs_f64());
        }
    }

    /// Counts a further try of a batch.
    pub(crate) fn tried_again(&self) {
        self.retries.inc();
    }

    /// Counts `bytes` as under way while the result lives.
    pub(crate) fn queue(&self, bytes: u64) -> Queued<'_> {
        let bytes = signed(bytes);
        self.queued.add(bytes);
        Queued(&self.queued, bytes)
    }
}

impl Families {
    fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let by_peer = ["peer", "path", "op"];
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let family = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(family.clone())).map(|()| family)
        };
        let gauges = |name: &str, help: &str| {
            let family = IntGaugeVec::new(Opts::new(name, help), &["peer"])?;
            registry.register(Box::new(family.clone())).map(|()| family)
        };
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone())).map(|()| counter)
        };
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone())).map(|()| gauge)
        };
        let seconds = HistogramOpts::new(
            "moonrail_transfer_seconds",
            "Time of transfers that succeeded; of small calls on the same host, one in 64.",
        );
        let seconds = HistogramVec::new(seconds.buckets(BUCKETS.to_vec()), &by_peer)?;
        registry.register(Box::new(seconds.clone()))?;
        Ok(Self {
            transfers: counters(
                "moonrail_transfers_total",
                "Transfers (calls, not descriptors) that succeeded.",
                &by_peer,
            )?,
            bytes: counters(
                "moonrail_transfer_bytes_total",
                "Bytes moved by transfers that succeeded.",
                &by_peer,
            )?,
            failures: counters(
                "moonrail_transfer_failures_total",
                "Transfers that failed, by error code (moonrail explain CODE).",
                &["peer", "op", "code"],
            )?,
            seconds,
            retries: counters(
                "moonrail_retries_total",
                "Further tries of transfers of which nothing had been applied.",
                &["peer"],
            )?,
            queued: gauges("moonrail_queued_bytes", "Bytes of transfers that are under way or wait.")?,
            lanes: gauges("moonrail_lanes", "Open TCP connections to the peer's data port.")?,
            regions: gauge("moonrail_regions", "Registered regions.")?,
            registered_bytes: gauge("moonrail_registered_bytes", "Registered bytes.")?,
            served: counter("moonrail_served_requests_total", "Requests of peers served over sockets.")?,
            refused: counter("moonrail_refused_requests_total", "Requests of peers refused.")?,
            received: counter("moonrail_received_bytes_total", "Bytes that peers wrote here over sockets.")?,
            sent: counter("moonrail_sent_bytes_total", "Bytes that peers read here over sockets.")?,
        })
    }
}

fn index(op: Opcode) -> usize {
    usize::from(op == Opcode::Write)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn milliseconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
