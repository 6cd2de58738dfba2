//! What an initiator has of one target: its process, its mirror, an entry page.
//!
//! Owns the answer to whether the target is still alive. It must not know how the link was made.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moonrail_sys::clock::coarse;
use moonrail_sys::pidfd::{PidFd, ended_or_hung_up};
use moonrail_sys::shared_words::{SharedView, SharedWords};
use parking_lot::{RwLock, RwLockReadGuard};

use crate::entry_page::EntryPage;
use crate::view::{self, BadMirror, View};

/// How old an answer to "is it alive?" may be, by the coarse clock: so one is asked for at each of its ticks, of 1 to 10
/// ms. Far less than a process number needs to come round.
const FRESH: Duration = Duration::from_millis(1);

/// A small copy that takes longer is not one of memory that is there: it is paged in, or the kernel makes it wait.
const SLOW: Duration = Duration::from_millis(10);
/// How long that is remembered.
const SLOW_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Link {
    /// As `process_vm_*` wants it.
    pub(crate) pid: i32,
    process: PidFd,
    /// Hung up when the target ends, closes its engine, or runs another program.
    socket: OwnedFd,
    pub(crate) mirror: SharedView,
    pub(crate) entries: EntryPage,
    view: RwLock<View>,
    /// The last sign of life; nanoseconds of the coarse clock.
    seen_alive: AtomicU64,
    /// Up to when small copies count as slow; by the same clock.
    slow_until: AtomicU64,
}

impl Link {
    pub(crate) fn new(
        pid: i32,
        process: PidFd,
        socket: OwnedFd,
        mirror: SharedView,
        page: SharedWords,
    ) -> Self {
        Self {
            pid,
            process,
            socket,
            mirror,
            entries: EntryPage::new(page),
            view: RwLock::default(),
            seen_alive: AtomicU64::new(nanoseconds(coarse())),
            slow_until: AtomicU64::new(0),
        }
    }

    /// Whether the target lives, by an answer that is at most a tick of the coarse clock older than `now`, its time.
    #[inline]
    pub(crate) fn alive(&self, now: Duration) -> bool {
        let at = nanoseconds(now);
        if at.saturating_sub(self.seen_alive.load(Ordering::Relaxed)) < FRESH.as_nanos() as u64 {
            return true;
        }
        let alive = !self.gone();
        if alive {
            self.seen_alive.store(at, Ordering::Relaxed);
        }
        alive
    }

    /// Whether small copies have lately been slow.
    #[inline]
    pub(crate) fn slow(&self, now: Duration) -> bool {
        nanoseconds(now) < self.slow_until.load(Ordering::Relaxed)
    }

    /// Takes note of how long a small copy took.
    #[inline]
    pub(crate) fn took(&self, began: Duration, ended: Duration) {
        if ended.saturating_sub(began) > SLOW {
            self.slow_until.store(nanoseconds(ended + SLOW_FOR), Ordering::Relaxed);
        }
    }

    /// Whether the target is gone, asked now.
    pub(crate) fn gone(&self) -> bool {
        ended_or_hung_up(&self.process, &self.socket)
    }

    /// The target's regions, at `version` or later.
    #[inline]
    pub(crate) fn view_at(&self, version: u64) -> Result<RwLockReadGuard<'_, View>, BadMirror> {
        let view = self.view.read();
        if view.version() >= version {
            return Ok(view);
        }
        drop(view);
        self.view.write().catch_up(&self.mirror)?;
        Ok(self.view.read())
    }

    /// The target's regions as they are now, unless that takes a wait.
    #[inline]
    pub(crate) fn view_now(&self) -> Option<RwLockReadGuard<'_, View>> {
        self.view.try_read().filter(|view| view.version() >= self.version())
    }

    /// The mirror's version now.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        view::version(&self.mirror)
    }
}

#[inline]
fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}
