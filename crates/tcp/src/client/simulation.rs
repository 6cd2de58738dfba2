//! Both state machines of a rail lane against each other, one step at a time, in every order that a seed makes up.
//!
//! There are no threads and no clock: a dice decides whether the client sends or receives, the server has its turn, the
//! network between them hands on some bytes, memory is unregistered, the call is cancelled, or the network breaks. The
//! sockets are real, as the bytes go from and into held memory through the kernel; everything else is the test's.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use moonrail_memory::{MemoryRange, RegionOptions, Want};
use moonrail_sys::socket;
use moonrail_transport::testkit::Side;
use moonrail_transport::{Entry, Opcode, Work};

use super::exchange::{Exchange, Received};
use super::rail::{LaneState, RailExchange};
use crate::server::testing::LoneLane;
use crate::stream::Stream;

const EPOCH: u64 = 7;
/// Bytes round every piece that nothing may touch.
const GUARD: usize = 16;
/// Regions of the target, and bytes in each.
const REGIONS: usize = 3;
const REGION: usize = 96 << 10;

/// Steps in all, for a run in CI; `MOONRAIL_SIMULATION_STEPS` asks for more.
const STEPS: u64 = 40_000;

#[test]
fn the_two_ends_of_a_lane_agree_in_every_order_of_steps() {
    let steps = std::env::var("MOONRAIL_SIMULATION_STEPS").ok().and_then(|text| text.parse().ok());
    let first = std::env::var("MOONRAIL_SIMULATION_SEED").ok().and_then(|text| text.parse().ok());
    let (mut left, mut seed, mut ends) = (steps.unwrap_or(STEPS), first.unwrap_or(0), [0_u64; 4]);
    while left > 0 {
        let (taken, seen) = Simulation::new(seed).run();
        left = left.saturating_sub(taken);
        ends.iter_mut().zip(seen).for_each(|(sum, count)| *sum += count);
        seed += 1;
    }
    #[allow(clippy::print_stdout)]
    // For whoever runs many steps by hand.
    {
        println!("{seed} seeds; ended whole, cancelled in order, refused, broken: {ends:?}");
    }
    assert!(ends.iter().all(|count| *count > 0), "the dice never led to one of {ends:?}");
}

#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("a connection");
    let (far, _) = listener.accept().expect("a connection");
    for end in [&near, &far] {
        end.set_nonblocking(true).expect("a socket");
        end.set_nodelay(true).expect("a socket");
        // As after a call: nothing of the test stays in the system.
        socket::reset_on_close(end).expect("a socket");
    }
    (near, far)
}

/// Hands on up to `most` bytes; the number of them.
fn hand_on(from: &mut TcpStream, to: &mut TcpStream, most: usize) -> usize {
    let mut bytes = vec![0; most];
    // What the other side does not take yet stays where it is.
    let count = match from.peek(&mut bytes) {
        Ok(0) => {
            let _ = to.shutdown(Shutdown::Write);
            return 0;
        }
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return 0,
        Err(_) => return 0,
    };
    let taken = to.write(&bytes[..count]).unwrap_or(0);
    from.read_exact(&mut bytes[..taken]).expect("they were there");
    taken
}

struct Simulation {
    seed: u64,
    dice: Dice,
    near: Side,
    far: Side,
    /// The target's memory, registered or not.
    regions: Vec<(MemoryRange, bool)>,
    /// What must stand there.
    model: Vec<Vec<u8>>,
    steps: u64,
    ends: [u64; 4],
}

/// One batch: the pieces with their place in the target's regions.
struct Batch {
    opcode: Opcode,
    entries: Vec<Entry>,
    places: Vec<(usize, usize)>,
    local: u64,
    /// What the local memory was filled with.
    bytes: Vec<u8>,
}

