//! The ids of background batches, and what became of them.

use std::collections::BTreeMap;

use moonrail::Completion;
use parking_lot::Mutex;

/// Ended batches whose outcome can still be asked for; of more, the oldest are forgotten.
const REMEMBERED: usize = 65_536;

/// Ids are counted from 1 and never given out twice.
pub(crate) struct Batches(Mutex<Table>);

struct Table {
    next: u64,
    /// Oldest first.
    batches: BTreeMap<u64, Batch>,
    /// Size at which to look for outcomes to forget: not at each new batch, when many are running.
    sweep_at: usize,
}

#[derive(Clone)]
pub(crate) struct Batch {
    pub completion: Completion,
    /// Its result was waited for and handed out.
    pub collected: bool,
}

impl Batches {
    /// A table whose first id is `first`.
    pub(crate) fn new(first: u64) -> Self {
        Self(Mutex::new(Table {
            next: first,
            batches: BTreeMap::new(),
            sweep_at: REMEMBERED + REMEMBERED / 8,
        }))
    }

    pub(crate) fn add(&self, completion: Completion) -> u64 {
        let mut table = self.0.lock();
        let id = table.next;
        table.next += 1;
        table.batches.insert(id, Batch { completion, collected: false });
        if table.batches.len() >= table.sweep_at {
            table.sweep();
        }
        id
    }

    pub(crate) fn get(&self, id: u64) -> Option<Batch> {
        self.0.lock().batches.get(&id).cloned()
    }

    pub(crate) fn collect(&self, id: u64) {
        if let Some(batch) = self.0.lock().batches.get_mut(&id) {
            batch.collected = true;
        }
    }
}

impl Table {
    fn sweep(&mut self) {
        let mut excess = self.batches.len().saturating_sub(REMEMBERED);
        self.batches.retain(|_, batch| {
            let forget = excess > 0 && batch.completion.poll().is_some();
            excess -= usize::from(forget);
            !forget
        });
        self.sweep_at = self.batches.len().max(REMEMBERED) + REMEMBERED / 8;
    }
}
