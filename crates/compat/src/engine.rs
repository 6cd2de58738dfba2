//! One engine, as far as it can be told from outside.

use std::fmt;

use moonrail_wire::rail;
use moonrail_wire::segment::{ReleaseLine, SegmentDescriptor};

use crate::methods;

/// What an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Moonrail.
    Moonrail {
        /// Lowest and highest version of the rail protocol that it serves.
        rail: Option<(u16, u16)>,
        /// It lets no client in that speaks data protocol v1.
        refuses_v1: bool,
    },
    /// Genuine Mooncake.
    Mooncake(Generation),
}

/// Genuine releases that behave alike towards peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Generation {
    /// Up to 0.3.4: data on the handshake port + 1, as server and as client; v1.
    UpTo0_3_4,
    /// 0.3.5 to 0.3.9: v1, closes each data connection after one request.
    From0_3_5,
    /// 0.3.5 to 0.3.11, not told apart any further: v1.
    Between0_3_5And0_3_11,
    /// 0.3.10 and 0.3.10.post1: v1, keeps connections, knows no probe.
    From0_3_10,
    /// 0.3.10.post2 and 0.3.11: v1, keeps connections, answers probes.
    From0_3_10Post2,
    /// 0.3.12: v2, checks addresses.
    From0_3_12,
    /// 0.3.13 or later: v2, lanes that are kept open.
    From0_3_13,
}

/// What was seen of an engine beside its descriptor; `None` is what was not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// It answers the probe message of the handshake.
    pub answers_probe: Option<bool>,
    /// It keeps a data connection open after a request.
    pub keeps_connections: Option<bool>,
}

impl Engine {
    /// The engine behind a descriptor. What was seen of it tells releases apart whose descriptors look the same.
    pub fn of(descriptor: &SegmentDescriptor, seen: Seen) -> Self {
        if let Some(extension) = &descriptor.moonrail {
            let rail = extension.rail.map(|offer| (offer.min, offer.max));
            return Self::Moonrail { rail, refuses_v1: extension.refuses_v1 };
        }
        Self::Mooncake(match descriptor.release_line() {
            ReleaseLine::V0_3_4 => Generation::UpTo0_3_4,
            ReleaseLine::V0_3_12 => Generation::From0_3_12,
            ReleaseLine::V1 => match (seen.answers_probe, seen.keeps_connections) {
                (Some(true), _) => Generation::From0_3_10Post2,
                (_, Some(false)) => Generation::From0_3_5,
                (Some(false), Some(true)) => Generation::From0_3_10,
                _ => Generation::Between0_3_5And0_3_11,
            },
            _ => Generation::From0_3_13,
        })
    }

    /// This release.
    pub fn this_release(refuses_v1: bool) -> Self {
        Self::Moonrail { rail: Some((rail::VERSION, rail::VERSION)), refuses_v1 }
    }

    /// Whether this is Moonrail.
    pub fn is_moonrail(self) -> bool {
        matches!(self, Self::Moonrail { .. })
    }

    /// The newest version of Mooncake's data protocol that it speaks. 1 has no answer to a write.
    pub fn data_version(self) -> u32 {
        match self {
            Self::Moonrail { .. } => 2,
            Self::Mooncake(generation) if generation >= Generation::From0_3_12 => 2,
            Self::Mooncake(_) => 1,
        }
    }

    /// Whether it refuses requests for memory that it has not registered.
    pub fn checks_addresses(self) -> bool {
        self.data_version() >= 2
    }

    /// Whether it closes a data connection after each request; `None` where that is not known.
    pub fn closes_after_each(self) -> Option<bool> {
        match self {
            Self::Mooncake(Generation::UpTo0_3_4 | Generation::From0_3_5) => Some(true),
            Self::Mooncake(Generation::Between0_3_5And0_3_11) => None,
            _ => Some(false),
        }
    }

