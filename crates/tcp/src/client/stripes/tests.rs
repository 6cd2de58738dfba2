#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::time::Duration;

use moonrail_access::Wallet;
use moonrail_memory::{HoldSet, Want};
use moonrail_transport::testkit::Side;
use moonrail_transport::{Code, Dialect, Entry};

use super::super::guards::Guards;
use super::*;
use crate::{ServerOptions, TcpServer};

const EPOCH: u64 = 7;
const LANES: usize = 3;
const LEN: usize = (24 << 20) + 4321;

struct Pair {
    near: Side,
    far: Side,
    server: TcpServer,
    pool: Arc<Pool>,
    local: u64,
    remote: u64,
}

impl Pair {
    fn new(epoch: u64) -> Self {
        let (near, far) = (Side::new(), Side::new());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = ServerOptions { epoch, ..ServerOptions::default() };
        let server = TcpServer::start(listener, Arc::clone(&far.regions), options).unwrap();
        let pattern: Vec<u8> = (0..LEN).map(|at| (at / 3 % 251) as u8).collect();
        let (local, remote) = (near.buffer(&pattern), far.buffer(&vec![0; LEN]));
        Self { near, far, server, pool: Arc::new(Pool::new(LANES + 1, Guards::default())), local, remote }
    }

    /// Requests of uneven lengths, some longer than a part, that cover the buffers.
    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut at = 0;
        for len in [3, 0, 11 << 20, 70_001].into_iter().chain(std::iter::repeat(9973)) {
            let len = len.min(LEN as u64 - at);
            entries.push(Entry { local: self.local + at, remote: self.remote + at, len });
            at += len;
            if at == LEN as u64 {
                return entries;
            }
        }
        unreachable!("the last length repeats")
    }

    fn run(
        &self,
        opcode: Opcode,
        entries: &[Entry],
        stop: &(dyn Fn() -> Option<Stop> + Sync),
    ) -> Result<Sample, Failure> {
        let want = if opcode == Opcode::Read { Want::Write } else { Want::Read };
        let ranges = entries.iter().map(|entry| (entry.local, entry.len));
        let holds = self.near.regions.hold_all(ranges, want).unwrap();
        let limit = Duration::from_secs(5);
        let control = Control { deadline: None, connect: limit, progress: limit, stop };
        let target = Target {
            name: "far".to_owned(),
            addresses: vec![self.server.address()],
            dialect: Dialect::Rail { epoch: EPOCH },
            tls: None,
            generation: 1,
            same_host: None,
        };
        over(
            &self.pool,
            &Wallet::default(),
            None,
            &target,
            &Work { opcode, entries, holds: &holds },
            &control,
            LANES,
        )
    }

    fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
        (self.near.get(self.local, LEN), self.far.get(self.remote, LEN))
    }

    fn works(&self) {
        self.far.set(self.remote, &vec![0; LEN]);
        let sample = self.run(Opcode::Write, &self.entries(), &|| None).unwrap();
        assert_eq!(sample.lanes, LANES);
        let (here, there) = self.bytes();
        assert!(here == there);
    }
}

#[test]
fn every_byte_arrives_both_ways() {
    let pair = Pair::new(EPOCH);
    for _ in 0..2 {
        pair.works();
        let (expected, _) = pair.bytes();
        pair.near.set(pair.local, &vec![0; LEN]);
        pair.run(Opcode::Read, &pair.entries(), &|| None).unwrap();
        assert!(pair.near.get(pair.local, LEN) == expected);
    }
}

#[test]
fn a_part_that_is_refused_ends_the_others_and_names_its_entry() {
    for opcode in [Opcode::Write, Opcode::Read] {
        let pair = Pair::new(EPOCH);
        let mut entries = pair.entries();
        let bad = entries.len() - 20;
        entries[bad].remote = 4096;
        let failure = pair.run(opcode, &entries, &|| None).unwrap_err();
        assert_eq!(failure.error.code(), Code::RemoteRefused, "{failure}");
        assert_eq!(failure.error.index(), Some(bad), "{failure}");
        assert_eq!(failure.untouched, opcode == Opcode::Read, "{failure}");
        let after = pair.bytes();
        thread::sleep(Duration::from_millis(30));
        assert!(pair.bytes() == after);
        pair.works();
    }
}

#[test]
fn what_stands_in_front_of_the_entry_to_blame_in_its_frame_is_not_said_to_be_applied() {
    let pair = Pair::new(EPOCH);
    let mut entries = pair.entries();
    // Both parts that it lies in are refused at their first frame, which begins with entry 0 in the first.
    entries[2].remote = 4096;
    let failure = pair.run(Opcode::Write, &entries, &|| None).unwrap_err();
    assert_eq!(failure.error.index(), Some(2), "{failure}");
    let note = format!(" 0 of {} descriptors are known to be applied", entries.len());
    assert!(failure.to_string().contains(&note), "{failure}");
    assert_eq!(pair.far.get(pair.remote, 3), [0; 3]);
    pair.works();
}

#[test]
fn a_stopped_transfer_is_over_on_every_lane() {
    let pair = Pair::new(EPOCH);
    let outcome = pair.run(Opcode::Write, &pair.entries(), &|| Some(Stop::Interrupted));
    let after = pair.bytes();
    thread::sleep(Duration::from_millis(30));
    assert!(pair.bytes() == after);
    match outcome {
        // No part had to wait.
        Ok(_) => assert!(after.0 == after.1),
        Err(failure) => assert_eq!(failure.error.code(), Code::Interrupted, "{failure}"),
    }
    pair.works();
}

#[test]
fn a_restarted_peer_was_touched_by_none() {
    let pair = Pair::new(EPOCH + 1);
    let failure = pair.run(Opcode::Write, &pair.entries(), &|| None).unwrap_err();
    assert_eq!(failure.error.code(), Code::PeerGone, "{failure}");
    assert!(failure.untouched && failure.stale, "{failure}");
    assert!(pair.far.get(pair.remote, LEN).iter().all(|&byte| byte == 0));
}

#[test]
fn parts_cover_the_batch_once_and_in_order() {
    let lengths = [0, 5 << 20, 1, 0, (9 << 20) + 77, 3, 0];
    let entries: Vec<_> = lengths.iter().map(|&len| Entry { local: 0, remote: 0, len }).collect();
    let work = Work { opcode: Opcode::Write, entries: &entries, holds: &HoldSet::default() };
    let total = work.bytes();
    for count in 1..=5 {
        let parts = cut(&work, total, count);
        assert_eq!(parts.len(), count);
        let mut reached = 0;
        for part in &parts {
            assert_eq!(lengths[..part.begin.index].iter().sum::<u64>() + part.begin.offset, reached);
            assert!(part.bytes > 0);
            reached += part.bytes;
        }
        assert_eq!(reached, total);
    }
}
