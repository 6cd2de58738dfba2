//! Every pair of a cluster, and what to upgrade first.

use crate::pair::{Pair, Severity, Side, judge};
use crate::{Engine, Generation};

/// What every engine of a cluster may expect of every other.
#[derive(Clone, Debug)]
pub struct Matrix {
    sides: Vec<Side>,
}

/// One step of an upgrade: an engine, and what is better once it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// The engine's place in the list that the matrix was made of.
    pub index: usize,
    /// Pairs that are wrong before and right after this step.
    pub mends: usize,
    /// Pairs that are still wrong after it.
    pub left: usize,
}

impl Matrix {
    /// The matrix of these engines.
    pub fn new(sides: Vec<Side>) -> Self {
        Self { sides }
    }

    /// What `initiator` may expect of `target`; both are places in the list.
    pub fn pair(&self, initiator: usize, target: usize) -> Pair {
        judge(&self.sides[initiator], &self.sides[target])
    }

    /// The order of upgrades that mends most pairs soonest, until no upgrade mends any. An upgraded engine is taken
    /// to be of Mooncake 0.3.12, the least that tells of failures; Moonrail does too.
    pub fn upgrades(&self) -> Vec<Upgrade> {
        let mut sides = self.sides.clone();
        let mut steps = Vec::new();
        loop {
            let before = cost(&sides);
            let next = (0..sides.len())
                .filter(|&index| !sides[index].engine.is_moonrail() && sides[index].engine.data_version() < 2)
                .map(|index| (cost(&upgraded(&sides, index)), index))
                .min();
            let Some((after, index)) = next.filter(|(after, _)| *after < before) else { return steps };
            sides = upgraded(&sides, index);
            steps.push(Upgrade { index, mends: before.pairs.saturating_sub(after.pairs), left: after.pairs });
        }
    }
}

/// How bad a cluster is. Compared by weight first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    weight: usize,
    pairs: usize,
}

fn cost(sides: &[Side]) -> Cost {
    let mut cost = Cost { weight: 0, pairs: 0 };
    for (from, initiator) in sides.iter().enumerate() {
        for (to, target) in sides.iter().enumerate() {
            let severity = if from == to { None } else { judge(initiator, target).severity() };
            let weight = match severity {
                Some(Severity::Broken) => 3,
                Some(Severity::Lies) => 1,
                _ => 0,
            };
            cost.weight += weight;
            cost.pairs += usize::from(weight > 0);
        }
    }
    cost
}

fn upgraded(sides: &[Side], index: usize) -> Vec<Side> {
    let mut sides = sides.to_vec();
    sides[index].engine = Engine::Mooncake(Generation::From0_3_12);
    sides
}
