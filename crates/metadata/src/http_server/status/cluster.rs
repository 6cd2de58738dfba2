//! What is shown of a cluster, to people and to programs alike: one value, made once for all who look in one second.
//!
//! Owns its shape (`cluster.schema.json`) and how it is put together. Knows no HTML and asks nobody.

use std::collections::HashMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use moonrail_reference::Reference;
use serde::Serialize;

use super::asking::endpoint;
use super::pairs::{KindView, PairView};
use super::problems::{self, Problem};
use super::segments::{Descriptor, Segment};
use super::watch::{Point, Watched};

/// Of its version 1.
#[derive(Debug, Serialize)]
pub(super) struct Cluster {
    pub(super) schema: u32,
    /// When it was made, in milliseconds since 1970.
    pub(super) time_ms: u64,
    #[serde(skip)]
    pub(super) made: Instant,
    /// The worst first.
    pub(super) problems: Vec<Problem>,
    /// All that are registered.
    pub(super) segments: Vec<SegmentView>,
    pub(super) kinds: Vec<KindView>,
    pub(super) pairs: Vec<PairView>,
    /// Kinds that the matrix leaves out.
    pub(super) more_kinds: usize,
    /// The cluster's rates, the oldest first.
    pub(super) rates: Vec<RatePoint>,
    /// The busiest first.
    pub(super) links: Vec<Link>,
    /// The newest first.
    pub(super) failures: Vec<FailureView>,
}

/// One segment.
#[derive(Debug, Serialize)]
pub(super) struct SegmentView {
    pub(super) space: String,
    pub(super) name: String,
    pub(super) state: State,
    pub(super) handshake: Option<String>,
    pub(super) data: Option<String>,
    pub(super) release: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) data_version: Option<u32>,
    pub(super) buffers: Option<usize>,
    pub(super) bytes: Option<u64>,
    pub(super) epoch: Option<String>,
    pub(super) seconds_since_announced: u64,
    pub(super) figures: Figures,
}

/// What the server knows of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// It is described.
    Described,
    /// Its address is registered, and no descriptor.
    NoDescriptor,
    /// Its descriptor cannot be read.
    Unreadable,
}

/// What an engine says of itself.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figures {
    /// Where it is asked.
    pub(super) url: Option<String>,
    /// Why there are none, or no new ones.
    pub(super) missing: Option<String>,
    /// It was asked and has not answered; `false` where nobody was asked.
    pub(super) silent: bool,
    pub(super) seconds_since_answer: Option<u64>,
    pub(super) uptime_seconds: Option<f64>,
    pub(super) read_per_second: Option<f64>,
    pub(super) written_per_second: Option<f64>,
    pub(super) failures_per_second: Option<f64>,
    pub(super) transfers: Option<u64>,
    pub(super) transfer_bytes: Option<u64>,
    pub(super) transfer_failures: Option<u64>,
    pub(super) served_requests: Option<u64>,
    pub(super) refused_requests: Option<u64>,
    pub(super) paths: Vec<String>,
    pub(super) fallbacks: Vec<String>,
    /// Seconds ago, and bytes a second.
    #[serde(skip)]
    pub(super) history: Vec<(f64, f64)>,
}

/// The cluster's rates at one time; bytes are counted where a transfer was started.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct RatePoint {
    pub(super) seconds_ago: f64,
    pub(super) read_per_second: f64,
    pub(super) written_per_second: f64,
    pub(super) failures_per_second: f64,
}

/// An engine and a peer that it transfers to or from.
#[derive(Debug, Serialize)]
pub(super) struct Link {
    pub(super) engine: String,
    pub(super) peer: String,
    pub(super) path: Option<String>,
    pub(super) lanes: u64,
    pub(super) queued_bytes: u64,
    pub(super) retries: u64,
    pub(super) transfers: u64,
    pub(super) failures: u64,
    pub(super) bytes: u64,
    pub(super) bytes_per_second: Option<f64>,
    pub(super) latency_p50_us: Option<f64>,
    pub(super) latency_p99_us: Option<f64>,
}

