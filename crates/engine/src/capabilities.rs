//! What this build can do on this machine, and what a peer can do: by name, not by version.
//!
//! Owns the names that programs may require. Must not know how a peer is asked.

use std::fmt;

use moonrail_compat::{Engine as Kin, methods};
use moonrail_sys::host::{self, Namespace};
use moonrail_transport::{Code, Error, Retry, Stage};
use moonrail_wire::rail;

/// What a capability is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A method of the drop-in (`mooncake.engine.TransferEngine`).
    Method,
    /// A protocol of the data port: `rail-1`, `mooncake-v2`, `mooncake-v1`.
    Protocol,
    /// A way of moving bytes: `tcp`, `shm`, `rdma`.
    Path,
    /// A way of finding peers: `p2p`, `http`, `etcd`, `redis`.
    Metadata,
}

/// Why something is not there, and what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What is in the way.
    pub why: String,
    /// What to do.
    pub fix: String,
}

/// One thing that can be there or not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capability {
    /// What it is.
    pub kind: Kind,
    /// Its name, as [`require`] takes it.
    pub name: String,
    /// `None` where it is there.
    pub missing: Option<Missing>,
}

/// Everything that this build knows of, and whether it works here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// This release.
    pub release: &'static str,
    /// In the order of their kinds.
    pub items: Vec<Capability>,
}

/// What a peer can do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerCapabilities {
    /// What it runs, as far as can be told from outside.
    pub engine: Kin,
    /// The protocols and paths that it serves, by their names.
    pub serves: Vec<String>,
    /// What it lacks that a newer engine has, one sentence each.
    pub lacks: Vec<String>,
}

/// What this build can do on this machine. Reads a few files of `/proc`; opens nothing.
#[must_use]
pub fn capabilities() -> Capabilities {
    let there = |kind, name: &str| Capability { kind, name: name.to_owned(), missing: None };
    let absent = |kind, name: &str, why: &str, fix: &str| Capability {
        kind,
        name: name.to_owned(),
        missing: Some(Missing { why: why.to_owned(), fix: fix.to_owned() }),
    };
    let mut items: Vec<Capability> =
        methods::of_the_drop_in().map(|name| there(Kind::Method, name)).collect();
    items.push(there(Kind::Protocol, &format!("rail-{}", rail::VERSION)));
    items.push(there(Kind::Protocol, "mooncake-v2"));
    items.push(there(Kind::Protocol, "mooncake-v1"));
    items.push(there(Kind::Path, "tcp"));
    items.push(Capability { kind: Kind::Path, name: "shm".to_owned(), missing: no_shm() });
    let tcp = "use protocol tcp, or Mooncake where RDMA is needed";
    items.push(absent(Kind::Path, "rdma", "this build has no RDMA path", tcp));
    items.push(there(Kind::Metadata, "p2p"));
    items.push(there(Kind::Metadata, "http"));
    for name in ["etcd", "redis"] {
        let why = format!("this build has no {name} client");
        items.push(absent(Kind::Metadata, name, &why, "use P2PHANDSHAKE or http://host:port/metadata"));
    }
    Capabilities { release: crate::RELEASE, items }
}

/// Fails unless every one of `names` is there: to be called when a program starts.
///
/// # Errors
/// [`Code::MissingCapability`], with what is missing, where, and what helps.
pub fn require(names: &[&str]) -> Result<(), Error> {
    capabilities().require(names)
}

/// Why the same-host path does not work here at all, where that can be seen without a peer.
fn no_shm() -> Option<Missing> {
    let missing = |why: &str, fix: &str| Some(Missing { why: why.to_owned(), fix: fix.to_owned() });
    if let Err(error) = host::boot_id().and_then(|_| host::namespace(Namespace::Pid)) {
        let why = format!("this process cannot find out where it is: {error}");
        return missing(&why, "mount /proc in this container");
    }
    match host::ptrace_scope() {
        Some(scope) if scope > 0 && !host::may_trace() => missing(
            &format!(
                "kernel.yama.ptrace_scope is {scope}, which forbids copies between processes that are not kin"
            ),
            "sysctl kernel.yama.ptrace_scope=0, or give the processes CAP_SYS_PTRACE; until then peers are reached over tcp",
        ),
        _ => None,
    }
}

impl Capabilities {
    /// The capability of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Capability> {
        let name = canonical(name);
        self.items.iter().find(|item| item.name == name)
    }

    /// Whether it is there.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some_and(|item| item.missing.is_none())
    }

    /// As [`require`], of capabilities that were made before.
    ///
    /// # Errors
    /// [`Code::MissingCapability`].
    pub fn require(&self, names: &[&str]) -> Result<(), Error> {
        let lines: Vec<String> = names.iter().filter_map(|name| self.objection(name)).collect();
        if lines.is_empty() {
            return Ok(());
        }
        let message = format!("Moonrail {} on this machine lacks {}", self.release, lines.join("; "));
        Err(Error::new(Code::MissingCapability, Stage::Initialize, Retry::AfterFix, message))
    }

    fn objection(&self, name: &str) -> Option<String> {
        match self.get(name) {
            Some(Capability { missing: None, .. }) => None,
            Some(Capability { missing: Some(Missing { why, fix }), .. }) => {
                Some(format!("{name}: {why}; {fix}"))
            }
            None => Some(format!(
                "{name}: this release does not know such a capability; upgrade Moonrail, or correct the name \
                 (moonrail capabilities lists them)"
            )),
        }
    }
}

impl PeerCapabilities {
    pub(crate) fn of(engine: Kin, same_host: bool) -> Self {
        let mut serves = engine.protocols();
        serves.push("tcp".to_owned());
        if same_host {
            serves.push("shm".to_owned());
        }
        Self { engine, serves, lacks: engine.lacks() }
    }

    /// Whether the peer serves this protocol or path.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let name = canonical(name);
        self.serves.iter().any(|served| *served == name)
    }
}

impl Kind {
    /// Its name, for programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Protocol => "protocol",
            Self::Path => "path",
            Self::Metadata => "metadata",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names that mean the same as another.
fn canonical(name: &str) -> &str {
    match name {
        "P2PHANDSHAKE" => "p2p",
        "https" => "http",
        "rail" => "rail-1",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_required_and_there_passes() {
        require(&["batch_transfer_sync_write", "mooncake-v2", "mooncake-v1", "rail", "tcp", "P2PHANDSHAKE"])
            .unwrap();
    }

    #[test]
    fn what_is_missing_is_named_with_where_and_the_fix() {
        let error = require(&["tcp", "rdma", "teleport"]).unwrap_err();
        assert_eq!((error.code(), error.stage()), (Code::MissingCapability, Stage::Initialize));
        let text = error.to_string();
        for part in ["Moonrail", "rdma: this build has no RDMA path; use protocol tcp", "teleport"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("tcp: "), "{text}");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = capabilities().items.into_iter().map(|item| item.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
