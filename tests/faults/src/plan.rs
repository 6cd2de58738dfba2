//! What one schedule does: drawn from its seed alone, so that a seed says everything but the timing.

use std::time::Duration;

use crate::dice::Dice;
use crate::orders::{AREA, MARGIN};

/// Everything a schedule does.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub seed: u64,
    /// Index of the engine in its node: [`TCP`] or [`BEST`].
    pub engine: usize,
    pub wiring: Wiring,
    pub initiator: Initiator,
    pub target: Target,
    pub transfers: Vec<Planned>,
    pub faults: Vec<Fault>,
    /// Microseconds from the start of the transfers to a fault that is not tied to a byte.
    pub after: u64,
}

/// The engine without and the one with the same-host path.
pub(crate) const TCP: usize = 0;
pub(crate) const BEST: usize = 1;

/// What is between the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wiring {
    Direct,
    /// The proxy, which can break at any byte.
    Proxied,
    /// A link of two network namespaces, which can be taken down.
    Linked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Initiator {
    /// Node 0.
    Node,
    /// A client in the harness that speaks Mooncake's data protocol of this version.
    Mooncake(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Node 1.
    Node,
    /// A server in the harness.
    Mooncake(Kind),
}

/// The kinds of Mooncake data ports there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// v1, and the connection is closed after each request.
    V1Closes,
    /// v1, and the connection is kept.
    V1Keeps,
    V2,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::V1Closes, Kind::V1Keeps, Kind::V2];
}

#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub write: bool,
    pub submit: bool,
    /// In the memory the engine allocated, or in what its node brought: here and there.
    pub managed: [bool; 2],
    /// Offset here, offset there, length.
    pub pieces: Vec<(usize, usize, usize)>,
    pub timeout: Option<Duration>,
    /// Microseconds.
    pub cancel: Option<u64>,
}

impl Planned {
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(|(.., len)| len).sum()
    }
}

/// One of the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Initiator = 0,
    Target = 1,
}

#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// At a byte of the connections to the target.
    Wire { at: Byte, what: Wire },
    /// The link is down for a while.
    Down { time: Duration },
    /// A process is killed, at a byte or after a time.
    Kill { side: Side, at: Option<Byte> },
    /// A process stands still, at a byte or after a time; without a time until the transfers have ended.
    Stop { side: Side, at: Option<Byte>, time: Option<Duration> },
    /// A process may open only so many descriptors more.
    Files { side: Side, more: u64 },
    /// A process may map hardly any more memory.
    Memory { side: Side },
    /// The memory that a process brought is unregistered and registered again.
    Unregister { side: Side, at: Option<Byte> },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Byte {
    pub data_port: bool,
    pub inwards: bool,
    pub byte: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Wire {
    Reset,
    Cut,
    Stall(Duration),
    Trickle(Duration),
    Refuse,
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let (initiator, target) = match dice.below(100) {
            0..78 => (Initiator::Node, Target::Node),
            78..90 => (Initiator::Node, Target::Mooncake(dice.pick(&Kind::ALL))),
            _ => (Initiator::Mooncake(dice.between(1, 2) as u8), Target::Node),
        };
        let two_nodes = (initiator, target) == (Initiator::Node, Target::Node);
        let engine = if two_nodes && dice.chance(45) { BEST } else { TCP };
        let wiring = match dice.below(100) {
            0..75 => Wiring::Proxied,
            75..82 if two_nodes => Wiring::Linked,
            _ => Wiring::Direct,
        };
        let engine = if wiring == Wiring::Linked { TCP } else { engine };
        let count = match dice.below(100) {
            0..45 => 1,
            45..85 => dice.between(2, 4),
            _ => dice.between(6, 11),
        };
        let transfers = draw_transfers(&mut dice, count as usize, (initiator, target));
        let total: usize = transfers.iter().map(Planned::len).sum();
        let faults = draw_faults(&mut dice, wiring, engine, (initiator, target), total as u64);
        Self { seed, engine, wiring, initiator, target, transfers, faults, after: square(&mut dice, 6000) }
    }

    /// How long a call may take by what is promised of it, on a machine that has time for it.
    /// In one line.
    pub(crate) fn summary(&self) -> String {
        let transfers = self.transfers.iter().map(|planned| {
            let way = if planned.write { "write" } else { "read" };
            let form = if planned.submit { ", background" } else { "" };
            let timeout = planned.timeout.map_or(String::new(), |timeout| format!(", within {timeout:?}"));
            let cancel =
                planned.cancel.map_or(String::new(), |after| format!(", cancelled after {after} µs"));
            format!("{way} of {} bytes in {}{form}{timeout}{cancel}", planned.len(), planned.pieces.len())
        });
        let path = if self.engine == TCP { "tcp" } else { "best path" };
        format!(
            "{:?} to {:?}, {path}, {:?}; {}; faults {:?}, {} µs",
            self.initiator,
            self.target,
            self.wiring,
            transfers.collect::<Vec<_>>().join("; "),
            self.faults,
            self.after
        )
    }

    pub(crate) fn schedule_number(&self) -> u32 {
        self.seed as u32 & 0x00ff_ffff
    }
}

/// Small numbers are more likely.
fn square(dice: &mut Dice, limit: u64) -> u64 {
    let up_to = dice.between(1, limit);
    dice.below(up_to)
}

fn draw_len(dice: &mut Dice) -> usize {
    let len = match dice.below(100) {
        0..6 => 0,
        6..40 => dice.between(1, 4096),
        40..55 => 4096 << dice.below(5),
        55..85 => dice.between(4097, 128 << 10),
        85..97 => dice.between(128 << 10, 1 << 20),
        _ => dice.between(1 << 20, 4 << 20),
    };
    len as usize
}

