//! Large registered regions of small pages are given huge ones, in the background: the kernel then copies twice as fast.
//!
//! Owns the thread that does it, which lives only while there is such work. Each huge page is put together under a hold of
//! its region, so that an unregister waits for one page at most, and nothing is touched after it. It must not know how
//! bytes move.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use moonrail_memory::{RegionTable, Want};
use moonrail_sys::huge_pages::HugePages;
use moonrail_sys::process::give_way;
use parking_lot::{Condvar, Mutex};

/// Smaller regions gain too little.
const WORTH: u64 = 4 << 20;
/// After a registration: what a program does first is not to wait for this.
const PAUSE: Duration = Duration::from_millis(200);
/// Regions waiting at most; those beyond keep their pages.
const MOST: usize = 4096;

pub(crate) struct Collapse {
    shared: Arc<Shared>,
}

struct Shared {
    regions: Arc<RegionTable>,
    state: Mutex<State>,
    closing: Condvar,
    bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// First address and length.
    waiting: VecDeque<(u64, u64)>,
    running: bool,
    closed: bool,
}

impl Collapse {
    pub(crate) fn new(regions: Arc<RegionTable>) -> Self {
        let shared =
            Shared { regions, state: Mutex::default(), closing: Condvar::new(), bytes: AtomicU64::new(0) };
        Self { shared: Arc::new(shared) }
    }

    /// Bytes in huge pages that were put together here.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Looks at regions that were just registered, later.
    pub(crate) fn add(&self, regions: impl Iterator<Item = (u64, u64)>) {
        let mut large = regions.filter(|&(_, len)| len >= WORTH).peekable();
        if large.peek().is_none() {
            return;
        }
        let mut state = self.shared.state.lock();
        let room = MOST.saturating_sub(state.waiting.len());
        state.waiting.extend(large.take(room));
        if state.running || state.closed {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let spawned = thread::Builder::new()
            .name("moonrail-pages".to_owned())
            .stack_size(128 << 10)
            .spawn(move || work(&shared));
        state.running = spawned.is_ok();
    }

    /// Ends the work; what is left stays as it is.
    pub(crate) fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.waiting.clear();
        self.shared.closing.notify_all();
    }
}

impl Drop for Collapse {
    fn drop(&mut self) {
        self.close();
    }
}

fn work(shared: &Shared) {
    give_way();
    let huge = HugePages::find();
    loop {
        // Also waits for those that are registered one by one.
        let mut state = shared.state.lock();
        if huge.is_some() && !state.closed {
            shared.closing.wait_for(&mut state, PAUSE);
        }
        let (Some(huge), Some((addr, len))) = (&huge, state.waiting.pop_front()) else {
            state.running = false;
            state.waiting.clear();
            return;
        };
        drop(state);
        region(shared, huge, addr, len);
    }
}

fn region(shared: &Shared, huge: &HugePages, addr: u64, len: u64) {
    let mut generation = None;
    for number in huge.whole(addr, len) {
        let began = Instant::now();
        let Ok(hold) = shared.regions.hold(number * huge.size(), huge.size(), Want::Read) else { return };
        if *generation.get_or_insert(hold.region().generation) != hold.region().generation {
            return;
        }
        if !huge.is_worth_it(number).unwrap_or(false) {
            continue;
        }
        if huge.collapse(number).is_ok() {
            shared.bytes.fetch_add(huge.size(), Ordering::Relaxed);
        }
        drop(hold);
        // Half of the time is others'.
        let mut state = shared.state.lock();
        if !state.closed {
            shared.closing.wait_for(&mut state, began.elapsed());
        }
        if state.closed {
            return;
        }
    }
}