/// A transfer that failed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FailureView {
    /// The engine that started it.
    pub(super) engine: String,
    /// By that engine's clock.
    pub(super) time_ms: u64,
    pub(super) seconds_ago: u64,
    pub(super) code: String,
    /// Its page in the error reference, relative to the server's root.
    pub(super) record: Option<String>,
    pub(super) stage: String,
    pub(super) peer: Option<String>,
    pub(super) op: Option<String>,
    pub(super) retry_safe: bool,
    pub(super) message: String,
}

/// The busiest links and newest failures kept.
const LINKS: usize = 200;
const FAILURES: usize = 500;
/// Seconds for which a failure is shown; a problem it is for less long.
const SHOWN_FOR: u64 = 3600;

impl Cluster {
    pub(super) fn new(segments: &[Segment], engines: &HashMap<String, Watched>, points: &[Point]) -> Cluster {
        let now = Instant::now();
        let matrix = super::pairs::matrix(segments);
        let views: Vec<SegmentView> =
            segments.iter().map(|segment| view(segment, engines.get(&segment.key), now)).collect();
        let (mut links, mut failures) = (Vec::new(), Vec::new());
        for segment in segments {
            if let Some(watched) = engines.get(&segment.key) {
                links.extend(links_of(&segment.name, watched));
                failures.extend(failures_of(&segment.name, watched, now));
            }
        }
        links.sort_by(|a, b| busy(b).partial_cmp(&busy(a)).unwrap_or(std::cmp::Ordering::Equal));
        links.truncate(LINKS);
        failures.sort_by_key(|failure| (failure.seconds_ago, std::cmp::Reverse(failure.time_ms)));
        let problems = problems::find(&views, &failures, &matrix);
        failures.truncate(FAILURES);
        let time_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let rates = points.iter().map(|point| RatePoint {
            seconds_ago: now.duration_since(point.at).as_secs_f64(),
            read_per_second: point.rate.read,
            written_per_second: point.rate.written,
            failures_per_second: point.rate.failures,
        });
        Cluster {
            schema: 1,
            time_ms,
            made: now,
            problems,
            segments: views,
            kinds: matrix.kinds,
            pairs: matrix.pairs,
            more_kinds: matrix.more_kinds,
            rates: rates.collect(),
            links,
            failures,
        }
    }
}

fn view(segment: &Segment, watched: Option<&Watched>, now: Instant) -> SegmentView {
    let summary = match &segment.descriptor {
        Descriptor::Read(summary) => Some(summary),
        _ => None,
    };
    let data = segment.side.as_ref().map(|side| {
        moonrail_wire::address::HostPort::new(side.data_host.as_str(), side.data_port).to_string()
    });
    SegmentView {
        space: segment.space.clone(),
        name: segment.name.clone(),
        state: match &segment.descriptor {
            Descriptor::Missing => State::NoDescriptor,
            Descriptor::Unreadable(_) => State::Unreadable,
            Descriptor::Read(_) => State::Described,
        },
        handshake: segment.handshake.clone(),
        data,
        release: summary.map(|summary| summary.release.clone()),
        protocol: summary.map(|summary| summary.protocol.clone()),
        data_version: summary.map(|summary| summary.data_version),
        buffers: summary.map(|summary| summary.buffers),
        bytes: summary.map(|summary| summary.bytes),
        epoch: summary.and_then(|summary| summary.epoch).map(|epoch| format!("{epoch:016x}")),
        seconds_since_announced: now.duration_since(segment.written).as_secs(),
        figures: figures(segment, watched, now),
    }
}