fn draw_transfers(dice: &mut Dice, count: usize, (initiator, target): (Initiator, Target)) -> Vec<Planned> {
    // The cursors of the four areas: here and there, brought and managed.
    let limit = (AREA - MARGIN - 64) as usize;
    let mut cursors = [[MARGIN as usize + 64; 2]; 2];
    let mut transfers = Vec::new();
    for _ in 0..count {
        // The harness's own peers have one area each.
        let managed =
            [initiator == Initiator::Node && dice.chance(50), target == Target::Node && dice.chance(50)];
        let pieces = match dice.below(100) {
            0..55 => 1,
            55..90 => dice.between(2, 20),
            _ => dice.between(257, 400),
        };
        let small = pieces > 20;
        let mut planned = Planned {
            write: dice.chance(60),
            submit: dice.chance(40),
            managed,
            pieces: Vec::new(),
            timeout: dice.chance(10).then(|| Duration::from_millis(dice.between(1, 60))),
            cancel: dice.chance(8).then(|| square(dice, 4000)),
        };
        for _ in 0..pieces {
            let len = if small { dice.between(0, 600) as usize } else { draw_len(dice) };
            // A client that waits for each answer is slow with many.
            if initiator != Initiator::Node && planned.pieces.len() >= 8 {
                break;
            }
            let places = [0, 1].map(|side| {
                let at = cursors[side][usize::from(managed[side])] + dice.below(200) as usize;
                (at, at + len + 16 <= limit)
            });
            if !places.iter().all(|(_, fits)| *fits) {
                break;
            }
            for side in [0, 1] {
                cursors[side][usize::from(managed[side])] = places[side].0 + len + 16;
            }
            planned.pieces.push((places[0].0, places[1].0, len));
        }
        if !planned.pieces.is_empty() {
            transfers.push(planned);
        }
    }
    transfers
}

fn draw_faults(
    dice: &mut Dice,
    wiring: Wiring,
    engine: usize,
    (initiator, target): (Initiator, Target),
    total: u64,
) -> Vec<Fault> {
    let mut sides = Vec::new();
    if initiator == Initiator::Node {
        sides.push(Side::Initiator);
    }
    if target == Target::Node {
        sides.push(Side::Target);
    }
    let side = dice.pick(&sides);
    // Over the same-host path only the handshake passes the proxy, and only sometimes.
    if wiring == Wiring::Linked && dice.chance(80) {
        return vec![Fault::Down { time: Duration::from_millis(dice.between(10, 900)) }];
    }
    let bytes = wiring == Wiring::Proxied && (engine == TCP || dice.chance(15));
    let at = |dice: &mut Dice| bytes.then(|| draw_byte(dice, engine, total));
    let wire = |dice: &mut Dice, byte: Byte| {
        let what = match dice.below(10) {
            0..3 => Wire::Reset,
            // An orderly end is all that such a server has to say yes with; a proxy that makes one up lies for it.
            3..5 if target != Target::Mooncake(Kind::V1Closes) => Wire::Cut,
            3..7 => Wire::Stall(Duration::from_millis(dice.pick(&[20, 150, 2500]))),
            7..9 => Wire::Trickle(Duration::from_millis(dice.between(1, 30))),
            _ => Wire::Refuse,
        };
        Fault::Wire { at: byte, what }
    };
    match dice.below(100) {
        0..8 => Vec::new(),
        8..45 => match at(dice) {
            Some(byte) => vec![wire(dice, byte)],
            None => vec![Fault::Unregister { side, at: None }],
        },
        45..60 => vec![Fault::Kill { side, at: at(dice) }],
        60..74 => {
            let time = match (side, dice.below(4)) {
                (Side::Target, 0..2) => None,
                (_, 2) => Some(Duration::from_millis(dice.between(300, 700))),
                _ => Some(Duration::from_millis(dice.between(1, 60))),
            };
            let mut faults = vec![Fault::Stop { side, at: at(dice), time }];
            if side == Side::Initiator && target == Target::Node && dice.chance(50) {
                faults.push(Fault::Unregister { side: Side::Target, at: None });
            }
            faults
        }
        74..90 => vec![Fault::Unregister { side, at: at(dice) }],
        90..96 => vec![Fault::Files { side, more: dice.below(4) }],
        _ => vec![Fault::Memory { side }],
    }
}

fn draw_byte(dice: &mut Dice, engine: usize, total: u64) -> Byte {
    let data_port = engine == TCP && dice.chance(80);
    let inwards = dice.chance(60);
    // Heads, answers and handshakes at the beginning; payload up to the end.
    let byte = if data_port && dice.chance(60) { dice.below(total + 200) } else { square(dice, 400) };
    Byte { data_port, inwards, byte }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_everything_and_transfers_do_not_touch_each_other() {
        for seed in 0..3000 {
            let plan = Plan::draw(seed);
            assert_eq!(format!("{plan:?}"), format!("{:?}", Plan::draw(seed)));
            for side in [0, 1] {
                let mut ranges: Vec<(bool, usize, usize)> = plan
                    .transfers
                    .iter()
                    .flat_map(|transfer| {
                        transfer.pieces.iter().map(move |piece| (transfer.managed[side], *piece))
                    })
                    .map(|(managed, (here, there, len))| (managed, if side == 0 { here } else { there }, len))
                    .collect();
                ranges.sort_unstable();
                assert!(ranges.iter().all(|(_, at, len)| at + len <= (AREA - MARGIN) as usize));
                assert!(ranges.windows(2).all(|two| two[0].0 != two[1].0 || two[0].1 + two[0].2 <= two[1].1));
            }
        }
    }
}
