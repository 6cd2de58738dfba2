//! The region table against a naive model: a list of ranges, searched from end to end.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::time::Duration;

use moonrail_memory::{
    Access, Hold, HoldMiss, MemoryRange, RegionOptions, RegionTable, RegisterError, UnregisterError, Want,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Register { addr: u64, len: u64, read_only: bool },
    RegisterBatch(Vec<(u64, u64)>),
    Unregister(u64),
    UnregisterBatch(Vec<u64>),
    Hold { addr: u64, len: u64, write: bool },
    HoldAll { ranges: Vec<(u64, u64)>, write: bool },
    DropHolds,
}

/// Few addresses, so that regions meet; some at the top of the address space.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1_u64..60, 1 => (u64::MAX - 20)..=u64::MAX]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![10 => 0_u64..16, 1 => (u64::MAX - 70)..=u64::MAX]
}

fn step() -> impl Strategy<Value = Step> {
    let ranges = || prop::collection::vec((address(), length()), 0..6);
    prop_oneof![
        4 => (address(), length(), any::<bool>())
            .prop_map(|(addr, len, read_only)| Step::Register { addr, len, read_only }),
        1 => ranges().prop_map(Step::RegisterBatch),
        2 => address().prop_map(Step::Unregister),
        1 => prop::collection::vec(address(), 0..3).prop_map(Step::UnregisterBatch),
        5 => (address(), length(), any::<bool>()).prop_map(|(addr, len, write)| Step::Hold { addr, len, write }),
        2 => (ranges(), any::<bool>()).prop_map(|(ranges, write)| Step::HoldAll { ranges, write }),
        1 => Just(Step::DropHolds),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Naive {
    addr: u64,
    len: u64,
    read_only: bool,
    revoked: bool,
    holds: u64,
    /// Order of registration.
    serial: u64,
}

impl Naive {
    /// In a wider type, so that nothing wraps.
    fn touches(&self, addr: u64, len: u64) -> bool {
        u128::from(self.addr) < u128::from(addr) + u128::from(len)
            && u128::from(addr) < u128::from(self.addr) + u128::from(self.len)
    }

    fn contains(&self, addr: u64, len: u64) -> bool {
        self.addr <= addr
            && u128::from(addr) + u128::from(len) <= u128::from(self.addr) + u128::from(self.len)
    }
}

#[derive(Default, Clone, PartialEq, Debug)]
struct Model {
    regions: Vec<Naive>,
    serial: u64,
}

impl Model {
    fn register(&mut self, addr: u64, len: u64, read_only: bool) -> bool {
        let in_the_way = |region: &Naive| region.touches(addr, len) && (!region.revoked || region.holds > 0);
        if self.regions.iter().any(in_the_way) {
            return false;
        }
        self.regions.retain(|region| !region.touches(addr, len));
        self.serial += 1;
        let serial = self.serial;
        self.regions.push(Naive { addr, len, read_only, revoked: false, holds: 0, serial });
        true
    }

    fn at(&mut self, start: u64) -> Option<&mut Naive> {
        self.regions.iter_mut().find(|region| region.addr == start)
    }

    fn holdable(&self, addr: u64, len: u64, write: bool) -> Option<usize> {
        self.regions.iter().position(|r| r.contains(addr, len) && !r.revoked && !(write && r.read_only))
    }
}

fn want(write: bool) -> Want {
    if write { Want::Write } else { Want::Read }
}

fn options(read_only: bool) -> RegionOptions {
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    RegionOptions { access, ..RegionOptions::default() }
}

fn range(addr: u64, len: u64) -> Option<MemoryRange> {
    // SAFETY: the addresses are made up and never touched.
    unsafe { MemoryRange::assume_valid(addr, len) }.ok()
}

/// Table and model side by side.
#[derive(Default)]
struct Pair {
    table: RegionTable,
    model: Model,
    /// Each with the serial number of its region.
    holds: Vec<(Hold, u64)>,
    sets: Vec<(moonrail_memory::HoldSet, Vec<u64>)>,
}

impl Pair {
    fn step(&mut self, step: Step) {
        match step {
            Step::Register { addr, len, read_only } => {
                let Some(range) = range(addr, len) else { return };
                let expected = self.model.register(addr, len, read_only);
                match self.table.register(range, options(read_only)) {
                    Ok(info) => {
                        assert!(expected);
                        assert_eq!((info.addr, info.len), (addr, len));
                    }
                    Err(RegisterError::Overlap { other, .. }) => {
                        assert!(!expected);
                        let other = self.model.at(other.addr).unwrap();
                        assert!(other.touches(addr, len) && !other.revoked);
                    }
                    Err(RegisterError::StillHeld { other, holds, .. }) => {
                        assert!(!expected);
                        let other = self.model.at(other.addr).unwrap();
                        assert!(other.touches(addr, len) && other.revoked && other.holds == holds);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Step::RegisterBatch(ranges) => {
                let batch: Vec<_> = ranges
                    .into_iter()
                    .filter_map(|(addr, len)| Some((range(addr, len)?, options(false))))
                    .collect();
                let mut after = self.model.clone();
                let bad =
                    batch.iter().position(|(range, _)| !after.register(range.addr(), range.len(), false));
                let version = self.table.version();
                match self.table.register_batch(batch) {
                    Ok(()) => {
                        assert_eq!(bad, None);
                        self.model = after;
                    }
                    Err((index, _)) => {
                        assert_eq!(bad, Some(index));
                        assert_eq!(self.table.version(), version);
                        // Whatever else stood in the way of an entry before the bad one is gone on both sides.
                        self.model.regions.retain(|old| after.regions.contains(old));
                    }
                }
            }
            Step::Unregister(start) => self.unregister(&[start]),
            Step::UnregisterBatch(starts) => self.unregister(&starts),
            Step::Hold { addr, len, write } => {
                let expected = if len == 0 { None } else { self.model.holdable(addr, len, write) };
                match self.table.hold(addr, len, want(write)) {
                    Ok(hold) if len > 0 => {
                        let region = &mut self.model.regions[expected.expect("the model holds it too")];
                        assert_eq!((hold.region().addr, hold.region().len), (region.addr, region.len));
                        region.holds += 1;
                        self.holds.push((hold, region.serial));
                    }
                    Ok(hold) => assert!(hold.region().contains(addr, 0)),
                    Err(error) => {
                        assert_eq!(expected, None);
                        self.check_miss(addr, len, error.miss);
                    }
                }
            }
            Step::HoldAll { ranges, write } => {
                let bad = ranges
                    .iter()
                    .position(|&(addr, len)| len > 0 && self.model.holdable(addr, len, write).is_none());
                match self.table.hold_all(ranges.iter().copied(), want(write)) {
                    Ok(set) => {
                        assert_eq!(bad, None);
                        let mut held: HashMap<u64, u64> = HashMap::new();
                        let mut hint = 0;
                        for &(addr, len) in ranges.iter().filter(|&&(_, len)| len > 0) {
                            let region = &self.model.regions[self.model.holdable(addr, len, write).unwrap()];
                            let found = set.find(addr, len, &mut hint).unwrap();
                            assert_eq!(found.region().addr, region.addr);
                            held.insert(region.serial, region.addr);
                        }
                        assert_eq!(set.len(), held.len(), "one hold a region");
                        for start in held.values() {
                            self.model.at(*start).unwrap().holds += 1;
                        }
                        self.sets.push((set, held.into_keys().collect()));
                    }
                    Err((index, error)) => {
                        assert_eq!(bad, Some(index));
                        self.check_miss(ranges[index].0, ranges[index].1, error.miss);
                    }
                }
            }
            Step::DropHolds => {
                self.holds.clear();
                self.sets.clear();
                self.model.regions.iter_mut().for_each(|region| region.holds = 0);
            }
        }
    }

    fn unregister(&mut self, starts: &[u64]) {
        let missing = starts
            .iter()
            .enumerate()
            .position(|(at, &start)| self.model.at(start).is_none() || starts[..at].contains(&start));
        let version = self.table.version();
        let answer = self.table.unregister_batch(starts, Duration::ZERO);
        if let Some(index) = missing {
            let Err((at, UnregisterError::NotRegistered { addr, .. })) = answer else { panic!("{answer:?}") };
            assert_eq!((at, addr, self.table.version()), (index, starts[index], version));
            return;
        }
        let busy = starts.iter().position(|&start| self.model.at(start).unwrap().holds > 0);
        match answer {
            Ok(()) => assert_eq!(busy, None),
            Err((at, UnregisterError::Busy { region, holds, .. })) => {
                assert_eq!(Some(at), busy);
                assert_eq!(self.model.at(region.addr).unwrap().holds, holds);
            }
            Err(error) => panic!("{error:?}"),
        }
        for &start in starts {
            self.model.at(start).unwrap().revoked = true;
        }
        self.model.regions.retain(|region| !starts.contains(&region.addr) || region.holds > 0);
    }

    fn check_miss(&self, addr: u64, len: u64, miss: HoldMiss) {
        let wraps = addr.checked_add(len).is_none();
        assert_eq!(miss == HoldMiss::Wraps, wraps);
        assert_eq!(miss == HoldMiss::NoRegions, !wraps && self.model.regions.is_empty());
        let Some(span) = miss.nearest() else { return };
        let region = self.model.regions.iter().find(|region| region.addr == span.addr).unwrap();
        assert_eq!(region.len, span.len);
        match miss {
            HoldMiss::Outside { gap, .. } => {
                assert!(len == 0 || !region.touches(addr, len));
                let gap_to = |region: &Naive| {
                    let above = u128::from(region.addr).checked_sub(u128::from(addr) + u128::from(len));
                    let below = u128::from(addr).checked_sub(u128::from(region.addr + region.len));
                    above.or(below)
                };
                let nearest = self.model.regions.iter().filter_map(gap_to).min().unwrap();
                assert_eq!(u128::from(gap), nearest);
            }
            HoldMiss::BeginsBelow { by, .. } => {
                assert_eq!(region.addr - addr, by);
                assert!(region.touches(addr, len));
            }
            HoldMiss::PastEnd { by, .. } => {
                assert_eq!(addr + len - (region.addr + region.len), by);
                assert!(region.contains(addr, 1));
            }
            HoldMiss::Straddles { next, .. } => {
                assert!(region.contains(addr, 1) && region.addr + region.len == next.addr);
            }
            HoldMiss::ReadOnly { .. } => assert!(region.read_only && region.contains(addr, len)),
            HoldMiss::Revoked { .. } => assert!(region.revoked && region.contains(addr, len)),
            miss => panic!("{miss:?}"),
        }
    }

    fn check(&self) {
        let mut listed: Vec<&Naive> = self.model.regions.iter().filter(|region| !region.revoked).collect();
        listed.sort_by_key(|region| region.serial);
        let seen: Vec<(u64, u64)> = self.table.snapshot().iter().map(|info| (info.addr, info.len)).collect();
        assert_eq!(seen, listed.iter().map(|region| (region.addr, region.len)).collect::<Vec<_>>());
        let bytes: u64 = listed.iter().map(|region| region.len).sum();
        assert_eq!(self.table.registered_bytes(), bytes);
        let revoked =
            |serial: u64| self.model.regions.iter().find(|region| region.serial == serial).unwrap().revoked;
        for (hold, serial) in &self.holds {
            assert_eq!(hold.revoked(), revoked(*serial));
        }
        for (set, serials) in &self.sets {
            assert_eq!(set.any_revoked(), serials.iter().any(|&serial| revoked(serial)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 1500 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_table_does_what_the_model_does(steps in prop::collection::vec(step(), 1..60)) {
        let mut pair = Pair::default();
        for step in steps {
            pair.step(step);
            pair.check();
        }
    }
}
