//! Users outside the process: what they are told, and how the fence waits for them.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_memory::{
    MemoryRange, Outside, RegionInfo, RegionOptions, RegionSpan, RegionTable, RegisterError, UnregisterError,
};
use parking_lot::Mutex;

/// Keeps a copy of the table, and says that process 77 is copying from `held` until it is emptied.
#[derive(Default)]
struct Users {
    listed: Mutex<BTreeSet<(u64, u64)>>,
    held: Mutex<Option<u64>>,
}

impl Outside for Users {
    fn registered(&self, regions: &mut dyn Iterator<Item = &RegionInfo>) {
        for info in regions {
            assert!(self.listed.lock().insert((info.addr, info.generation)));
        }
    }

    fn revoked(&self, regions: &mut dyn Iterator<Item = &RegionInfo>) {
        for info in regions {
            assert!(self.listed.lock().remove(&(info.addr, info.generation)));
        }
    }

    fn fence(&self, regions: &[RegionSpan], deadline: Option<Instant>, busy: &mut dyn FnMut(usize, u32)) {
        for (index, region) in regions.iter().enumerate() {
            assert!(!self.listed.lock().iter().any(|&(addr, _)| addr == region.addr), "fenced but listed");
            while *self.held.lock() == Some(region.addr) {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    busy(index, 77);
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn range(addr: u64) -> MemoryRange {
    // SAFETY: the table only keeps the numbers; nothing touches the memory.
    unsafe { MemoryRange::assume_valid(addr, 100) }.unwrap()
}

fn add(table: &RegionTable, addr: u64) -> Result<RegionInfo, RegisterError> {
    table.register(range(addr), RegionOptions::default())
}

#[test]
fn they_are_told_of_what_is_there_and_of_every_change() {
    let (table, users) = (RegionTable::new(), Arc::new(Users::default()));
    add(&table, 1000).unwrap();
    table.attach(Arc::clone(&users) as Arc<dyn Outside>);
    let listed = || users.listed.lock().iter().map(|&(addr, _)| addr).collect::<Vec<_>>();
    assert_eq!(listed(), [1000]);
    let entries = |addrs: [u64; 2]| addrs.map(|addr| (range(addr), RegionOptions::default())).to_vec();
    table.register_batch(entries([2000, 3000])).unwrap();
    table.register_batch(entries([4000, 1050])).unwrap_err();
    assert_eq!(listed(), [1000, 2000, 3000], "a batch that is not registered is not told of");
    table.unregister_batch(&[1000, 3000], Duration::ZERO).unwrap();
    assert_eq!(listed(), [2000]);
    table.unregister(9000, Duration::ZERO).unwrap_err();
    add(&table, 1000).unwrap();
    assert_eq!(listed(), [1000, 2000]);
}

#[test]
fn unregister_waits_for_them_and_says_who_it_is() {
    let (table, users) = (RegionTable::new(), Arc::new(Users::default()));
    table.attach(Arc::clone(&users) as Arc<dyn Outside>);
    add(&table, 1000).unwrap();
    add(&table, 2000).unwrap();
    *users.held.lock() = Some(2000);
    let (index, busy) = table.unregister_batch(&[1000, 2000], Duration::from_millis(20)).unwrap_err();
    assert!(matches!(busy, UnregisterError::Busy { outside: Some(77), holds: 0, .. }), "{busy:?}");
    assert_eq!(index, 1);
    assert!(busy.to_string().contains("process 77"), "{busy}");
    // The other one is free; this one is not, until its user has ended.
    add(&table, 1000).unwrap();
    assert!(matches!(add(&table, 2050), Err(RegisterError::StillHeld { .. })));
    *users.held.lock() = None;
    add(&table, 2050).unwrap();
    // One that ends in time is waited for.
    *users.held.lock() = Some(1000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            *users.held.lock() = None;
        });
        table.unregister(1000, Duration::from_secs(10)).unwrap();
    });
    assert_eq!(*users.held.lock(), None);
}
