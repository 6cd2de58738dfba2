//! The unregister fence with threads.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use moonrail_memory::{
    HoldMiss, MemoryRange, RegionOptions, RegionTable, RegisterError, UnregisterError, Want,
};

/// Longer than any wait in here lasts, unless a wake-up was lost.
const LONG: Duration = Duration::from_secs(20);

/// Unregisters, and fails if the fence was left by the clock instead of by the last hold.
fn fence(table: &RegionTable, addr: u64) -> Result<(), UnregisterError> {
    let began = Instant::now();
    let answer = table.unregister(addr, LONG);
    assert!(began.elapsed() < LONG, "the last drop did not wake the fence");
    answer
}

/// Sets a flag when dropped, so that a failing test ends its threads too.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn range(addr: u64, len: u64) -> MemoryRange {
    // SAFETY: these tests never give the addresses to the kernel.
    unsafe { MemoryRange::assume_valid(addr, len) }.unwrap()
}

fn register(table: &RegionTable, addr: u64, len: u64) {
    table.register(range(addr, len), RegionOptions::default()).unwrap();
}

#[test]
fn unregistering_waits_for_the_last_hold() {
    let table = RegionTable::new();
    register(&table, 1000, 100);
    let holds = [table.hold(1000, 1, Want::Write).unwrap(), table.hold(1000, 1, Want::Read).unwrap()];
    let returned = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let answer = fence(&table, 1000);
            returned.store(true, Ordering::SeqCst);
            answer
        });
        while !holds[0].revoked() {
            std::thread::yield_now();
        }
        let miss = table.hold(1000, 1, Want::Read).unwrap_err().miss;
        assert!(matches!(miss, HoldMiss::Revoked { .. }), "no hold begins once it is revoked");
        let [first, second] = holds;
        drop(first);
        std::thread::sleep(Duration::from_millis(30));
        assert!(!returned.load(Ordering::SeqCst), "one hold is left");
        drop(second);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn patience_ends() {
    let table = RegionTable::new();
    register(&table, 1000, 100);
    let _hold = table.hold(1000, 1, Want::Write).unwrap();
    let patience = Duration::from_millis(40);
    let began = Instant::now();
    let Err(UnregisterError::Busy { holds: 1, waited, .. }) = table.unregister(1000, patience) else {
        panic!()
    };
    assert!(waited >= patience && began.elapsed() >= patience);
}

#[test]
fn the_patience_of_a_batch_is_shared() {
    let table = RegionTable::new();
    let starts: Vec<u64> = (1..=20).map(|i| i * 1000).collect();
    starts.iter().for_each(|&start| register(&table, start, 10));
    let _holds = table.hold_all(starts.iter().map(|&start| (start, 1)), Want::Read).unwrap();
    let began = Instant::now();
    assert!(table.unregister_batch(&starts, Duration::from_millis(50)).is_err());
    assert!(began.elapsed() < Duration::from_millis(50 * 10), "{:?}", began.elapsed());
}

#[test]
fn the_revoke_hook_ends_what_would_wait_for_a_peer() {
    let table = Arc::new(RegionTable::new());
    register(&table, 1000, 100);
    let (stop, stopped) = std::sync::mpsc::channel();
    let stop = std::sync::Mutex::new(stop);
    table.on_revoke(Box::new(move || {
        let _ = stop.lock().unwrap().send(());
    }));
    let hold = table.hold(1000, 100, Want::Write).unwrap();
    let lane = std::thread::spawn(move || {
        stopped.recv_timeout(LONG).expect("the hook is called");
        assert!(hold.revoked(), "marked before the hook runs");
    });
    fence(&table, 1000).unwrap();
    lane.join().unwrap();
}

