//! The region table by example. Addresses are made up and never touched, so the tests run under Miri as well.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use moonrail_memory::{
    Access, Hold, HoldMiss, HoldSet, MemoryRange, RangeError, RegionOptions, RegionSpan, RegionTable,
    RegisterError, UnregisterError, Want,
};

const NOW: Duration = Duration::ZERO;

fn range(addr: u64, len: u64) -> MemoryRange {
    // SAFETY: these tests never give the addresses to the kernel.
    unsafe { MemoryRange::assume_valid(addr, len) }.unwrap()
}

fn plain() -> RegionOptions {
    RegionOptions::default()
}

fn named(name: &str) -> RegionOptions {
    RegionOptions { name: Some(name.to_owned()), ..plain() }
}

fn span(addr: u64, len: u64) -> RegionSpan {
    RegionSpan { addr, len }
}

fn table(regions: &[(u64, u64)]) -> RegionTable {
    let table = RegionTable::new();
    for &(addr, len) in regions {
        table.register(range(addr, len), plain()).unwrap();
    }
    table
}

#[test]
fn ranges_that_no_memory_has_are_refused() {
    // SAFETY: the addresses are not used.
    let make = |addr, len| unsafe { MemoryRange::assume_valid(addr, len) };
    assert_eq!(make(0, 8), Err(RangeError::Null));
    assert_eq!(make(8, 0), Err(RangeError::Empty { addr: 8 }));
    assert_eq!(make(u64::MAX, 1), Err(RangeError::Wraps { addr: u64::MAX, len: 1 }));
    assert_eq!(make(1, u64::MAX), Err(RangeError::Wraps { addr: 1, len: u64::MAX }));
    let top = make(u64::MAX - 1, 1).unwrap();
    assert_eq!(top.end(), u64::MAX);
    assert!(top.contains(u64::MAX - 1, 1) && !top.contains(u64::MAX - 1, 2) && !top.contains(u64::MAX, 1));
    let wide = make(1, u64::MAX - 1).unwrap();
    assert!(wide.contains(u64::MAX - 1, 1) && !wide.contains(u64::MAX - 1, u64::MAX));
}

#[test]
fn overlap_is_refused_and_names_the_other() {
    let table = table(&[(1000, 100)]);
    for (addr, len) in [(1000, 100), (1000, 1), (1099, 1), (1099, 50), (900, 101), (900, 500), (1040, 10)] {
        let error = table.register(range(addr, len), plain()).unwrap_err();
        assert_eq!(error, RegisterError::Overlap { range: span(addr, len), other: span(1000, 100) });
    }
    assert_eq!(table.snapshot().len(), 1);
    assert_eq!(table.version(), 1, "a refusal changes nothing");
    let text = table.register(range(0x3e8, 1), plain()).unwrap_err().to_string();
    assert!(text.contains("0x3e8..0x44c (100 bytes)"), "{text}");
}

#[test]
fn adjacent_regions_stay_separate() {
    let table = table(&[(1000, 100), (1100, 100), (900, 100)]);
    assert_eq!(table.registered_bytes(), 300);
    assert!(table.hold(1000, 100, Want::Write).is_ok());
    let error = table.hold(1050, 100, Want::Write).unwrap_err();
    assert_eq!(error.miss, HoldMiss::Straddles { region: span(1000, 100), next: span(1100, 100) });
}

