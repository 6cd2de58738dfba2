//! Holds against `unregister` under every order that the memory model allows, by loom.
//!
//! The algorithm of `region` over loom's atomics, lock and condition variable, each with the ordering that it has there:
//! who changes one of them changes it here too. The region's bytes are a loom cell, which fails the test wherever a
//! holder and the owner touch them with nothing that orders the two.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const REVOKED: u64 = 1;
const ONE_HOLD: u64 = 2;

struct Region {
    /// Whether the table lists it.
    table: Mutex<bool>,
    state: AtomicU64,
    waiting: Mutex<()>,
    released: Condvar,
    bytes: UnsafeCell<u8>,
}

impl Region {
    fn new() -> Self {
        Self {
            table: Mutex::new(true),
            state: AtomicU64::new(0),
            waiting: Mutex::new(()),
            released: Condvar::new(),
            bytes: UnsafeCell::new(0),
        }
    }

    /// A transfer: finds the region, holds it, reads its bytes, lets go.
    fn transfer(&self) {
        let table = self.table.lock().expect("no holder panics");
        if !*table {
            return;
        }
        // `Region::acquire`
        self.state.fetch_add(ONE_HOLD, Ordering::Relaxed);
        drop(table);
        self.bytes.with(|_| ());
        // `Region::release`
        if self.state.fetch_sub(ONE_HOLD, Ordering::Release) == ONE_HOLD | REVOKED {
            drop(self.waiting.lock());
            self.released.notify_all();
        }
    }

    /// Returns once nobody can touch the bytes any more, and takes them.
    fn unregister(&self) {
        let mut table = self.table.lock().expect("no holder panics");
        *table = false;
        // `Region::revoke`
        self.state.fetch_or(REVOKED, Ordering::AcqRel);
        drop(table);
        self.wait_released();
        self.bytes.with_mut(|_| ());
    }

    fn holds(&self) -> u64 {
        self.state.load(Ordering::Acquire) / ONE_HOLD
    }

    fn wait_released(&self) {
        if self.holds() == 0 {
            return;
        }
        let mut waiting = self.waiting.lock().expect("no holder panics");
        while self.holds() > 0 {
            waiting = self.released.wait(waiting).expect("no holder panics");
        }
    }
}

#[test]
fn unregister_waits_for_every_hold_and_is_always_woken() {
    // Three switches at any places find what orderings leave open; all of them would take a minute.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let region = Arc::new(Region::new());
        let transfers: Vec<_> = (0..2)
            .map(|_| {
                let region = Arc::clone(&region);
                thread::spawn(move || region.transfer())
            })
            .collect();
        region.unregister();
        for transfer in transfers {
            transfer.join().expect("it does not panic");
        }
    });
}
