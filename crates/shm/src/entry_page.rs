//! The initiator's side of its entry page: docs/same-host.md, "The fence".
//!
//! Owns who of this process's threads has which entry, and the order of the stores. It must not know what is copied.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use moonrail_memory::cross::CrossStorage;
use moonrail_sys::shared_words::SharedWords;
use parking_lot::{Mutex, MutexGuard};

use crate::fence;
use crate::layout::{self, entry};

pub(crate) struct EntryPage {
    page: SharedWords,
    /// Private: what another process writes into the page cannot make two threads share an entry.
    claims: Box<[Claim]>,
}

/// On a cache line of its own, as every batch of a thread takes it.
#[derive(Default)]
#[repr(align(64))]
struct Claim(Mutex<CrossStorage>);

/// Where a thread begins to look for a free entry: threads rarely meet.
#[derive(Clone, Copy)]
pub(crate) struct Seat(usize);

thread_local! {
    static SEAT: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed))
    };
}

impl Seat {
    /// The calling thread's.
    pub(crate) fn own() -> Self {
        Self(SEAT.get() % layout::ENTRIES)
    }

    /// That of a thread which helps the one that sits here.
    pub(crate) fn opposite(self) -> Self {
        Self((self.0 + layout::ENTRIES / 2) % layout::ENTRIES)
    }
}

impl EntryPage {
    pub(crate) fn new(page: SharedWords) -> Self {
        Self { page, claims: (0..layout::ENTRIES).map(|_| Claim::default()).collect() }
    }

    /// Takes an entry for the calling thread; `None` when all are taken and none has come free in `patience`. `seat` is
    /// where to look first: from where the last call of the same thread left its lists.
    pub(crate) fn claim(&self, seat: Seat, patience: Duration) -> Option<Entry<'_>> {
        let seat = seat.0;
        for at in (seat..layout::ENTRIES).chain(0..seat) {
            if let Some(storage) = self.claims[at].0.try_lock() {
                return Some(self.entry(at, storage));
            }
        }
        let storage = self.claims[seat].0.try_lock_for(patience)?;
        Some(self.entry(seat, storage))
    }

    fn entry<'a>(&'a self, at: usize, storage: MutexGuard<'a, CrossStorage>) -> Entry<'a> {
        Entry { words: &self.page.words()[at * entry::WORDS..][..entry::WORDS], storage }
    }
}

/// One entry, taken by one thread.
pub(crate) struct Entry<'a> {
    words: &'a [AtomicU64],
    /// Lists of earlier batches, for their memory.
    storage: MutexGuard<'a, CrossStorage>,
}

impl Entry<'_> {
    pub(crate) fn take_storage(&mut self) -> CrossStorage {
        std::mem::take(&mut *self.storage)
    }

    pub(crate) fn give_storage(&mut self, storage: CrossStorage) {
        *self.storage = storage;
    }

    /// See [`fence::enter`].
    #[inline]
    pub(crate) fn enter(&self, low: u64, high: u64, version: u64) -> Inside<'_> {
        fence::enter(self.words, low, high, version);
        Inside(&self.words[entry::STATE])
    }
}

/// While it lives, the target's fence waits.
pub(crate) struct Inside<'a>(&'a AtomicU64);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        fence::leave(self.0);
    }
}