#[test]
fn a_miss_says_how() {
    let table = table(&[(1000, 100), (2000, 100), (u64::MAX - 10, 10)]);
    let miss = |addr, len| table.hold(addr, len, Want::Read).unwrap_err().miss;
    assert_eq!(miss(1090, 20), HoldMiss::PastEnd { region: span(1000, 100), by: 10 });
    assert_eq!(miss(1099, 2000), HoldMiss::PastEnd { region: span(1000, 100), by: 1999 });
    assert_eq!(miss(1990, 20), HoldMiss::BeginsBelow { region: span(2000, 100), by: 10 });
    assert_eq!(miss(10, 20), HoldMiss::Outside { nearest: span(1000, 100), gap: 970, above: true });
    assert_eq!(miss(1110, 20), HoldMiss::Outside { nearest: span(1000, 100), gap: 10, above: false });
    assert_eq!(miss(1970, 20), HoldMiss::Outside { nearest: span(2000, 100), gap: 10, above: true });
    assert_eq!(miss(1100, 1), HoldMiss::Outside { nearest: span(1000, 100), gap: 0, above: false });
    assert_eq!(miss(1000, u64::MAX - 999), HoldMiss::Wraps);
    assert_eq!(miss(u64::MAX - 5, 6), HoldMiss::Wraps);
    assert_eq!(miss(u64::MAX, u64::MAX), HoldMiss::Wraps);
    let top = span(u64::MAX - 10, 10);
    assert_eq!(miss(u64::MAX - 5, 6).nearest(), None);
    assert!(table.hold(u64::MAX - 5, 5, Want::Read).is_ok(), "the last byte but one can be held");
    assert_eq!(miss(u64::MAX - 11, 2), HoldMiss::BeginsBelow { region: top, by: 1 });
    let empty = RegionTable::new();
    assert_eq!(empty.hold(5, 5, Want::Read).unwrap_err().miss, HoldMiss::NoRegions);
    let text = table.hold(1090, 20, Want::Read).unwrap_err().to_string();
    assert_eq!(text, "20 bytes at 0x442 pass the end of the region 0x3e8..0x44c (100 bytes) by 10 bytes");
}

#[test]
fn read_only_regions_are_not_held_to_write() {
    let table = RegionTable::new();
    let options = RegionOptions { access: Access::ReadOnly, ..plain() };
    table.register(range(1000, 100), options).unwrap();
    assert_eq!(table.hold(1000, 1, Want::Read).unwrap().region().access, Access::ReadOnly);
    let read_only = HoldMiss::ReadOnly { region: span(1000, 100) };
    assert_eq!(table.hold(1000, 1, Want::Write).unwrap_err().miss, read_only);
    assert_eq!(table.hold_all([(1000, 1)], Want::Write).unwrap_err().1.miss, read_only);
    assert!(table.hold_all([(1000, 1)], Want::Read).is_ok());
}

#[test]
fn unregistering_takes_the_start_only() {
    let table = table(&[(1000, 100)]);
    let inside = UnregisterError::NotRegistered { addr: 1001, inside: Some(span(1000, 100)) };
    assert_eq!(table.unregister(1001, NOW), Err(inside));
    assert_eq!(table.unregister(1100, NOW), Err(UnregisterError::NotRegistered { addr: 1100, inside: None }));
    table.unregister(1000, NOW).unwrap();
    assert_eq!(table.unregister(1000, NOW), Err(UnregisterError::NotRegistered { addr: 1000, inside: None }));
    assert_eq!(table.registered_bytes(), 0);
    table.register(range(1050, 100), plain()).unwrap();
}

#[test]
fn a_batch_is_registered_whole_or_not_at_all() {
    let table = table(&[(1000, 100)]);
    let before = (table.version(), table.snapshot(), table.registered_bytes());
    let batch =
        |ranges: &[(u64, u64)]| ranges.iter().map(|&(addr, len)| (range(addr, len), plain())).collect();
    let in_table = table.register_batch(batch(&[(1, 10), (50, 10), (1099, 10), (80, 10)])).unwrap_err();
    assert_eq!(in_table, (2, RegisterError::Overlap { range: span(1099, 10), other: span(1000, 100) }));
    let in_batch = table.register_batch(batch(&[(50, 10), (1, 10), (55, 10)])).unwrap_err();
    assert_eq!(in_batch, (2, RegisterError::Overlap { range: span(55, 10), other: span(50, 10) }));
    assert_eq!((table.version(), table.snapshot(), table.registered_bytes()), before);
    table.register_batch(batch(&[(50, 10), (1, 10), (60, 10)])).unwrap();
    table.register_batch(Vec::new()).unwrap();
    let starts: Vec<u64> = table.snapshot().iter().map(|info| info.addr).collect();
    assert_eq!(starts, [1000, 50, 1, 60], "in order of registration");
    assert_eq!(table.version(), before.0 + 1, "one change");
}