fn figures(segment: &Segment, watched: Option<&Watched>, now: Instant) -> Figures {
    let missing = |why: String| Figures { missing: Some(why), ..Figures::default() };
    let summary = match &segment.descriptor {
        Descriptor::Missing => return missing("its descriptor is not there".to_owned()),
        Descriptor::Unreadable(why) => return missing(format!("its descriptor cannot be read: {why}")),
        Descriptor::Read(summary) => summary,
    };
    let announced = match (&summary.metrics, summary.epoch) {
        (Some(announced), _) => announced,
        (None, Some(_)) => return missing("no figures: start it with MOONRAIL_METRICS=HOST:PORT".to_owned()),
        (None, None) => return missing("no figures: Mooncake gives none".to_owned()),
    };
    let url = match endpoint(announced, segment.is_here) {
        Ok(url) => url,
        Err(why) => return missing(why),
    };
    let Some(watched) = watched else {
        return Figures { url: Some(url), ..missing("not asked: too many engines".to_owned()) };
    };
    let report = watched.report.as_ref();
    let trouble = watched.trouble.as_ref().map(|why| format!("{why}, for {} s", watched.silent_for()));
    let rate = watched.rate;
    let totals = report.map(|(_, report)| report.totals);
    Figures {
        url: Some(url),
        silent: watched.trouble.is_some(),
        missing: trouble.or_else(|| report.is_none().then(|| "no answer yet".to_owned())),
        seconds_since_answer: report.map(|(at, _)| now.duration_since(*at).as_secs()),
        uptime_seconds: report.map(|(_, report)| report.uptime_seconds),
        read_per_second: rate.map(|rate| rate.read),
        written_per_second: rate.map(|rate| rate.written),
        failures_per_second: rate.map(|rate| rate.failures),
        transfers: totals.map(|totals| totals.transfers),
        transfer_bytes: totals.map(|totals| totals.bytes()),
        transfer_failures: totals.map(|totals| totals.failures),
        served_requests: report.map(|(_, report)| report.served.requests),
        refused_requests: report.map(|(_, report)| report.served.refused),
        paths: report.map(|(_, report)| report.paths.clone()).unwrap_or_default(),
        fallbacks: report.map(|(_, report)| report.fallbacks.clone()).unwrap_or_default(),
        history: watched
            .history
            .iter()
            .map(|(at, value)| (now.saturating_duration_since(*at).as_secs_f64(), *value))
            .collect(),
    }
}

fn links_of<'a>(engine: &'a str, watched: &'a Watched) -> impl Iterator<Item = Link> + 'a {
    let peers = watched.report.iter().flat_map(|(_, report)| &report.peers);
    peers.map(move |peer| Link {
        engine: engine.to_owned(),
        peer: peer.name.clone(),
        path: peer.path.clone(),
        lanes: peer.lanes,
        queued_bytes: peer.queued_bytes,
        retries: peer.retries,
        transfers: peer.totals.transfers,
        failures: peer.totals.failures,
        bytes: peer.totals.bytes(),
        bytes_per_second: watched.peers.get(&peer.name).map(|rate| rate.read + rate.written),
        latency_p50_us: peer.latency.map(|(p50, _)| p50),
        latency_p99_us: peer.latency.map(|(_, p99)| p99),
    })
}

fn busy(link: &Link) -> (f64, u64) {
    (link.bytes_per_second.unwrap_or_default(), link.bytes)
}

/// Those of the last minutes. How long ago they were is told by the engine's own clock, which need not be right.
fn failures_of<'a>(
    engine: &'a str,
    watched: &'a Watched,
    now: Instant,
) -> impl Iterator<Item = FailureView> + 'a {
    let reports = watched.report.iter();
    let all = reports.flat_map(move |(at, report)| {
        let since_answer = now.duration_since(*at).as_secs();
        report.failures.iter().map(move |failure| {
            (since_answer.saturating_add(report.time_ms.saturating_sub(failure.time_ms) / 1000), failure)
        })
    });
    let recent = all.filter(|(seconds, _)| *seconds <= SHOWN_FOR);
    recent.map(move |(seconds_ago, failure)| FailureView {
        engine: engine.to_owned(),
        time_ms: failure.time_ms,
        seconds_ago,
        record: Reference::shared().by_key(&failure.code).map(|record| {
            format!(
                "errors/{}",
                record.error_code.as_deref().filter(|code| is_plain(code)).unwrap_or(&record.id)
            )
        }),
        code: failure.code.clone(),
        stage: failure.stage.clone(),
        peer: failure.peer.clone(),
        op: failure.op.clone(),
        retry_safe: failure.retry_safe,
        message: failure.message.clone(),
    })
}

/// It may stand in a path as it is.
fn is_plain(code: &str) -> bool {
    !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
