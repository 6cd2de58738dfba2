//! What one engine as initiator and another as target come to.

use std::fmt;
use std::net::IpAddr;

use crate::{Engine, Generation};

/// One engine of a cluster, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// What it is.
    pub engine: Engine,
    /// The protocol that its segment names; bytes move only where that is `tcp`.
    pub protocol: String,
    /// The host that it tells peers to dial for data.
    pub data_host: String,
    /// The port there; 0 if it has none.
    pub data_port: u16,
    /// Its handshake port, if known.
    pub handshake_port: Option<u16>,
    /// Tells hosts and namespaces apart, for engines that offer the same-host path. Two of one user with the same
    /// text reach each other without a socket.
    pub place: Option<String>,
    /// Its address is one of the machine that looked, loopback or not.
    pub local: bool,
}

impl Side {
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.data_host.parse().ok()
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.data_host == "localhost" || self.address().is_some_and(|ip| ip.is_loopback())
    }
}

/// What a pair may expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// `shm` or `tcp`; `None` where no bytes move.
    pub path: Option<&'static str>,
    /// What is spoken: `rail-1`, `mooncake-v2`, `mooncake-v1`; also what is fallen back to behind `shm`.
    pub protocol: Option<String>,
    /// What is wrong, or worth knowing.
    pub problems: Vec<Problem>,
}

/// What is wrong with a pair, or worth knowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Problem {
    /// The target's segment is of a protocol that the initiator does not have.
    OtherProtocol,
    /// The target has no data port.
    NoDataPort,
    /// The initiator dials the handshake port + 1, where the target does not serve.
    PortBeside,
    /// The target lets no v1 client in.
    RefusesV1,
    /// The target is reached on loopback only, and the initiator is on another host.
    OtherHost,
    /// The target closes after each request, which the initiator's lanes do not expect.
    LosesBatches,
    /// A write that was refused or dropped is reported as done.
    FalseSuccess,
    /// A write to, or read from, memory that is not registered is carried out.
    Unchecked,
    /// `send_probe` says dead of a peer that is alive.
    ProbeSaysDead,
    /// A genuine initiator needs `MC_USE_IPV6`.
    NeedsIpv6Switch,
    /// Writes are confirmed by reading back, since the target has no answer to them.
    ReadBack,
}

/// How much a problem matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// It works until something goes wrong, which is then not told.
    Lies,
    /// It does not work.
    Broken,
}

impl Problem {
    /// How much it matters.
    pub fn severity(self) -> Severity {
        match self {
            Self::OtherProtocol
            | Self::NoDataPort
            | Self::PortBeside
            | Self::RefusesV1
            | Self::OtherHost
            | Self::LosesBatches => Severity::Broken,
            Self::FalseSuccess | Self::Unchecked | Self::ProbeSaysDead => Severity::Lies,
            Self::NeedsIpv6Switch | Self::ReadBack => Severity::Note,
        }
    }

    /// A stable name, for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OtherProtocol => "other-protocol",
            Self::NoDataPort => "no-data-port",
            Self::PortBeside => "port-beside",
            Self::RefusesV1 => "refuses-v1",
            Self::OtherHost => "other-host",
            Self::LosesBatches => "loses-batches",
            Self::FalseSuccess => "false-success",
            Self::Unchecked => "unchecked",
            Self::ProbeSaysDead => "probe-says-dead",
            Self::NeedsIpv6Switch => "needs-ipv6-switch",
            Self::ReadBack => "read-back",
        }
    }

    /// What happens, for people.
    pub fn what(self) -> &'static str {
        match self {
            Self::OtherProtocol => {
                "the target's segment is not of protocol tcp, so its memory cannot be reached over TCP"
            }
            Self::NoDataPort => "the target has no data port",
            Self::PortBeside => {
                "the initiator dials the target's handshake port + 1, where the target does not serve data"
            }
            Self::RefusesV1 => {
                "the target lets in no initiator that speaks data protocol v1 (MOONRAIL_V1_CLIENTS=refuse)"
            }
            Self::OtherHost => {
                "the target advertises a loopback address, which leads nowhere from another host"
            }
            Self::LosesBatches => {
                "the target closes its data connection after each request, which the initiator's lanes do not expect: the \
                 second transfer fails, and most bytes of a batch never arrive although 0 is returned"
            }
            Self::FalseSuccess => "a write that the target refuses or drops is reported as success (0)",
            Self::Unchecked => {
                "memory that the target never registered, or no longer, is overwritten and read"
            }
            Self::ProbeSaysDead => {
                "send_probe says -102 although the target is alive: a failed session is never revived"
            }
            Self::NeedsIpv6Switch => "the initiator reaches an IPv6 address only with MC_USE_IPV6=1",
            Self::ReadBack => {
                "writes are confirmed by reading their last byte back, or by the end of the connection"
            }
        }
    }

    /// What to do about it.
    pub fn fix(self) -> &'static str {
        match self {
            Self::OtherProtocol => {
                "start the target with protocol tcp (MC_FORCE_TCP=1, MOONCAKE_PROTOCOL=tcp)"
            }
            Self::NoDataPort => "start the target with protocol tcp, and look at its log",
            Self::PortBeside => "upgrade the initiator to Mooncake 0.3.12 or later, or to Moonrail",
            Self::RefusesV1 => "upgrade the initiator to Mooncake 0.3.12 or later, or to Moonrail",
            Self::OtherHost => {
                "give the target an address that other hosts reach, instead of 127.0.0.1 or ::1"
            }
            Self::LosesBatches => {
                "upgrade the target to Mooncake 0.3.12 or later, or to Moonrail; until then start the initiator with \
                 MC_TCP_ENABLE_CONNECTION_POOL=0"
            }
            Self::FalseSuccess => {
                "upgrade the side that speaks v1 only to Mooncake 0.3.12 or later, or to Moonrail; a Moonrail target can \
                 turn such initiators away (MOONRAIL_V1_CLIENTS=refuse)"
            }
            Self::Unchecked => "upgrade the target to Mooncake 0.3.12 or later, or to Moonrail",
            Self::ProbeSaysDead => "upgrade the target to Mooncake 0.3.10.post2 or later, or to Moonrail",
            Self::NeedsIpv6Switch => "set MC_USE_IPV6=1 for the initiator",
            Self::ReadBack => {
                "upgrade the target to Mooncake 0.3.12 or later, or to Moonrail, to save a round trip a batch"
            }
        }
    }
}