/// Workers mark a slot as "in use" under a hold; the owner checks after each fence that none is, and gives the slot
/// another meaning. With a broken fence a worker is seen in a region that is gone.
#[test]
fn nobody_is_inside_after_the_fence() {
    const SLOTS: u64 = 4;
    let rounds = if cfg!(miri) { 5 } else { 500 };
    let table = RegionTable::new();
    let users: Vec<AtomicU64> = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
    let gone: Vec<AtomicBool> = (0..SLOTS).map(|_| AtomicBool::new(false)).collect();
    let done = AtomicBool::new(false);
    let entered = AtomicU64::new(0);
    (0..SLOTS).for_each(|slot| register(&table, (slot + 1) * 1000, 100));
    std::thread::scope(|scope| {
        for worker in 0..3_u64 {
            let (table, users, gone, done, entered) = (&table, &users, &gone, &done, &entered);
            scope.spawn(move || {
                let mut turn = worker;
                while !done.load(Ordering::Relaxed) {
                    turn += 1;
                    let slot = turn % SLOTS;
                    let at = (slot + 1) * 1000;
                    let held = if turn % 7 == 0 {
                        table.hold_all([(at, 10), (at + 50, 50)], Want::Write).map(Err).map_err(|(_, e)| e)
                    } else {
                        table.hold(at + 5, 10, Want::Write).map(Ok)
                    };
                    let Ok(hold) = held else {
                        std::thread::yield_now();
                        continue;
                    };
                    users[slot as usize].fetch_add(1, Ordering::Relaxed);
                    assert!(!gone[slot as usize].load(Ordering::Relaxed), "held, yet unregistered");
                    entered.fetch_add(1, Ordering::Relaxed);
                    users[slot as usize].fetch_sub(1, Ordering::Relaxed);
                    drop(hold);
                }
            });
        }
        let _done = SetOnDrop(&done);
        for round in 0..rounds {
            let slot = (round * 3) % SLOTS;
            let at = (slot + 1) * 1000;
            fence(&table, at).unwrap();
            gone[slot as usize].store(true, Ordering::Relaxed);
            assert_eq!(users[slot as usize].load(Ordering::Relaxed), 0, "somebody is still inside");
            std::thread::yield_now();
            gone[slot as usize].store(false, Ordering::Relaxed);
            register(&table, at, 100);
        }
    });
    assert!(cfg!(miri) || entered.load(Ordering::Relaxed) > 0);
}

#[test]
fn two_owners_may_unregister_at_once() {
    for _ in 0..if cfg!(miri) { 3 } else { 300 } {
        let table = RegionTable::new();
        register(&table, 1000, 100);
        let hold = table.hold(1000, 1, Want::Read).unwrap();
        let start = Barrier::new(3);
        std::thread::scope(|scope| {
            let owner = || {
                start.wait();
                fence(&table, 1000)
            };
            let owners = [scope.spawn(owner), scope.spawn(owner)];
            start.wait();
            drop(hold);
            let answers = owners.map(|owner| owner.join().unwrap());
            assert!(answers.iter().any(Result::is_ok));
            let second = answers.iter().filter_map(|answer| answer.err()).next();
            assert!(matches!(second, None | Some(UnregisterError::NotRegistered { .. })), "{second:?}");
        });
        register(&table, 1000, 100);
        assert!(table.hold(1000, 100, Want::Read).is_ok());
    }
}

/// While one thread waits in the fence, another may register the memory again as soon as the last hold is gone; the
/// waiting one must not take the new region out.
#[test]
fn a_successor_survives_the_fence_before_it() {
    for _ in 0..if cfg!(miri) { 3 } else { 300 } {
        let table = RegionTable::new();
        register(&table, 1000, 100);
        let hold = table.hold(1000, 1, Want::Read).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| fence(&table, 1000));
            while !hold.revoked() {
                std::thread::yield_now();
            }
            let refused = table.register(range(1000, 50), RegionOptions::default());
            assert!(matches!(refused, Err(RegisterError::StillHeld { holds: 1, .. })));
            drop(hold);
            register(&table, 1000, 50);
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(table.snapshot().len(), 1);
        assert_eq!(table.hold(1000, 50, Want::Write).unwrap().region().len, 50);
    }
}
