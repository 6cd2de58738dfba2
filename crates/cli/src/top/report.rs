//! What an engine says of itself at `/report`.
//!
//! Owns the fields that are shown and their reading: fields that are missing are 0 or nothing, unknown ones are ignored, and no
//! text carries control characters to a terminal. Must not know: how a report is fetched or shown.

use serde::{Deserialize, Deserializer};

/// The version of the report that is understood.
const SCHEMA: u64 = 1;
/// Characters kept of a text.
const LONGEST_TEXT: usize = 2000;

/// An engine at one moment. Counters only rise while `epoch` stays the same.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    pub(crate) schema: u64,
    pub(crate) time_ms: u64,
    #[serde(deserialize_with = "plain")]
    pub(crate) name: String,
    #[serde(deserialize_with = "plain")]
    pub(crate) release: String,
    pub(crate) pid: u32,
    #[serde(deserialize_with = "plain")]
    pub(crate) epoch: String,
    pub(crate) uptime_seconds: f64,
    pub(crate) regions: u64,
    pub(crate) registered_bytes: u64,
    pub(crate) served: Served,
    pub(crate) peers: Vec<Peer>,
    pub(crate) failures: Vec<Failed>,
}

/// What peers did with the engine's memory over sockets.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Served {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// What the engine did with a peer's memory.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Peer {
    #[serde(deserialize_with = "plain")]
    pub(crate) name: String,
    #[serde(deserialize_with = "plain_or_none")]
    pub(crate) path: Option<String>,
    pub(crate) lanes: u64,
    pub(crate) queued_bytes: u64,
    pub(crate) retries: u64,
    pub(crate) ops: Vec<Op>,
}

/// Transfers of one direction over one path.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Op {
    #[serde(deserialize_with = "plain")]
    pub(crate) op: String,
    #[serde(deserialize_with = "plain")]
    pub(crate) path: String,
    pub(crate) transfers: u64,
    pub(crate) bytes: u64,
    pub(crate) failures: u64,
    pub(crate) latency_us: Latency,
}

/// Microseconds, over all transfers since the engine began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// A transfer that failed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Failed {
    pub(crate) time_ms: u64,
    #[serde(deserialize_with = "plain")]
    pub(crate) code: String,
    #[serde(deserialize_with = "plain")]
    pub(crate) stage: String,
    #[serde(deserialize_with = "plain_or_none")]
    pub(crate) peer: Option<String>,
    #[serde(deserialize_with = "plain_or_none")]
    pub(crate) op: Option<String>,
    pub(crate) retry_safe: bool,
    #[serde(deserialize_with = "plain")]
    pub(crate) message: String,
}

impl Report {
    /// Reads a report, or says why it is none.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, String> {
        let report: Report =
            serde_json::from_slice(body).map_err(|error| format!("its answer is no report: {error}"))?;
        match report.schema {
            SCHEMA => Ok(report),
            0 => Err("its answer is no report: it has no schema".to_owned()),
            other => {
                Err(format!("its report has schema {other}, and this moonrail knows {SCHEMA}: upgrade it"))
            }
        }
    }
}

fn plain<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|text| tame(&text))
}

fn plain_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(|text| tame(&text)))
}

/// Text from outside that may go to a terminal.
pub(super) fn tame(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_missing_is_nothing_and_what_is_new_is_ignored() {
        let report =
            Report::parse(br#"{"schema":1,"name":"a","tomorrow":{},"peers":[{"name":"b","path":null}]}"#);
        let report = report.unwrap();
        assert_eq!((report.name.as_str(), report.uptime_seconds), ("a", 0.0));
        assert_eq!((report.peers[0].name.as_str(), &report.peers[0].path), ("b", &None));
    }

    #[test]
    fn what_is_no_report_says_so() {
        assert!(Report::parse(b"<html>").unwrap_err().contains("no report"));
        assert!(Report::parse(b"{}").unwrap_err().contains("no schema"));
        assert!(Report::parse(br#"{"schema":2}"#).unwrap_err().contains("upgrade"));
    }

    #[test]
    fn no_escape_sequence_reaches_the_terminal() {
        let report =
            Report::parse(br#"{"schema":1,"name":"a\u001b[2Jb","failures":[{"peer":"\u0007"}]}"#).unwrap();
        assert_eq!(report.name, "a [2Jb");
        assert_eq!(report.failures[0].peer.as_deref(), Some(" "));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Report::parse(&body);
        }
    }
}