#[test]
fn a_batch_is_unregistered_whole_or_not_at_all() {
    let table = table(&[(1000, 100), (2000, 100), (3000, 100)]);
    let missing = UnregisterError::NotRegistered { addr: 7, inside: None };
    assert_eq!(table.unregister_batch(&[1000, 7], NOW), Err((1, missing)));
    let twice = UnregisterError::NotRegistered { addr: 1000, inside: None };
    assert_eq!(table.unregister_batch(&[1000, 2000, 1000], NOW), Err((2, twice)));
    assert_eq!(table.snapshot().len(), 3);
    assert!(table.hold(1000, 100, Want::Write).is_ok(), "nothing was revoked");
    table.unregister_batch(&[3000, 1000], NOW).unwrap();
    table.unregister_batch(&[], NOW).unwrap();
    assert_eq!(table.snapshot().len(), 1);
}

#[test]
fn names_are_unique_while_registered() {
    let table = RegionTable::new();
    let info = table.register(range(1000, 100), named("weights")).unwrap();
    assert_eq!(info.name.as_deref(), Some("weights"));
    let taken = RegisterError::NameTaken { name: "weights".into(), other: span(1000, 100) };
    assert_eq!(table.register(range(2000, 100), named("weights")), Err(taken));
    let batch = vec![(range(3000, 1), named("a")), (range(4000, 1), named("a"))];
    assert_eq!(table.register_batch(batch).unwrap_err().0, 1);
    table.register(range(3000, 1), named("a")).expect("the failed batch left no name behind");
    let hold = table.hold(1000, 1, Want::Read).unwrap();
    assert!(table.unregister(1000, NOW).is_err());
    table.register(range(2000, 100), named("weights")).expect("a revoked region has lost its name");
    drop(hold);
    table.unregister(1000, NOW).unwrap();
    assert!(table.register(range(5000, 1), named("weights")).is_err(), "it is the new region's now");
}

#[test]
fn version_and_generation_move_on() {
    let table = RegionTable::new();
    let first = table.register(range(1000, 100), plain()).unwrap();
    let version = table.version();
    table.unregister(1000, NOW).unwrap();
    assert_ne!(table.version(), version);
    let second = table.register(range(1000, 100), plain()).unwrap();
    assert!(second.generation > first.generation);
    assert_eq!(&*second.location, "*");
}

#[test]
fn a_busy_region_is_out_of_the_table_but_kept() {
    let table = table(&[(1000, 100)]);
    let hold = table.hold(1010, 10, Want::Write).unwrap();
    assert!(!hold.revoked());
    let version = table.version();
    let Err(UnregisterError::Busy { region, holds, .. }) = table.unregister(1000, NOW) else {
        panic!("the region is held")
    };
    assert_eq!((region, holds), (span(1000, 100), 1));
    assert!(hold.revoked());
    assert_ne!(table.version(), version);
    assert!(table.snapshot().is_empty());
    assert_eq!(table.registered_bytes(), 0);
    let revoked = HoldMiss::Revoked { region: span(1000, 100) };
    assert_eq!(table.hold(1000, 1, Want::Read).unwrap_err().miss, revoked);
    let refused = table.register(range(1099, 10), plain()).unwrap_err();
    let held = RegisterError::StillHeld { range: span(1099, 10), other: span(1000, 100), holds: 1 };
    assert_eq!(refused, held);
    assert!(
        matches!(table.unregister(1000, NOW), Err(UnregisterError::Busy { .. })),
        "the fence can be asked again"
    );
    drop(hold);
    table.unregister(1000, NOW).unwrap();
    assert!(matches!(table.unregister(1000, NOW), Err(UnregisterError::NotRegistered { .. })));
}

#[test]
fn a_region_left_busy_makes_room_once_released() {
    let table = table(&[(1000, 10), (1010, 10), (1020, 10)]);
    let holds = table.hold_all([(1000, 1), (1010, 1), (1020, 1)], Want::Read).unwrap();
    assert_eq!(table.unregister_batch(&[1000, 1010, 1020], NOW).unwrap_err().0, 0);
    drop(holds);
    table.register(range(1005, 20), plain()).unwrap();
    assert_eq!(table.snapshot().len(), 1);
    assert!(table.hold(1005, 20, Want::Write).is_ok());
}

#[test]
fn one_busy_region_does_not_keep_the_others() {
    let table = table(&[(1000, 100), (2000, 100), (3000, 100)]);
    let _hold = table.hold(2000, 1, Want::Read).unwrap();
    let (index, error) = table.unregister_batch(&[1000, 2000, 3000], NOW).unwrap_err();
    assert!(index == 1 && matches!(error, UnregisterError::Busy { .. }));
    table.register(range(1000, 100), plain()).unwrap();
    table.register(range(3000, 100), plain()).unwrap();
}

