//! What managed buffers cost, and that they give it back. In a test binary of its own: it counts what the process has.
#![allow(clippy::unwrap_used)]
#![cfg(not(miri))]

use std::sync::Arc;
use std::time::Duration;

use moonrail_memory::{Access, AllocateError, HugePages, ManagedBuffers, RegionOptions, RegionTable, Want};

const NOW: Duration = Duration::ZERO;

fn buffers() -> (Arc<RegionTable>, ManagedBuffers) {
    let table = Arc::new(RegionTable::new());
    (Arc::clone(&table), ManagedBuffers::new(table))
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// Shared memory that is in use, in KiB.
fn shared_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssShmem")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn fill(table: &RegionTable, addr: u64, len: u64) {
    table.hold(addr, len, Want::Write).unwrap().copy_in(addr, &vec![0xa5; len as usize]).unwrap();
}

/// One test, as its steps count the same things.
#[test]
fn buffers_cost_what_is_used_of_them_and_leave_nothing() {
    let (table, buffers) = buffers();
    let before = (open_files(), mappings(), shared_kib());

    // Small ones do not have a descriptor each, and take memory when they are touched.
    let small: Vec<u64> = (0..20_000).map(|_| buffers.allocate(100).unwrap().0).collect();
    assert!(open_files() - before.0 <= 5, "{} files", open_files() - before.0);
    assert!(mappings() - before.1 <= 8, "{} mappings", mappings() - before.1);
    assert!(shared_kib() - before.2 < 1024);
    small.iter().for_each(|&addr| fill(&table, addr, 100));
    assert!(shared_kib() - before.2 >= 20_000 * 4);
    // What is freed is given back, though its neighbours stay.
    small.iter().step_by(2).for_each(|&addr| buffers.free(addr, NOW).unwrap());
    let half = shared_kib() - before.2;
    assert!((9000 * 4..11_000 * 4).contains(&half), "{half} KiB");
    // What is handed out again is zeroed.
    for _ in 0..10_000 {
        let (addr, _) = buffers.allocate(4096).unwrap();
        let mut bytes = [1; 4096];
        table.hold(addr, 4096, Want::Read).unwrap().copy_out(addr, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4096]);
        buffers.free(addr, NOW).unwrap();
    }
    small.iter().skip(1).step_by(2).for_each(|&addr| buffers.free(addr, NOW).unwrap());
    assert_eq!((open_files(), shared_kib()), (before.0, before.2));

    // Large ones, also of what may only be read, and of huge pages.
    let sealed = RegionOptions { access: Access::ReadOnly, ..RegionOptions::default() };
    for round in 0..20 {
        let (large, _) = buffers.allocate(16 << 20).unwrap();
        fill(&table, large, 16 << 20);
        let (constant, _) = buffers.allocate_with(1, sealed.clone()).unwrap();
        assert!(table.hold(constant, 1, Want::Read).unwrap().region().backing.is_some());
        let (huge, pages) = buffers.allocate_huge(3 << 20, RegionOptions::default()).unwrap();
        match pages {
            HugePages::Hugetlb | HugePages::Transparent => {}
            HugePages::Refused(why) => assert!(why.contains("the kernel made none"), "{why}"),
        }
        fill(&table, huge.addr(), 3 << 20);
        for addr in [large, constant, huge.addr()] {
            buffers.free(addr, NOW).unwrap();
        }
        assert_eq!((open_files(), shared_kib()), (before.0, before.2), "round {round}");
    }
    assert!(mappings() <= before.1 + 1, "{} mappings more", mappings() - before.1);

    // More than there can be.
    let error = buffers.allocate(1 << 46).unwrap_err();
    assert!(matches!(error, AllocateError::Memory { .. }), "{error}");
    let error = buffers.allocate_huge(1 << 46, RegionOptions::default()).unwrap_err();
    assert!(matches!(error, AllocateError::Memory { .. }), "{error}");
    assert_eq!(buffers.why_private(), None);
    assert!(table.snapshot().is_empty() && buffers.is_empty());
}

#[test]
fn freeing_ends_every_registration_inside() {
    let (table, buffers) = buffers();
    let (addr, range) = buffers.allocate(8192).unwrap();
    table.unregister(addr, NOW).unwrap();
    for offset in [0, 100, 5000] {
        table.register(range.part(offset, 50).unwrap(), RegionOptions::default()).unwrap();
    }
    let hold = table.hold(addr + 5000, 50, Want::Read).unwrap();
    buffers.free(addr, NOW).unwrap_err();
    drop(hold);
    buffers.free(addr, NOW).unwrap();
    assert!(table.snapshot().is_empty());
}
