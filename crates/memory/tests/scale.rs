//! Batches of the sizes that serving stacks send, with every allocation counted. One test binary, one thread at a time:
//! the counter is the process's.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use moonrail_memory::io::{HeldIov, IovStorage, MAX_ENTRIES};
use moonrail_memory::{MemoryRange, RegionOptions, RegionTable, Want};

/// The system's allocator, counting the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` returns, and how many allocations it made.
fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = ALLOCATIONS.get();
    let done = work();
    (done, ALLOCATIONS.get() - before)
}

fn range(addr: u64, len: u64) -> MemoryRange {
    // SAFETY: these tests never give the addresses to the kernel.
    unsafe { MemoryRange::assume_valid(addr, len) }.unwrap()
}

/// 80 layers, keys and values.
const REGIONS: u64 = 160;
const REGION_LEN: u64 = 1 << 30;
const PAGES: u64 = if cfg!(miri) { 4 } else { 8192 };
const ITEM: u64 = 256;

fn start(region: u64) -> u64 {
    (1 << 40) + region * (REGION_LEN + 4096)
}

fn kv_cache() -> RegionTable {
    let table = RegionTable::new();
    let regions = (0..REGIONS).map(|region| (range(start(region), REGION_LEN), RegionOptions::default()));
    table.register_batch(regions.collect()).unwrap();
    table
}

/// Scattered pages: page `i` of the batch lies at a slot that has nothing to do with `i`.
fn page(i: u64) -> u64 {
    i.wrapping_mul(2_654_435_761) % (REGION_LEN / ITEM) * ITEM
}

#[test]
fn one_hold_allocates_nothing() {
    let table = kv_cache();
    let ((), allocations) = counted(|| {
        for i in 0..1000 {
            let hold = table.hold(start(i % REGIONS) + page(i), ITEM, Want::Write).unwrap();
            assert!(hold.covers(start(i % REGIONS), REGION_LEN));
        }
        assert!(table.hold(5, 5, Want::Write).is_err());
    });
    assert_eq!(allocations, 0);
}

#[test]
fn a_batch_of_1_3_million_allocates_per_region_only() {
    let table = kv_cache();
    let by_layer = || (0..REGIONS).flat_map(|r| (0..PAGES).map(move |p| (start(r) + page(p), ITEM)));
    let by_page = || (0..PAGES).flat_map(|p| (0..REGIONS).map(move |r| (start(r) + page(p), ITEM)));
    let began = Instant::now();
    let (layered, allocations) = counted(|| table.hold_all(by_layer(), Want::Write).unwrap());
    assert!(allocations < 2 * REGIONS, "{allocations} allocations");
    let (paged, allocations) = counted(|| table.hold_all(by_page(), Want::Read).unwrap());
    assert!(allocations < 2 * REGIONS, "{allocations} allocations");
    assert_eq!((layered.len() as u64, paged.len() as u64), (REGIONS, REGIONS));

    let mut storage = IovStorage::with_capacity(MAX_ENTRIES);
    let (bytes, allocations) = counted(|| {
        let mut bytes = 0;
        let mut hint = 0;
        let mut list = HeldIov::from_storage(std::mem::take(&mut storage));
        for (addr, len) in by_page() {
            let hold = paged.find(addr, len, &mut hint).unwrap();
            list.push_held(hold, addr, len).unwrap();
            if list.is_full() {
                bytes += list.bytes();
                list = HeldIov::from_storage(list.into_storage());
            }
        }
        bytes + list.bytes()
    });
    assert_eq!(allocations, 0, "lists are built in the same memory over and over");
    assert_eq!(bytes as u64, PAGES * REGIONS * ITEM);
    // A loose bound against quadratic work: this takes well under a second even in a debug build.
    assert!(cfg!(miri) || began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());

    let starts: Vec<u64> = (0..REGIONS).map(start).collect();
    assert!(table.unregister_batch(&starts, Duration::ZERO).is_err());
    drop((layered, paged));
    table.unregister_batch(&starts, Duration::ZERO).unwrap();
}

#[test]
fn the_last_of_1_3_million_is_checked_too() {
    let table = kv_cache();
    let last = PAGES * REGIONS - 1;
    let ranges = (0..=last).map(|i| {
        let at = start(i % REGIONS) + page(i / REGIONS);
        if i == last { (start(REGIONS - 1) + REGION_LEN - 1, 2) } else { (at, ITEM) }
    });
    let (index, _) = table.hold_all(ranges, Want::Read).unwrap_err();
    assert_eq!(index as u64, last);
    table.unregister(start(0), Duration::ZERO).expect("nothing stays held");
}

#[test]
fn a_hundred_thousand_regions_in_one_batch() {
    const COUNT: u64 = if cfg!(miri) { 100 } else { 100_000 };
    let table = RegionTable::new();
    // Scattered, and in no order.
    let at = |i: u64| (1 << 40) + (i.wrapping_mul(7919) % COUNT) * 8192;
    let began = Instant::now();
    let batch = (0..COUNT).map(|i| (range(at(i), 4096), RegionOptions::default())).collect();
    table.register_batch(batch).unwrap();
    assert_eq!(table.registered_bytes(), COUNT * 4096);

    let mut again: Vec<_> =
        (0..COUNT).map(|i| (range(at(i) + 4096, 4096), RegionOptions::default())).collect();
    again.push((range(at(5) + 4095, 1), RegionOptions::default()));
    assert_eq!(table.register_batch(again).unwrap_err().0 as u64, COUNT);
    assert_eq!(table.snapshot().len() as u64, COUNT);
    assert!(table.snapshot().iter().enumerate().all(|(i, info)| info.addr == at(i as u64)));

    let set = table.hold_all((0..COUNT).map(|i| (at(i) + 10, 10)), Want::Write).unwrap();
    assert_eq!(set.len() as u64, COUNT);
    let mut hint = 0;
    assert!((0..COUNT).all(|i| set.find(at(i), 4096, &mut hint).is_some()));
    drop(set);
    let starts: Vec<u64> = (0..COUNT).map(at).collect();
    table.unregister_batch(&starts, Duration::ZERO).unwrap();
    assert!(table.snapshot().is_empty());
    assert!(cfg!(miri) || began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
