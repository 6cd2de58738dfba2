//! Who can talk to whom, by kinds of engines, and what is wrong with that.

use moonrail_compat::{Kinds, Meeting, Pair, Problem as Doubt, Severity, Side};
use serde::Serialize;

use super::segments::{Descriptor, Segment};

/// Kinds that the matrix shows; a cluster of more is a zoo.
const KINDS: usize = 12;
/// Names that a kind is shown with.
const NAMES: usize = 6;
/// Releases that a kind is shown with.
const RELEASES: usize = 3;

/// The matrix.
#[derive(Debug)]
pub(super) struct Matrix {
    pub(super) kinds: Vec<KindView>,
    /// Of each kind as initiator with each as target, row by row.
    pub(super) pairs: Vec<PairView>,
    pub(super) more_kinds: usize,
    /// Of all kinds, those left out too.
    pub(super) doubts: Vec<DoubtView>,
}

/// Engines that are judged alike.
#[derive(Debug, Serialize)]
pub(super) struct KindView {
    pub(super) letter: String,
    pub(super) what: String,
    pub(super) engines: usize,
    /// The first ones.
    pub(super) names: Vec<String>,
}

/// What engines of one kind may expect of another's.
#[derive(Debug, Serialize)]
pub(super) struct PairView {
    pub(super) initiator: String,
    pub(super) target: String,
    /// `ok`, `note`, `lies`, `broken`, or `none` where there is no such pair.
    pub(super) level: &'static str,
    /// Where both share a host, and where they do not.
    pub(super) ways: Vec<WayView>,
}

#[derive(Debug, Serialize)]
pub(super) struct WayView {
    /// Both run on one host, share its namespaces, and offer the same-host path.
    pub(super) one_host: bool,
    pub(super) pairs: usize,
    pub(super) path: Option<&'static str>,
    pub(super) protocol: Option<String>,
    /// A few letters, as `moonrail doctor` has them.
    pub(super) says: String,
    pub(super) problems: Vec<&'static str>,
}

/// One kind of problem, and between whom it is.
#[derive(Debug)]
pub(super) struct DoubtView {
    pub(super) doubt: Doubt,
    pub(super) pairs: usize,
    /// `A to B`, by the letters of kinds.
    pub(super) between: Vec<String>,
}

pub(super) fn matrix(segments: &[Segment]) -> Matrix {
    let (described, sides): (Vec<&Segment>, Vec<Side>) =
        segments.iter().filter_map(|segment| Some((segment, segment.side.clone()?))).unzip();
    let kinds = Kinds::new(sides);
    let shown = kinds.all().len().min(KINDS);
    let mut doubts: Vec<DoubtView> = Vec::new();
    let mut pairs = Vec::new();
    // More kinds than this are left out altogether: somebody is playing with descriptors.
    let looked_at = kinds.all().len().min(8 * KINDS);
    for from in 0..looked_at {
        for to in 0..looked_at {
            let meeting = kinds.meeting(from, to);
            note(&mut doubts, &meeting, from, to);
            if from < shown && to < shown {
                pairs.push(pair(&meeting, from, to));
            }
        }
    }
    doubts.sort_by_key(|view| (std::cmp::Reverse(view.doubt.severity()), std::cmp::Reverse(view.pairs)));
    let kind = |index: usize| {
        let members = &kinds.all()[index].members;
        KindView {
            letter: letter(index),
            what: what(&described, members),
            engines: members.len(),
            names: members.iter().take(NAMES).map(|&member| described[member].name.clone()).collect(),
        }
    };
    Matrix { kinds: (0..shown).map(kind).collect(), pairs, more_kinds: kinds.all().len() - shown, doubts }
}

fn note(doubts: &mut Vec<DoubtView>, meeting: &Meeting, from: usize, to: usize) {
    for (pair, count) in meeting.parts() {
        for &doubt in &pair.problems {
            let at = doubts.iter().position(|view| view.doubt == doubt).unwrap_or_else(|| {
                doubts.push(DoubtView { doubt, pairs: 0, between: Vec::new() });
                doubts.len() - 1
            });
            let view = &mut doubts[at];
            view.pairs += count;
            let between = format!("{} to {}", letter(from), letter(to));
            if view.between.last() != Some(&between) {
                view.between.push(between);
            }
        }
    }
}

fn pair(meeting: &Meeting, from: usize, to: usize) -> PairView {
    let way = |one_host: bool, (pair, pairs): &(Pair, usize)| WayView {
        one_host,
        pairs: *pairs,
        path: pair.path,
        protocol: pair.protocol.clone(),
        says: pair.to_string(),
        problems: pair.problems.iter().map(|problem| problem.as_str()).collect(),
    };
    let near = meeting.near.iter().map(|part| way(true, part));
    let ways: Vec<WayView> = near.chain(meeting.apart.iter().map(|part| way(false, part))).collect();
    let level = match meeting.severity() {
        _ if ways.is_empty() => "none",
        None => "ok",
        Some(Severity::Note) => "note",
        Some(Severity::Lies) => "lies",
        Some(Severity::Broken) => "broken",
    };
    PairView { initiator: letter(from), target: letter(to), level, ways }
}

/// The releases of a kind, and what else makes it one.
fn what(described: &[&Segment], members: &[usize]) -> String {
    let mut releases: Vec<&str> = Vec::new();
    for &member in members {
        if let Descriptor::Read(summary) = &described[member].descriptor
            && !releases.contains(&summary.release.as_str())
            && releases.len() <= RELEASES
        {
            releases.push(&summary.release);
        }
    }
    if releases.len() > RELEASES {
        releases[RELEASES] = "…";
    }
    let mut what = releases.join(", ");
    let first = members.first().and_then(|&member| described[member].side.as_ref());
    if let Some(side) = first {
        if side.protocol != "tcp" {
            what.push_str(&format!(", protocol {}", side.protocol));
        } else if side.data_port == 0 {
            what.push_str(", no data port");
        }
        if side.data_host == "localhost" || side.data_host.starts_with("127.") || side.data_host == "::1" {
            what.push_str(", on loopback");
        }
    }
    what
}

/// `A` to `Z`, then `A1` and so on, as `moonrail doctor` counts engines.
fn letter(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    if index < 26 { letter.to_string() } else { format!("{letter}{}", index / 26) }
}
