//! What an engine says of itself at `/report`, brought within bounds. Knows no sockets.
//!
//! Whoever registers a segment decides what answers there, so nothing in it is believed to be short or of sense.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::text::plain;

/// The peers kept of one engine: those that most bytes went to and from.
const PEERS: usize = 64;
/// The failures kept of one engine, the newest.
const FAILURES: usize = 64;
/// Sentences and paths kept.
const SENTENCES: usize = 16;
const VERSION: u32 = 1;

/// The answer of one engine.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    pub(super) schema: u32,
    /// The engine's clock.
    pub(super) time_ms: u64,
    pub(super) epoch: String,
    pub(super) uptime_seconds: f64,
    #[serde(deserialize_with = "few::<_, _, 64>")]
    pub(super) paths: Vec<String>,
    #[serde(deserialize_with = "few::<_, _, 64>")]
    pub(super) fallbacks: Vec<String>,
    pub(super) served: Served,
    /// The busiest first.
    #[serde(deserialize_with = "few::<_, _, 4096>")]
    pub(super) peers: Vec<Peer>,
    /// The oldest first.
    #[serde(deserialize_with = "few::<_, _, 1024>")]
    pub(super) failures: Vec<Failure>,
    /// Over all peers, those left out too.
    #[serde(skip)]
    pub(super) totals: Totals,
}

/// What peers did here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Served {
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// What this engine did with one peer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) path: Option<String>,
    pub(super) lanes: u64,
    pub(super) queued_bytes: u64,
    pub(super) retries: u64,
    #[serde(deserialize_with = "few::<_, _, 16>")]
    ops: Vec<Op>,
    #[serde(skip)]
    pub(super) totals: Totals,
    /// Of the kind of operation with most transfers, in microseconds: half of them took less, and all but one in 100.
    #[serde(skip)]
    pub(super) latency: Option<(f64, f64)>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Op {
    op: String,
    transfers: u64,
    bytes: u64,
    failures: u64,
    latency_us: Latency,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Latency {
    count: u64,
    p50: Option<f64>,
    p99: Option<f64>,
}

/// A transfer that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Failure {
    /// By the engine's clock.
    pub(super) time_ms: u64,
    pub(super) code: String,
    pub(super) stage: String,
    pub(super) peer: Option<String>,
    pub(super) op: Option<String>,
    pub(super) retry_safe: bool,
    pub(super) message: String,
}

/// Counters since the engine's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) read: u64,
    pub(super) written: u64,
    pub(super) transfers: u64,
    pub(super) failures: u64,
}

impl Report {
    /// Reads the body of an answer.
    ///
    /// # Errors
    /// Why it is not a report, in a few words.
    pub(super) fn parse(body: &[u8]) -> Result<Report, String> {
        let mut report: Report =
            serde_json::from_slice(body).map_err(|error| format!("its answer is no report: {error}"))?;
        if report.schema != VERSION {
            return Err(format!(
                "its report is of version {}, and only {VERSION} is known here",
                report.schema
            ));
        }
        report.bring_within_bounds();
        Ok(report)
    }

    fn bring_within_bounds(&mut self) {
        self.epoch = plain(&self.epoch, 16);
        for sentences in [&mut self.paths, &mut self.fallbacks] {
            sentences.truncate(SENTENCES);
            sentences.iter_mut().for_each(|text| *text = plain(text, 300));
        }
        for peer in &mut self.peers {
            peer.add_up();
            self.totals.add(peer.totals);
        }
        self.peers.sort_by_key(|peer| std::cmp::Reverse(peer.totals.bytes()));
        self.peers.truncate(PEERS);
        self.peers.iter_mut().for_each(Peer::bring_within_bounds);
        self.failures.drain(..self.failures.len().saturating_sub(FAILURES));
        self.failures.iter_mut().for_each(Failure::bring_within_bounds);
    }
}

impl Peer {
    fn add_up(&mut self) {
        for op in &self.ops {
            let bytes = if op.op == "read" { (op.bytes, 0) } else { (0, op.bytes) };
            self.totals.add(Totals {
                read: bytes.0,
                written: bytes.1,
                transfers: op.transfers,
                failures: op.failures,
            });
        }
        let most = self.ops.iter().map(|op| op.latency_us).max_by_key(|latency| latency.count);
        self.latency =
            most.filter(|latency| latency.count > 0).and_then(|latency| latency.p50.zip(latency.p99));
    }

    fn bring_within_bounds(&mut self) {
        self.name = plain(&self.name, 200);
        self.path = self.path.take().map(|path| plain(&path, 16));
        self.ops = Vec::new();
    }
}

impl Failure {
    fn bring_within_bounds(&mut self) {
        self.code = plain(&self.code, 64);
        self.stage = plain(&self.stage, 64);
        self.peer = self.peer.take().map(|peer| plain(&peer, 200));
        self.op = self.op.take().map(|op| plain(&op, 16));
        self.message = plain(&self.message, 600);
    }
}

impl Totals {
    fn add(&mut self, more: Totals) {
        self.read = self.read.saturating_add(more.read);
        self.written = self.written.saturating_add(more.written);
        self.transfers = self.transfers.saturating_add(more.transfers);
        self.failures = self.failures.saturating_add(more.failures);
    }

    pub(super) fn bytes(self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

/// A list that is refused once it has more than `MOST` items: empty ones take no room in an answer, and much of it here.
fn few<'de, D, T, const MOST: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Few::<T, MOST>(PhantomData))
}

struct Few<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Few<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            list.push(item);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_added_up_and_cut() {
        let peer = |n: u64| {
            format!(
                r#"{{"name":"p{n}","path":"tcp","lanes":2,"ops":[
                {{"op":"read","path":"tcp","transfers":1,"bytes":{n},"failures":1,"latency_us":{{"count":1,"p50":5.0,"p99":9.0}}}},
                {{"op":"write","path":"tcp","transfers":9,"bytes":10,"failures":0,"latency_us":{{"count":9,"p50":3.0,"p99":4.0}}}}]}}"#
            )
        };
        let peers: Vec<String> = (0..100).map(peer).collect();
        let failures: Vec<String> =
            (0..200).map(|n| format!(r#"{{"time_ms":{n},"code":"PEER_GONE"}}"#)).collect();
        let body = format!(
            r#"{{"schema":1,"later":[1],"peers":[{}],"failures":[{}]}}"#,
            peers.join(","),
            failures.join(",")
        );
        let report = Report::parse(body.as_bytes()).expect("it is a report");
        let all = Totals { read: 4950, written: 1000, transfers: 1000, failures: 100 };
        assert_eq!(report.totals, all);
        assert_eq!((report.peers.len(), report.peers[0].name.as_str()), (PEERS, "p99"));
        assert_eq!(report.peers[0].latency, Some((3.0, 4.0)));
        assert_eq!((report.failures.len(), report.failures[63].time_ms), (FAILURES, 199));
    }

    #[test]
    fn what_is_no_report_says_why() {
        for (body, why) in [
            ("<html>", "no report"),
            ("{}", "version 0"),
            (r#"{"schema":2}"#, "version 2"),
            (r#"{"schema":1,"peers":7}"#, "no report"),
            (r#"{"schema":1,"time_ms":-1}"#, "no report"),
            (&format!(r#"{{"schema":1,"peers":[{}{{}}]}}"#, "{},".repeat(4096)), "at most 4096"),
        ] {
            let error = Report::parse(body.as_bytes()).expect_err(body);
            assert!(error.contains(why), "{body}: {error}");
        }
    }
}