    /// Whether it answers the probe message; `None` where that is not known.
    pub fn answers_probe(self) -> Option<bool> {
        match self {
            Self::Mooncake(Generation::Between0_3_5And0_3_11) => None,
            Self::Mooncake(generation) => Some(generation >= Generation::From0_3_10Post2),
            Self::Moonrail { .. } => Some(true),
        }
    }

    /// Whether its Python engine has `send_probe`; `None` where that is not known.
    pub fn has_send_probe(self) -> Option<bool> {
        match self {
            Self::Mooncake(Generation::Between0_3_5And0_3_11 | Generation::From0_3_10Post2) => None,
            Self::Mooncake(generation) => Some(generation >= Generation::From0_3_12),
            Self::Moonrail { .. } => Some(true),
        }
    }

    /// The protocols that its data port serves, by the names of `require`.
    pub fn protocols(self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        if let Self::Moonrail { rail: Some((min, max)), .. } = self {
            // As a peer's word, the range may be any.
            names.extend((min..=max).rev().take(8).map(|version| format!("rail-{version}")));
        }
        if self.data_version() >= 2 {
            names.push("mooncake-v2".to_owned());
        }
        if !matches!(self, Self::Moonrail { refuses_v1: true, .. }) {
            names.push("mooncake-v1".to_owned());
        }
        names
    }

    /// What it lacks that a newer engine has, one sentence each.
    pub fn lacks(self) -> Vec<String> {
        let Self::Mooncake(generation) = self else { return Vec::new() };
        let mut sentences = Vec::new();
        let mut say = |sentence: &str| sentences.push(sentence.to_owned());
        if generation < Generation::From0_3_12 {
            say(
                "it has no answer to a write: as initiator it reports success for writes that were refused or dropped",
            );
            say("it checks no address: what nobody registered is overwritten and read");
        }
        match self.answers_probe() {
            Some(false) => say("it does not know probes: send_probe calls it dead although it is alive"),
            None => say("it may not know probes"),
            Some(true) => {}
        }
        if self.closes_after_each() == Some(true) {
            say("it closes each data connection after one request");
            say(
                "a request for an address that is not mapped may end its process (0.3.7 does, 0.3.9 does not)",
            );
        }
        if generation == Generation::UpTo0_3_4 {
            say("it reaches peers only on their handshake port + 1");
        }
        let (missing, maybe) = methods::lacking(generation);
        if !missing.is_empty() {
            say(&format!("its Python engine has no {}", missing.join(", ")));
        }
        if !maybe.is_empty() {
            say(&format!("its Python engine may have no {}", maybe.join(", ")));
        }
        sentences
    }

    /// What its peers meet in operation, one sentence each, whatever they are.
    pub fn habits(self) -> Vec<&'static str> {
        let Self::Mooncake(generation) = self else { return Vec::new() };
        let mut habits = vec![
            "it keeps a peer's descriptor for ever: after a peer comes back on another data port, its transfers there fail \
             until its own process is restarted",
        ];
        habits.push(if generation == Generation::From0_3_13 {
            "as initiator it rejects batches of more than about 2,050 descriptors, and moves a part of them all the same"
        } else {
            "as initiator it opens a connection for each descriptor of a batch: 2,000 took 2 to 10 s"
        });
        habits.push(
            "one client that connects to its handshake port and stays silent holds up all others for 5 s",
        );
        habits
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Moonrail { .. } => "Moonrail",
            Self::Mooncake(generation) => match generation {
                Generation::UpTo0_3_4 => "Mooncake up to 0.3.4",
                Generation::From0_3_5 => "Mooncake 0.3.5-0.3.9",
                Generation::Between0_3_5And0_3_11 => "Mooncake 0.3.5-0.3.11",
                Generation::From0_3_10 => "Mooncake 0.3.10",
                Generation::From0_3_10Post2 => "Mooncake 0.3.10.post2-0.3.11",
                Generation::From0_3_12 => "Mooncake 0.3.12",
                Generation::From0_3_13 => "Mooncake 0.3.13 or later",
            },
        })
    }
}
