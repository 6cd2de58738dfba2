//! Small buffers out of one block.
//!
//! Owns which pages of the block are free. It must not know regions.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use moonrail_sys::memfd::Pages;

use crate::block::{BLOCK_PAGE, SharedBlock};

/// Pages of one arena: 16 MiB, which take no memory until they are used.
const PAGES: u32 = 4096;

/// The largest buffer that is put into an arena, in bytes; a larger one has a block of its own.
pub(crate) const LARGEST: u64 = 1 << 20;

/// Pages of an arena in use: the first, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    first: u32,
    pages: u32,
}

impl Run {
    /// The bytes from the block's start to the run's.
    pub(crate) fn offset(self) -> u64 {
        u64::from(self.first) * BLOCK_PAGE
    }

    /// The length in bytes.
    pub(crate) fn len(self) -> u64 {
        u64::from(self.pages) * BLOCK_PAGE
    }
}

/// A block and its free pages.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) block: Arc<SharedBlock>,
    /// First page and length of each free run; no two touch.
    free: BTreeMap<u32, u32>,
    used: u32,
}

impl Arena {
    pub(crate) fn new() -> io::Result<Arena> {
        let block = SharedBlock::new((u64::from(PAGES) * BLOCK_PAGE) as usize, Pages::Usual, false)?;
        Ok(Arena { block: Arc::new(block), free: BTreeMap::from([(0, PAGES)]), used: 0 })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The first free run of `len` bytes, rounded up to pages; they read as zeros.
    pub(crate) fn take(&mut self, len: u64) -> Option<Run> {
        let pages = u32::try_from(len.max(1).div_ceil(BLOCK_PAGE)).ok()?;
        if pages > PAGES - self.used {
            return None;
        }
        let (&first, &room) = self.free.iter().find(|&(_, &room)| room >= pages)?;
        self.free.remove(&first);
        if room > pages {
            self.free.insert(first + pages, room - pages);
        }
        self.used += pages;
        Some(Run { first, pages })
    }

    /// Takes a run back, and gives its memory to the system. Should that fail, its pages are not used again, as they would
    /// not be zeros.
    pub(crate) fn give_back(&mut self, run: Run) {
        self.used -= run.pages;
        if self.block.discard(run.offset(), run.len()).is_err() {
            return;
        }
        let Run { mut first, mut pages } = run;
        if let Some((&before, &length)) = self.free.range(..first).next_back()
            && before + length == first
        {
            self.free.remove(&before);
            (first, pages) = (before, pages + length);
        }
        if let Some(length) = self.free.remove(&(first + pages)) {
            pages += length;
        }
        self.free.insert(first, pages);
    }
}

#[cfg(test)]
#[cfg(not(miri))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn runs_do_not_overlap_and_all_come_back() {
        let mut arena = Arena::new().unwrap();
        let mut taken: Vec<Run> = Vec::new();
        let mut dice = 0x6d61_7070_6564_u64;
        let mut roll = |limit: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % limit
        };
        for _ in 0..2000 {
            if roll(5) < 3 {
                let Some(run) = arena.take(roll(LARGEST) / (1 + roll(200))) else { continue };
                let (from, to) = (run.first, run.first + run.pages);
                assert!(to <= PAGES);
                assert!(taken.iter().all(|other| other.first >= to || other.first + other.pages <= from));
                taken.push(run);
            } else if !taken.is_empty() {
                arena.give_back(taken.swap_remove(roll(taken.len() as u64) as usize));
            }
        }
        assert!(!arena.is_empty());
        taken.into_iter().for_each(|run| arena.give_back(run));
        assert!(arena.is_empty());
        assert_eq!(arena.free, BTreeMap::from([(0, PAGES)]));
    }
}
