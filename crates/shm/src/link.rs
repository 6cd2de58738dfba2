//! What an initiator has of one target: its process, its mirror, an entry page, and what of its memory is mapped here.
//!
//! Owns the answer to whether the target is still alive. It must not know how the link was made.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moonrail_memory::Want;
use moonrail_sys::clock::coarse;
use moonrail_sys::life::lives;
use moonrail_sys::pidfd::{PidFd, ended_or_hung_up};
use moonrail_sys::shared_words::{SharedView, SharedWords};
use parking_lot::{RwLock, RwLockReadGuard};

use crate::blocks::{Desk, Mapped};
use crate::entry_page::EntryPage;
use crate::layout::head;
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
    seen: RwLock<Seen>,
    desk: Desk,
    /// The last sign of life; nanoseconds of the coarse clock.
    seen_alive: AtomicU64,
    /// Up to when small copies count as slow; by the same clock.
    slow_until: AtomicU64,
}

/// The target's regions, and those of its blocks that are mapped here.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) view: View,
    pub(crate) mapped: Arc<Mapped>,
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
            seen: RwLock::default(),
            desk: Desk::default(),
            seen_alive: AtomicU64::new(nanoseconds(coarse())),
            slow_until: AtomicU64::new(0),
        }
    }

    /// Whether the target lives: by its own mark, else by an answer of the kernel at most a tick of the coarse clock older than
    /// `now`, its time.
    #[inline]
    pub(crate) fn alive(&self, now: Duration) -> bool {
        let mark = self.mirror.load(head::LIFE).unwrap_or(0);
        lives(mark).unwrap_or_else(|| self.lately_alive(now))
    }

    #[cold]
    fn lately_alive(&self, now: Duration) -> bool {
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
    pub(crate) fn seen_at(&self, version: u64) -> Result<RwLockReadGuard<'_, Seen>, BadMirror> {
        let seen = self.seen.read();
        if seen.view.version() >= version {
            return Ok(seen);
        }
        drop(seen);
        self.catch_up()?;
        Ok(self.seen.read())
    }

    /// The target's regions as they were last seen.
    #[inline]
    pub(crate) fn seen(&self) -> RwLockReadGuard<'_, Seen> {
        self.seen.read()
    }

    #[cold]
    fn catch_up(&self) -> Result<(), BadMirror> {
        let mut seen = self.seen.write();
        seen.view.catch_up(&self.mirror)?;
        let mut left = seen.view.take_left();
        left.retain(|&block| !seen.view.lists(block) && seen.mapped.get(block).is_some());
        if !left.is_empty() {
            let rest = Arc::new(seen.mapped.without(&left));
            let before = std::mem::replace(&mut seen.mapped, rest);
            // Unmapping takes a while; copies that are going on keep what they use.
            drop(seen);
            drop(before);
        }
        Ok(())
    }

    /// Whether the range lies in memory that can be mapped, as far as this process has seen.
    pub(crate) fn may_be_mapped(&self, addr: u64, len: u64) -> bool {
        let seen = self.seen.read();
        let found = seen.view.find(addr, len, Want::Read, u64::MAX).ok();
        found.and_then(|found| found.backing).is_some_and(|(block, _)| {
            seen.mapped.get(block).is_some() || !(seen.mapped.is_full() || self.desk.given_up(block))
        })
    }

    /// Sees to it that a block gets mapped if there is room for one more, which may take until a later call; waits 2 ms at
    /// most.
    pub(crate) fn fetch(&self, block: u32) {
        if self.seen.read().mapped.is_full() {
            return;
        }
        self.desk.ask(&self.socket, block, |block, far| {
            let mut seen = self.seen.write();
            if seen.view.lists(block) {
                seen.mapped = Arc::new(seen.mapped.with(block, far));
            }
        });
    }

    /// The target's regions as they are now, unless that takes a wait.
    #[inline]
    pub(crate) fn seen_now(&self) -> Option<RwLockReadGuard<'_, Seen>> {
        self.seen.try_read().filter(|seen| seen.view.version() >= self.version())
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use moonrail_sys::local_socket;
    use moonrail_sys::shared_words::Others;

    use super::*;
    use crate::layout;

    #[test]
    fn life_is_what_the_target_says_or_else_the_kernel() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let name = format!("moonrail-test-link-{}", child.id());
        let listener = local_socket::listen(name.as_bytes(), 1).unwrap();
        let socket = local_socket::connect(name.as_bytes()).unwrap();
        let _far = local_socket::accept(&listener).unwrap();
        let (words, fd) = SharedWords::create(c"test", layout::MIRROR_WORDS, Others::Read).unwrap();
        let mirror = SharedView::open(&fd, layout::MIRROR_WORDS).unwrap();
        let (page, _) = SharedWords::create(c"test", layout::PAGE_WORDS, Others::Write).unwrap();
        let process = PidFd::open(child.id()).unwrap();
        let link = Link::new(child.id() as i32, process, socket, mirror, page);
        let mark = |word| words.words()[head::LIFE].store(word, Ordering::Release);
        // The release before marks nothing.
        assert!(link.alive(coarse()));
        mark(u64::from(child.id()));
        assert!(link.alive(coarse()));
        mark(0x4000_0000);
        assert!(!link.alive(coarse()));
        mark(0);
        assert!(link.alive(coarse()));
        child.kill().unwrap();
        child.wait().unwrap();
        // More than a tick.
        std::thread::sleep(Duration::from_millis(20));
        assert!(!link.alive(coarse()));
    }
}