impl Pair {
    /// The worst of its problems.
    pub fn severity(&self) -> Option<Severity> {
        self.problems.iter().map(|problem| problem.severity()).max()
    }
}

impl fmt::Display for Pair {
    /// A few letters, for a cell of a table: `shm`, `rail`, `v2`, `v1`; behind it what is wrong.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spoken = match (self.path, self.protocol.as_deref()) {
            (Some("shm"), _) => "shm",
            (_, Some("mooncake-v2")) => "v2",
            (_, Some("mooncake-v1")) => "v1",
            (_, Some(_)) => "rail",
            _ => "no",
        };
        f.write_str(spoken)?;
        let has = |problem| self.problems.contains(&problem);
        if has(Problem::LosesBatches) {
            f.write_str(" LOSES")
        } else if self.severity() == Some(Severity::Broken) {
            write!(f, " ({})", self.problems.iter().max_by_key(|p| p.severity()).map_or("", |p| p.as_str()))
        } else if has(Problem::FalseSuccess) {
            f.write_str(" LIES")
        } else if has(Problem::ProbeSaysDead) {
            f.write_str(" probe")
        } else {
            Ok(())
        }
    }
}

/// What comes of transfers that `initiator` starts to and from `target`, with the default settings of both.
pub fn judge(initiator: &Side, target: &Side) -> Pair {
    let mut problems = Vec::new();
    let (from, to) = (initiator.engine, target.engine);
    let protocol = protocol(from, to);
    let v1 = protocol == "mooncake-v1";
    if target.protocol != "tcp" {
        problems.push(Problem::OtherProtocol);
    } else if target.data_port == 0 {
        problems.push(Problem::NoDataPort);
    }
    if v1 && matches!(to, Engine::Moonrail { refuses_v1: true, .. }) {
        problems.push(Problem::RefusesV1);
    }
    let beside = target.handshake_port.and_then(|port| port.checked_add(1));
    if from == Engine::Mooncake(Generation::UpTo0_3_4) && beside != Some(target.data_port) {
        problems.push(Problem::PortBeside);
    }
    // A loopback address that was found is one of the machine that looked.
    if target.is_loopback() && !initiator.local && !share_place(initiator, target) {
        problems.push(Problem::OtherHost);
    }
    if from == Engine::Mooncake(Generation::From0_3_13) && to.closes_after_each() == Some(true) {
        problems.push(Problem::LosesBatches);
    }
    let broken = problems.iter().any(|p| p.severity() == Severity::Broken && *p != Problem::LosesBatches);
    if !broken {
        problems.extend(doubts(initiator, target, v1));
    }
    let path = if share_memory(initiator, target) { "shm" } else { "tcp" };
    Pair { path: (!broken).then_some(path), protocol: (!broken).then_some(protocol), problems }
}

/// What is not right although bytes move.
fn doubts(initiator: &Side, target: &Side, v1: bool) -> Vec<Problem> {
    let mut doubts = Vec::new();
    let (from, to) = (initiator.engine, target.engine);
    let genuine = !from.is_moonrail();
    if v1 && genuine {
        doubts.push(Problem::FalseSuccess);
    }
    if genuine && !to.checks_addresses() {
        doubts.push(Problem::Unchecked);
    }
    if genuine && from.has_send_probe() != Some(false) && to.answers_probe() == Some(false) {
        doubts.push(Problem::ProbeSaysDead);
    }
    if genuine && target.address().is_some_and(|ip| ip.is_ipv6()) {
        doubts.push(Problem::NeedsIpv6Switch);
    }
    if v1 && !genuine {
        doubts.push(Problem::ReadBack);
    }
    doubts
}

fn protocol(from: Engine, to: Engine) -> String {
    if let (Engine::Moonrail { rail: Some(ours), .. }, Engine::Moonrail { rail: Some(theirs), .. }) =
        (from, to)
    {
        let (low, high) = (ours.0.max(theirs.0), ours.1.min(theirs.1));
        if low <= high {
            return format!("rail-{high}");
        }
    }
    format!("mooncake-v{}", from.data_version().min(to.data_version()))
}

fn share_place(initiator: &Side, target: &Side) -> bool {
    initiator.place.is_some() && initiator.place == target.place
}

fn share_memory(initiator: &Side, target: &Side) -> bool {
    initiator.engine.is_moonrail() && target.engine.is_moonrail() && share_place(initiator, target)
}