#[test]
fn holds_cover_their_region_only() {
    let table = table(&[(1000, 100)]);
    let hold = table.hold(1010, 5, Want::Read).unwrap();
    assert_eq!(hold.want(), Want::Read);
    assert!(hold.covers(1000, 100) && hold.covers(1100, 0));
    assert!(!hold.covers(999, 1) && !hold.covers(1000, 101) && !hold.covers(1001, u64::MAX));
    let unlisted = Hold::unlisted(range(5000, 10), Want::Write);
    assert!(unlisted.covers(5000, 10) && !unlisted.covers(5000, 11) && !unlisted.revoked());
    assert_eq!(unlisted.region().generation, 0);
}

#[test]
fn a_batch_holds_each_region_once() {
    let table = table(&[(1000, 100), (2000, 100), (3000, 100), (1100, 50)]);
    let ranges = [(2000, 1), (1000, 100), (2050, 50), (0, 0), (1100, 50), (7, 0), (2001, 1), (1001, 3)];
    let set = table.hold_all(ranges, Want::Read).unwrap();
    let starts: Vec<u64> = set.iter().map(|hold| hold.region().addr).collect();
    assert_eq!(starts, [1000, 1100, 2000]);
    for first_hint in [0, 1, 2, 3, usize::MAX] {
        let mut hint = first_hint;
        for (addr, len) in ranges.into_iter().filter(|&(_, len)| len > 0) {
            assert!(set.find(addr, len, &mut hint).unwrap().covers(addr, len));
        }
        for (addr, len) in [(3000, 1), (999, 1), (1000, 101), (1149, 2), (2099, 2), (1000, u64::MAX), (1, 1)]
        {
            assert!(set.find(addr, len, &mut hint).is_none(), "{addr}+{len}");
        }
    }
    assert!(!set.any_revoked());
    // One hold a region: unregistering says so.
    let Err(UnregisterError::Busy { holds, .. }) = table.unregister(2000, NOW) else { panic!() };
    assert_eq!(holds, 1);
    assert_eq!(set.first_revoked().unwrap().region().addr, 2000);
    drop(set);
    table.unregister_batch(&[2000, 1000, 1100, 3000], NOW).unwrap();
}

#[test]
fn a_batch_with_a_miss_holds_nothing() {
    let table = table(&[(1000, 100), (2000, 100)]);
    let (index, error) = table.hold_all([(1000, 1), (5, 0), (1500, 1), (9, 9)], Want::Read).unwrap_err();
    assert_eq!((index, error.addr, error.len), (2, 1500, 1));
    let (index, error) = table.hold_all([(1000, 1), (1000, u64::MAX)], Want::Read).unwrap_err();
    assert_eq!((index, error.miss), (1, HoldMiss::Wraps));
    table.unregister_batch(&[1000, 2000], NOW).unwrap();
    let set = table.hold_all([(5, 0), (u64::MAX, 0)], Want::Write).unwrap();
    assert!(set.is_empty() && set.find(5, 0, &mut 0).is_none());
}

#[test]
fn a_single_hold_is_a_set_too() {
    let set = HoldSet::from(Hold::unlisted(range(5000, 10), Want::Write));
    assert_eq!(set.len(), 1);
    assert!(set.find(5005, 5, &mut 0).is_some());
}

#[test]
fn hooks_are_called_once_a_call_and_see_the_revocation() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    let table = Arc::new(table(&[(1000, 100), (2000, 100)]));
    let calls = Arc::new(AtomicU32::new(0));
    let held = Arc::new(std::sync::Mutex::new(Some(table.hold(1000, 1, Want::Write).unwrap())));
    let (counted, letting_go, looked_at) = (Arc::clone(&calls), Arc::clone(&held), Arc::downgrade(&table));
    table.on_revoke(Box::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let mut held = letting_go.lock().unwrap();
        assert!(held.as_ref().is_none_or(Hold::revoked));
        *held = None;
        // No lock of the table is held.
        assert_eq!(looked_at.upgrade().unwrap().snapshot().len(), 0);
    }));
    table.unregister_batch(&[1000, 2000], NOW).expect("the hook has let go before the wait");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert!(table.unregister(1000, NOW).is_err());
    assert_eq!(calls.load(Ordering::SeqCst), 1, "nothing was revoked");
}
