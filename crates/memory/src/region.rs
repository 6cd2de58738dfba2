//! One registered region: what is known about it, and the count of holds on it.
//!
//! Owns the atomic state that makes unregistering a fence. It must not know the table that lists it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::error::RegionSpan;
use crate::{Backing, MemoryRange};

/// What transfers may do with a region, whoever starts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Access {
    /// Its bytes may be sent, never changed.
    ReadOnly,
    /// Its bytes may be sent and changed.
    #[default]
    ReadWrite,
}

/// What a hold is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Want {
    /// To send the bytes.
    Read,
    /// To change the bytes.
    Write,
}

impl Access {
    /// Whether a hold for `want` may be taken.
    pub fn allows(self, want: Want) -> bool {
        self == Access::ReadWrite || want == Want::Read
    }
}

/// What the owner of a region says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionOptions {
    /// Where the memory is, as published to peers: `*` for anywhere, else a device such as `cpu:0`.
    pub location: String,
    /// A name that peers can look the region up by; unique in the table.
    pub name: Option<String>,
    /// What transfers may do with it.
    pub access: Access,
    /// Whether peers need a token for it. This table only keeps the mark; paths ask for it.
    pub guarded: bool,
}

impl Default for RegionOptions {
    fn default() -> RegionOptions {
        RegionOptions { location: "*".to_owned(), name: None, access: Access::default(), guarded: false }
    }
}

/// A registered region, as seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionInfo {
    /// The first address.
    pub addr: u64,
    /// The length in bytes; never 0.
    pub len: u64,
    /// Counts registrations in this table; never reused, so it tells two regions at one address apart.
    pub generation: u64,
    /// See [`RegionOptions::location`].
    pub location: Arc<str>,
    /// See [`RegionOptions::name`].
    pub name: Option<Arc<str>>,
    /// See [`RegionOptions::access`].
    pub access: Access,
    /// Where other processes can map it, if the engine allocated it so. Such a region is always mapped here.
    pub backing: Option<Backing>,
    /// See [`RegionOptions::guarded`].
    pub guarded: bool,
}

impl RegionInfo {
    /// The address behind the last byte.
    #[inline]
    pub fn end(&self) -> u64 {
        self.addr + self.len
    }

    /// Where the region lies.
    pub fn span(&self) -> RegionSpan {
        RegionSpan { addr: self.addr, len: self.len }
    }

    /// Whether `len` bytes at `addr` lie inside.
    #[inline]
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        addr >= self.addr && addr.checked_add(len).is_some_and(|end| end <= self.end())
    }
}

/// Set in [`Region::state`] once the region is being unregistered.
const REVOKED: u64 = 1;
/// One hold in [`Region::state`].
const ONE_HOLD: u64 = 2;

/// A region in the table, shared with the holds on it.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) info: RegionInfo,
    /// Twice the number of holds, plus [`REVOKED`]. One word, so that the last drop and the revocation cannot miss each
    /// other: whichever comes second sees the first.
    state: AtomicU64,
    /// Set once the region is revoked and no user outside this process can be in the middle of a copy there.
    fenced: AtomicBool,
    waiting: Mutex<()>,
    released: Condvar,
}

impl Region {
    pub(crate) fn new(
        range: MemoryRange,
        options: RegionOptions,
        location: Arc<str>,
        generation: u64,
        backing: Option<Backing>,
    ) -> Region {
        Region {
            info: RegionInfo {
                addr: range.addr(),
                len: range.len(),
                generation,
                location,
                name: options.name.map(Into::into),
                access: options.access,
                backing,
                guarded: options.guarded,
            },
            state: AtomicU64::new(0),
            fenced: AtomicBool::new(false),
            waiting: Mutex::new(()),
            released: Condvar::new(),
        }
    }

    /// Counts one hold more. The caller excludes [`Region::revoke`] while it does (by the table's lock).
    pub(crate) fn acquire(&self) {
        let before = self.state.fetch_add(ONE_HOLD, Ordering::Relaxed);
        debug_assert_eq!(before & REVOKED, 0, "a revoked region is not held anew");
    }

    /// Counts one hold less, and wakes whoever waits for the last.
    pub(crate) fn release(&self) {
        // Release: what was done under the hold happens before the fence returns.
        let before = self.state.fetch_sub(ONE_HOLD, Ordering::Release);
        if before == ONE_HOLD | REVOKED {
            // Taking the lock closes the gap between a waiter's look at the count and its sleep.
            drop(self.waiting.lock());
            self.released.notify_all();
        }
    }

    /// Marks the region as going away.
    pub(crate) fn revoke(&self) {
        self.state.fetch_or(REVOKED, Ordering::AcqRel);
    }

    pub(crate) fn revoked(&self) -> bool {
        self.state.load(Ordering::Acquire) & REVOKED != 0
    }

    pub(crate) fn holds(&self) -> u64 {
        self.state.load(Ordering::Acquire) / ONE_HOLD
    }

    pub(crate) fn set_fenced(&self) {
        self.fenced.store(true, Ordering::Release);
    }

    pub(crate) fn fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    /// Holds on the revoked region, counting all users outside as one.
    pub(crate) fn in_use(&self) -> u64 {
        self.holds() + u64::from(!self.fenced())
    }

    /// Waits until nothing holds the revoked region; the number of holds left at `deadline` (`None`: no deadline).
    pub(crate) fn wait_released(&self, deadline: Option<Instant>) -> u64 {
        debug_assert!(self.revoked(), "only a revoked region runs out of holds for good");
        if self.holds() == 0 {
            return 0;
        }
        let mut waiting = self.waiting.lock();
        loop {
            let holds = self.holds();
            if holds == 0 {
                return 0;
            }
            match deadline {
                None => self.released.wait(&mut waiting),
                Some(deadline) => {
                    if self.released.wait_until(&mut waiting, deadline).timed_out() {
                        return self.holds();
                    }
                }
            }
        }
    }
}
