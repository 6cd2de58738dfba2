//! The processes that may copy from and into this one, as the target sees them.
//!
//! Owns their entry pages and the waiting for them. It believes nothing in a page but what is compared here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_memory::RegionSpan;
use moonrail_sys::pidfd::{PidFd, ended_or_hung_up};
use moonrail_sys::shared_words::{Others, SharedWords};
use parking_lot::RwLock;

use crate::fence;
use crate::layout::{self, entry};

/// Sleep between two looks at an entry in the way: from the first to the last.
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

/// One connected process.
pub(crate) struct Initiator {
    pub(crate) pid: u32,
    process: PidFd,
    socket: OwnedFd,
    page: SharedWords,
}

impl Initiator {
    /// A new one, and the descriptor of its entry page.
    pub(crate) fn new(pid: u32, process: PidFd, socket: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        let (page, fd) = SharedWords::create(c"moonrail-entries", layout::PAGE_WORDS, Others::Write)?;
        Ok((Self { pid, process, socket, page }, fd))
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Whether no thread of it can be in the middle of a copy for good: it closes its socket last, and the kernel closes
    /// it for a dying process once no thread of it runs.
    pub(crate) fn gone(&self) -> bool {
        ended_or_hung_up(&self.process, &self.socket)
    }

    /// Bounds of the copies that entry `index` may be in the middle of, checked before `version` was published.
    fn in_the_way(&self, index: usize, version: u64) -> Option<(u64, u64)> {
        fence::in_the_way(&self.page.words()[index * entry::WORDS..][..entry::WORDS], version)
    }
}

/// All connected processes.
#[derive(Default)]
pub(crate) struct Initiators {
    list: RwLock<Vec<Arc<Initiator>>>,
}

impl Initiators {
    pub(crate) fn len(&self) -> usize {
        self.list.read().len()
    }

    pub(crate) fn add(&self, initiator: Arc<Initiator>) {
        self.list.write().push(initiator);
    }

    pub(crate) fn remove(&self, initiator: &Arc<Initiator>) {
        self.list.write().retain(|other| !Arc::ptr_eq(other, initiator));
    }

    /// See [`Outside::fence`](moonrail_memory::Outside::fence). `version` was published, and fenced, before.
    pub(crate) fn fence(
        &self,
        version: u64,
        regions: &[RegionSpan],
        deadline: Option<Instant>,
        busy: &mut dyn FnMut(usize, u32),
    ) {
        let mut by_start: Vec<(u64, u64, usize)> = Vec::new();
        // One that connects from now on has seen `version`.
        let initiators = self.list.read().clone();
        for initiator in initiators {
            let mut pause = SHORTEST;
            for index in 0..layout::ENTRIES {
                while let Some(bounds) = initiator.in_the_way(index, version) {
                    if by_start.is_empty() {
                        let spans = regions.iter().enumerate();
                        by_start = spans.map(|(at, span)| (span.addr, span.end(), at)).collect();
                        by_start.sort_unstable();
                    }
                    let mut touched = touched(&by_start, bounds).peekable();
                    if touched.peek().is_none() || initiator.gone() {
                        break;
                    }
                    let now = Instant::now();
                    if deadline.is_some_and(|deadline| now >= deadline) {
                        touched.for_each(|at| busy(at, initiator.pid));
                        break;
                    }
                    let left = deadline.map_or(pause, |deadline| deadline - now);
                    std::thread::sleep(pause.min(left));
                    pause = (pause * 2).min(LONGEST);
                }
            }
        }
    }
}

/// The regions (start, end, index; by start, none overlapping another) that share memory with `low..high`.
fn touched(by_start: &[(u64, u64, usize)], (low, high): (u64, u64)) -> impl Iterator<Item = usize> + '_ {
    let from = by_start.partition_point(|&(_, end, _)| end <= low);
    by_start[from..].iter().take_while(move |&&(start, ..)| start < high).map(|&(.., at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_is_sharing_a_byte() {
        let regions = [(10, 20, 0), (20, 30, 1), (40, 50, 2)];
        let hit = |low, high| touched(&regions, (low, high)).collect::<Vec<_>>();
        assert_eq!(hit(0, 10), [0_usize; 0]);
        assert_eq!(hit(0, 11), [0]);
        assert_eq!(hit(19, 21), [0, 1]);
        assert_eq!(hit(30, 40), [0_usize; 0]);
        assert_eq!(hit(0, u64::MAX), [0, 1, 2]);
        assert_eq!(hit(49, 5), [0_usize; 0], "a page that lies");
    }
}
