//! Memory that both processes have mapped: which is, and for how long.

use std::time::{Duration, Instant};

use moonrail_shm::ShmPath;
use moonrail_transport::testkit::Side;
use moonrail_transport::{Entry, Opcode, Target};

use crate::support::{Other, Way, execute, target};

struct Pair {
    near: Side,
    path: ShmPath,
    target: Target,
    other: Other,
    remote: u64,
    len: u64,
}

impl Pair {
    fn new(near: Side, far: Way, len: u64) -> Self {
        let mut facts = vec![("LEN", len.to_string())];
        facts.extend(far.fact());
        let mut other = Other::start("target", &facts);
        let target = target(&other.hear("contact"));
        let remote = other.hear("buffer").parse().unwrap();
        Self { near, path: ShmPath::new(), target, other, remote, len }
    }

    /// Writes and reads the whole buffer, and checks every byte.
    fn there_and_back(&mut self, byte: u8) {
        let (len, remote) = (self.len, self.remote);
        let (ours, back) =
            (self.near.buffer(&vec![byte; len as usize]), self.near.buffer(&vec![0; len as usize]));
        let entry = |local| [Entry { local, remote, len }];
        execute(&self.path, &self.target, &self.near, Opcode::Write, &entry(ours)).unwrap();
        self.other.tell("get");
        assert_eq!(self.other.hear("bytes"), byte.to_string());
        execute(&self.path, &self.target, &self.near, Opcode::Read, &entry(back)).unwrap();
        assert!(self.near.get(back, len as usize).iter().all(|&read| read == byte));
        self.near.free(ours);
        self.near.free(back);
    }

    fn mapped(&self) -> u64 {
        self.path.mapped_bytes(&self.target)
    }

    /// Writes and reads until so much is mapped: the target's answer may take a while on a loaded machine.
    fn until_mapped(&mut self, bytes: u64) {
        let since = Instant::now();
        while self.mapped() != bytes {
            self.there_and_back(3);
            assert!(
                since.elapsed() < Duration::from_secs(5),
                "{} bytes are mapped, not {bytes}",
                self.mapped()
            );
        }
    }
}

/// The other process has it all, in memory of either kind here and there.
#[test]
fn only_what_both_can_map_is_mapped() {
    for len in [100, 3 << 20] {
        for (near, far) in
            [(Way::Mapped, Way::Across), (Way::Across, Way::Mapped), (Way::Across, Way::Across)]
        {
            let side = if near == Way::Mapped { Side::new() } else { Side::private() };
            let mut pair = Pair::new(side, far, len);
            for byte in 1..4 {
                pair.there_and_back(byte);
            }
            assert_eq!(pair.mapped(), 0, "{near:?} {far:?}");
        }
        let mut pair = Pair::new(Side::new(), Way::Mapped, len);
        pair.until_mapped(if len == 100 { 16 << 20 } else { len });
        for byte in 1..4 {
            pair.there_and_back(byte);
        }
    }
}

#[test]
fn memory_allocated_later_is_found_and_what_is_freed_is_let_go() {
    let len = 2 << 20;
    let mut pair = Pair::new(Side::new(), Way::Mapped, len);
    pair.until_mapped(len);
    let files = |pair: &mut Pair| {
        pair.other.tell("files");
        pair.other.hear("files")
    };
    let before = files(&mut pair);
    let first = pair.remote;
    for round in 1..10 {
        pair.other.tell("more");
        pair.remote = pair.other.hear("buffer").parse().unwrap();
        pair.until_mapped(2 * len);
        pair.there_and_back(round);
        pair.other.tell("free");
        pair.other.hear("done");
        let gone = [Entry { local: pair.near.buffer(&[1; 8]), remote: pair.remote, len: 8 }];
        execute(&pair.path, &pair.target, &pair.near, Opcode::Write, &gone).unwrap_err();
        assert_eq!(pair.mapped(), len, "it is unmapped when the target's regions are looked at next");
        assert_eq!(files(&mut pair), before);
    }
    assert_ne!(first, pair.remote);
}

/// Regions of all kinds in one batch, in every order.
#[test]
fn a_batch_of_mapped_and_other_memory() {
    let mut pair = Pair::new(Side::new(), Way::Mapped, 1 << 20);
    let private = Side::private();
    let mine = private.range(1 << 20);
    pair.near.regions.register(mine, moonrail_memory::RegionOptions::default()).unwrap();
    let managed = pair.near.buffer(&vec![0; 1 << 20]);
    for round in 0..6_u8 {
        Side::poke(mine, &vec![round + 1; 1 << 20]);
        pair.near.set(managed, &vec![round + 1; 1 << 20]);
        let piece = 1 << (20 - round);
        let entries: Vec<Entry> = (0..(1 << 20) / piece)
            .map(|at| {
                let base = if (at + u64::from(round)) % 3 == 0 { mine.addr() } else { managed };
                Entry { local: base + at * piece, remote: pair.remote + at * piece, len: piece }
            })
            .collect();
        execute(&pair.path, &pair.target, &pair.near, Opcode::Write, &entries).unwrap();
        pair.other.tell("get");
        assert_eq!(pair.other.hear("bytes"), (round + 1).to_string());
        Side::poke(mine, &vec![0; 1 << 20]);
        pair.near.set(managed, &vec![0; 1 << 20]);
        execute(&pair.path, &pair.target, &pair.near, Opcode::Read, &entries).unwrap();
        for entry in &entries {
            let bytes = pair.near.get(entry.local, entry.len as usize);
            assert!(bytes.iter().all(|&byte| byte == round + 1), "round {round}");
        }
    }
    assert!(pair.mapped() > 0);
}

/// Its answer never comes, and nothing waits for it.
#[test]
fn a_stopped_target_is_copied_to_by_the_kernel() {
    let mut pair = Pair::new(Side::private(), Way::Mapped, 4096);
    // The link is made, and no block was asked for.
    pair.there_and_back(1);
    pair.other.freeze();
    pair.near = Side::new();
    let local = pair.near.buffer(&[7; 4096]);
    let entry = [Entry { local, remote: pair.remote, len: 4096 }];
    let since = Instant::now();
    for _ in 0..100 {
        execute(&pair.path, &pair.target, &pair.near, Opcode::Write, &entry).unwrap();
    }
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    assert_eq!(pair.mapped(), 0);
    pair.other.signal(rustix::process::Signal::CONT);
    pair.other.tell("get");
    assert_eq!(pair.other.hear("bytes"), "7");
    pair.until_mapped(16 << 20);
}
