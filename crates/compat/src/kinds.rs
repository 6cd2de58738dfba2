//! A cluster by kinds: engines that are judged alike stand for each other, so that thousands fit one small matrix.

use std::collections::{BTreeMap, HashMap};

use crate::Engine;
use crate::pair::{Pair, Severity, Side, judge};

/// The engines of a cluster, by kind; the most frequent kind first.
#[derive(Clone, Debug)]
pub struct Kinds {
    sides: Vec<Side>,
    kinds: Vec<Kind>,
}

/// Engines that are judged alike, but for the host they run on.
#[derive(Clone, Debug)]
pub struct Kind {
    /// What they are.
    pub engine: Engine,
    /// Their places in the list that the kinds were made of.
    pub members: Vec<usize>,
    /// By the place they run in, where it is known.
    places: BTreeMap<Option<String>, Vec<usize>>,
}

/// What engines of one kind may expect of engines of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meeting {
    /// Where both run in one place, with the number of such pairs.
    pub near: Option<(Pair, usize)>,
    /// Where they do not, with the number of such pairs.
    pub apart: Option<(Pair, usize)>,
}

/// What tells kinds apart: all that [`judge`] looks at, without names and places.
#[derive(PartialEq, Eq, Hash)]
struct Traits<'a> {
    engine: Engine,
    protocol: &'a str,
    serves: bool,
    data_beside_handshake: bool,
    loopback: bool,
    local: bool,
    ipv6: bool,
}

impl Kinds {
    /// The kinds among these engines.
    #[must_use]
    pub fn new(sides: Vec<Side>) -> Self {
        let mut kinds: Vec<Kind> = Vec::new();
        let mut known: HashMap<Traits<'_>, usize> = HashMap::new();
        for (index, side) in sides.iter().enumerate() {
            let at = *known.entry(Traits::of(side)).or_insert_with(|| {
                kinds.push(Kind { engine: side.engine, members: Vec::new(), places: BTreeMap::new() });
                kinds.len() - 1
            });
            kinds[at].members.push(index);
            kinds[at].places.entry(side.place.clone()).or_default().push(index);
        }
        // Stable: kinds of one size stay in the order of their first members.
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.members.len()));
        Self { sides, kinds }
    }

    /// The kinds, the most frequent first.
    #[must_use]
    pub fn all(&self) -> &[Kind] {
        &self.kinds
    }

    /// What an engine of the kind `from` may expect of one of the kind `to`; both are places in [`Kinds::all`].
    #[must_use]
    pub fn meeting(&self, from: usize, to: usize) -> Meeting {
        let same = from == to;
        let (a, b) = (&self.kinds[from], &self.kinds[to]);
        let judged = |(initiator, target): (usize, usize)| judge(&self.sides[initiator], &self.sides[target]);
        let shared = a.places.iter().filter(|(place, _)| place.is_some());
        let shared = shared.filter_map(|(place, ours)| Some((ours, b.places.get(place)?)));
        let (mut near_pairs, mut near) = (0, None);
        for (ours, theirs) in shared {
            near_pairs += ours.len() * theirs.len() - if same { ours.len() } else { 0 };
            near = near.or_else(|| other_than(ours[0], theirs));
        }
        let all = a.members.len() * b.members.len() - if same { a.members.len() } else { 0 };
        let near = near.map(|pair| (judged(pair), near_pairs));
        Meeting { near, apart: apart(a, b).map(|pair| (judged(pair), all - near_pairs)) }
    }
}

/// The first pair of two engines of these kinds that do not share a place. Two places of each are enough to find one.
fn apart(a: &Kind, b: &Kind) -> Option<(usize, usize)> {
    a.places.iter().take(2).find_map(|(here, ours)| {
        b.places.iter().take(2).find_map(|(there, theirs)| {
            if here.is_some() && here == there { None } else { other_than(ours[0], theirs) }
        })
    })
}

fn other_than(initiator: usize, targets: &[usize]) -> Option<(usize, usize)> {
    targets.iter().find(|target| **target != initiator).map(|target| (initiator, *target))
}

impl<'a> Traits<'a> {
    fn of(side: &'a Side) -> Self {
        Self {
            engine: side.engine,
            protocol: &side.protocol,
            serves: side.data_port != 0,
            data_beside_handshake: side.handshake_port.and_then(|port| port.checked_add(1))
                == Some(side.data_port),
            loopback: side.is_loopback(),
            local: side.local,
            ipv6: side.address().is_some_and(|ip| ip.is_ipv6()),
        }
    }
}

impl Meeting {
    /// Both, with their numbers of pairs.
    pub fn parts(&self) -> impl Iterator<Item = &(Pair, usize)> {
        self.near.iter().chain(&self.apart)
    }

    /// The worst of what is wrong.
    #[must_use]
    pub fn severity(&self) -> Option<Severity> {
        self.parts().filter_map(|(pair, _)| pair.severity()).max()
    }
}