enum End {
    Whole,
    Cancelled,
    Refused,
    Broken,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let (near, far) = (Side::new(), Side::new());
        let regions = (0..REGIONS).map(|_| (far.range(REGION as u64), true)).collect();
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let model = vec![vec![0; REGION]; REGIONS];
        Self { seed, dice, near, far, regions, model, steps: 0, ends: [0; 4] }
    }

    fn run(mut self) -> (u64, [u64; 4]) {
        let (client, mut net_near) = connection();
        let (mut net_far, server) = connection();
        let mut stream = Stream::new(client);
        let mut lane = LoneLane::new(Arc::clone(&self.far.regions), EPOCH, server);
        let mut state = LaneState::new(EPOCH);
        for _ in 0..4 {
            for (range, listed) in &mut self.regions {
                if !std::mem::replace(listed, true) {
                    self.far.regions.register(*range, RegionOptions::default()).expect("nothing holds it");
                }
            }
            let batch = self.batch();
            // The path does not take a lane for such a one.
            if batch.entries.iter().all(|entry| entry.len == 0) {
                continue;
            }
            let want = if batch.opcode == Opcode::Read { Want::Write } else { Want::Read };
            let ranges = batch.entries.iter().map(|entry| (entry.local, entry.len));
            let holds = self.near.regions.hold_all(ranges, want).expect("it is registered");
            let work = Work { opcode: batch.opcode, entries: &batch.entries, holds: &holds };
            let mut exchange = RailExchange::new(&work, &mut state, None);
            let end = self.play(&mut exchange, &mut stream, [&mut net_near, &mut net_far], &mut lane);
            let (next, untouched, in_step) =
                (exchange.next_index(), exchange.untouched(), exchange.in_step());
            drop(exchange);
            drop(holds);
            self.ends[match end {
                End::Whole => 0,
                End::Cancelled => 1,
                End::Refused => 2,
                End::Broken => 3,
            }] += 1;
            let applied = if matches!(end, End::Whole) { batch.entries.len() } else { next };
            self.judge(&batch, applied, matches!(end, End::Refused | End::Broken), untouched);
            if !matches!(end, End::Whole | End::Cancelled) {
                break;
            }
            assert!(in_step, "seed {}: nothing is owed, and the lane is not in step", self.seed);
            // Whatever is still on its way belongs to nobody.
            for _ in 0..4 {
                hand_on(&mut net_near, &mut net_far, 1 << 20);
                lane.turn();
                assert_eq!(
                    hand_on(&mut net_far, &mut net_near, 1 << 20),
                    0,
                    "seed {}: more answers",
                    self.seed
                );
            }
            self.judge(&batch, applied, false, untouched);
        }
        (self.steps, self.ends)
    }

    fn batch(&mut self) -> Batch {
        let opcode = if self.dice.one_in(2) { Opcode::Read } else { Opcode::Write };
        let (mut entries, mut places) = (Vec::new(), Vec::new());
        let (mut cursors, mut at) = ([GUARD; REGIONS], GUARD);
        // Many small pieces take several frames; a few larger ones take several receives.
        let (count, longest) =
            if self.dice.one_in(4) { (1200 + self.dice.below(1200), 40) } else { (24, 16_000) };
        for _ in 0..=self.dice.below(count) {
            let len = if self.dice.one_in(8) { 0 } else { 1 + self.dice.below(longest) } as usize;
            let region = self.dice.below(REGIONS as u64) as usize;
            let place = cursors[region];
            if place + len + GUARD > REGION {
                continue;
            }
            cursors[region] += len + GUARD;
            let remote = self.regions[region].0.addr() + place as u64;
            entries.push(Entry { local: at as u64, remote, len: len as u64 });
            places.push((region, place));
            at += len + GUARD;
        }
        let words = (0..at.div_ceil(8)).flat_map(|_| self.dice.below(u64::MAX).to_le_bytes());
        let bytes: Vec<u8> = words.take(at).collect();
        let local = self.near.buffer(&bytes);
        entries.iter_mut().for_each(|entry| entry.local += local);
        Batch { opcode, entries, places, local, bytes }
    }

    /// Steps until the exchange has come to its end.
    fn play(
        &mut self,
        exchange: &mut RailExchange<'_>,
        stream: &mut Stream,
        [near, far]: [&mut TcpStream; 2],
        lane: &mut LoneLane,
    ) -> End {
        let cancels = self.dice.one_in(3);
        let breaks = self.dice.one_in(6);
        let revokes = self.dice.one_in(3);
        let mut cancelled = false;
        for step in 0.. {
            self.steps += 1;
            assert!(step < 200_000, "seed {}: the exchange does not come to its end", self.seed);
            match self.dice.below(100) {
                0..25 => {
                    let sends = !exchange.sent_all() && (cancelled || exchange.may_send());
                    if sends
                        && exchange.send(stream).is_err_and(|error| error.kind() != ErrorKind::WouldBlock)
                    {
                        return End::Broken;
                    }
                }
                25..55 => match exchange.receive(stream) {
                    Ok(Received::Finished) if exchange.sent_all() => {
                        return if cancelled { End::Cancelled } else { End::Whole };
                    }
                    Ok(Received::Nothing | Received::Some | Received::Finished) => {}
                    Ok(Received::Refused(_)) => {
                        assert!(
                            self.regions.iter().any(|(_, listed)| !listed),
                            "seed {}: refused",
                            self.seed
                        );
                        return End::Refused;
                    }
                    Ok(Received::End) => return End::Broken,
                    Ok(
                        Received::Restarted
                        | Received::KeyRequired
                        | Received::TlsRequired
                        | Received::Malformed(_),
                    ) => {
                        panic!("seed {}: out of step", self.seed)
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return End::Broken,
                },
                55..75 => drop(hand_on(near, far, 1 + self.dice.below(20_000) as usize)),
                75..85 => drop(hand_on(far, near, 1 + self.dice.below(20_000) as usize)),
                85..97 => lane.turn(),
                _ => match self.dice.below(10) {
                    0 if cancels && !cancelled => cancelled = exchange.cancel(),
                    1 if breaks => {
                        let _ = near.shutdown(Shutdown::Both);
                        let _ = far.shutdown(Shutdown::Both);
                    }
                    2 if revokes => self.unregister(lane),
                    _ => {}
                },
            }
            if lane.closed() {
                let _ = near.shutdown(Shutdown::Write);
            }
        }
        unreachable!("the loop has no other end")
    }

    /// Unregisters one region: whatever the lane was doing with it is over when this returns.
    fn unregister(&mut self, lane: &mut LoneLane) {
        let nth = self.dice.below(REGIONS as u64) as usize;
        let (range, listed) = self.regions[nth];
        if !listed {
            return;
        }
        self.regions[nth].1 = false;
        if self.far.regions.unregister(range.addr(), Duration::ZERO).is_err() {
            lane.drop_revoked();
            self.far.regions.unregister(range.addr(), Duration::ZERO).ok();
        }
    }

    /// Every byte is what it must be. `applied`: so many entries are said to be.
    fn judge(&mut self, batch: &Batch, applied: usize, broken: bool, untouched: bool) {
        let seed = self.seed;
        let local = self.near.get(batch.local, batch.bytes.len());
        let mut expected = batch.bytes.clone();
        for (nth, (entry, &(region, place))) in batch.entries.iter().zip(&batch.places).enumerate() {
            let (from, len) = ((entry.local - batch.local) as usize, entry.len as usize);
            let remote = Side::peek(self.regions[region].0)[place..place + len].to_vec();
            let (here, there) = (&local[from..from + len], &self.model[region][place..place + len]);
            let (is, was, new) = match batch.opcode {
                Opcode::Write => (&remote[..], there, &batch.bytes[from..from + len]),
                Opcode::Read => (here, &batch.bytes[from..from + len], there),
            };
            if nth < applied {
                let told = format!("{:?}, {applied} of {} applied", batch.opcode, batch.entries.len());
                assert!(
                    is == new,
                    "seed {seed}: entry {nth} of {len} bytes is said to be applied and is not ({told})"
                );
            } else {
                let each = is == was
                    || is == new
                    || is.iter().zip(was).zip(new).all(|((is, was), new)| is == was || is == new);
                assert!(
                    each,
                    "seed {seed}: entry {nth} of {applied} applied holds bytes that are neither old nor new"
                );
            }
            if untouched && batch.opcode == Opcode::Write && nth >= applied {
                assert!(remote == there, "seed {seed}: entry {nth} of an untouched batch has changed");
            }
            match batch.opcode {
                Opcode::Write => self.model[region][place..place + len].copy_from_slice(&remote),
                Opcode::Read => expected[from..from + len].copy_from_slice(here),
            }
        }
        assert!(local == expected, "seed {seed}: bytes between the pieces have changed here");
        for (region, (range, _)) in self.regions.iter().enumerate() {
            let same = Side::peek(*range) == self.model[region];
            assert!(same, "seed {seed}: bytes between the pieces have changed there (broken: {broken})");
        }
    }
}
