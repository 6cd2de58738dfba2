//! The target's copy of its region table, as others see it: docs/same-host.md, "What is shared".
//!
//! Owns the writing of it, one writer at a time. It must not know who reads.

use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use foldhash::{HashMap, HashSet};
use moonrail_memory::{Access, RegionInfo, SharedBlock};
use moonrail_sys::shared_words::{Others, SharedWords};
use parking_lot::Mutex;

use crate::fence::{before_looking, publish};
use crate::layout::{self, head, slot};

pub(crate) struct Mirror {
    words: SharedWords,
    books: Mutex<Books>,
}

/// What the writer knows and nobody else needs.
#[derive(Default)]
struct Books {
    version: u64,
    /// Slot of each listed region, and the block it lies in, by its generation.
    listed: HashMap<u64, (u32, Option<u32>)>,
    /// The blocks of listed regions by their number, and how many regions lie in each.
    blocks: HashMap<u32, (Arc<SharedBlock>, usize)>,
    free: Vec<u32>,
    used: usize,
    /// Regions that are not listed, by generation: for want of a slot, or since they are guarded.
    left_out: HashSet<u64>,
}

impl Mirror {
    /// An empty mirror, and the descriptor to hand out.
    pub(crate) fn new(epoch: u64) -> io::Result<(Self, OwnedFd)> {
        let (words, fd) = SharedWords::create(c"moonrail-regions", layout::MIRROR_WORDS, Others::Read)?;
        words.words()[head::EPOCH].store(epoch, Ordering::Relaxed);
        words.words()[head::MAGIC].store(layout::MAGIC, Ordering::Release);
        Ok((Self { words, books: Mutex::default() }, fd))
    }

    pub(crate) fn list(&self, regions: &mut dyn Iterator<Item = &RegionInfo>) {
        let mut books = self.books.lock();
        for info in regions {
            // Nobody could ask for a token on this path: initiators find that the list is not whole, and come over TCP.
            let Some(index) = (!info.guarded).then(|| books.take_slot()).flatten() else {
                books.left_out.insert(info.generation);
                // No slot has changed, but readers must look again: the list is no longer whole.
                self.note(&mut books, 0);
                continue;
            };
            let backing = info.backing.as_ref().map_or(0, |backing| {
                let (block, uses) = (&backing.block, books.blocks.entry(backing.block.id()));
                uses.or_insert_with(|| (Arc::clone(block), 0)).1 += 1;
                layout::backing(block.id(), backing.offset)
            });
            let block = info.backing.as_ref().map(|backing| backing.block.id());
            books.listed.insert(info.generation, (index, block));
            let words = self.slot(index);
            // A reader that sees one of the next two stores also sees that the slot's last occupant is gone.
            fence(Ordering::Release);
            words[slot::START].store(info.addr, Ordering::Relaxed);
            words[slot::LENGTH].store(info.len, Ordering::Relaxed);
            words[slot::BACKING].store(backing, Ordering::Relaxed);
            let key = info.generation << 1 | u64::from(info.access == Access::ReadWrite);
            words[slot::KEY].store(key, Ordering::Release);
            self.note(&mut books, index);
        }
        self.publish(&books);
    }

    pub(crate) fn delist(&self, regions: &mut dyn Iterator<Item = &RegionInfo>) {
        let mut books = self.books.lock();
        for info in regions {
            if let Some((index, block)) = books.listed.remove(&info.generation) {
                block.inspect(|&block| books.leave(block));
                self.slot(index)[slot::KEY].store(0, Ordering::Release);
                books.free.push(index);
                self.note(&mut books, index);
            } else {
                books.left_out.remove(&info.generation);
                self.note(&mut books, 0);
            }
        }
        self.publish(&books);
    }

    /// The word that tells whether this process lives.
    pub(crate) fn life(&self) -> &AtomicU64 {
        self.word(head::LIFE)
    }

    /// A block that listed regions lie in.
    pub(crate) fn block(&self, id: u32) -> Option<Arc<SharedBlock>> {
        self.books.lock().blocks.get(&id).map(|(block, _)| Arc::clone(block))
    }

    /// Tells all readers that the target is going: none begins a batch any more.
    pub(crate) fn close(&self) {
        let mut books = self.books.lock();
        self.word(head::CLOSED).store(1, Ordering::Release);
        self.note(&mut books, 0);
        self.publish(&books);
    }

    /// The version that a reader must have seen to know of every change so far. Whatever the caller loads behind
    /// this, it sees the entries of all readers that have not.
    pub(crate) fn fence(&self) -> u64 {
        let version = self.books.lock().version;
        before_looking::<AtomicU64>();
        version
    }

    /// Puts one change into the ring.
    fn note(&self, books: &mut Books, index: u32) {
        books.version += 1;
        let at = layout::change_at(books.version);
        self.word(at).store(layout::change(books.version, index), Ordering::Release);
    }

    fn publish(&self, books: &Books) {
        self.word(head::SLOTS_USED).store(books.used as u64, Ordering::Release);
        self.word(head::LEFT_OUT).store(books.left_out.len() as u64, Ordering::Release);
        publish(self.word(head::VERSION), books.version);
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.words.words()[index]
    }

    fn slot(&self, index: u32) -> &[AtomicU64] {
        &self.words.words()[layout::slot_at(index as usize)..][..slot::WORDS]
    }
}

impl Books {
    /// One region less lies in a block.
    fn leave(&mut self, block: u32) {
        if let Entry::Occupied(mut uses) = self.blocks.entry(block) {
            uses.get_mut().1 -= 1;
            if uses.get().1 == 0 {
                uses.remove();
            }
        }
    }

    fn take_slot(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        let index = u32::try_from(self.used).ok().filter(|_| self.used < layout::SLOTS)?;
        self.used += 1;
        Some(index)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use moonrail_memory::Want;
    use moonrail_sys::shared_words::SharedView;

    use super::*;
    use crate::view::{Found, Miss, View};

    fn bounds(found: Found) -> (u64, u64) {
        (found.start, found.end)
    }

    fn info(addr: u64, len: u64, generation: u64) -> RegionInfo {
        RegionInfo {
            addr,
            len,
            generation,
            location: "*".into(),
            name: None,
            access: Access::ReadWrite,
            backing: None,
            guarded: false,
        }
    }

    #[test]
    fn a_view_that_looks_now_and_then_sees_what_is_there() {
        let (mirror, fd) = Mirror::new(1).unwrap();
        let words = SharedView::open(&fd, layout::MIRROR_WORDS).unwrap();
        let mut view = View::default();
        let mut there: BTreeMap<u64, RegionInfo> = BTreeMap::new();
        let (mut dice, mut generation) = (0x1234_5678_9abc_def1_u64, 0);
        let mut roll = |limit: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % limit
        };
        for round in 0..200 {
            // Now and then more changes than the ring holds.
            let changes = if round % 50 == 49 { 20_000 } else { roll(40) };
            for _ in 0..changes {
                let addr = 1000 + roll(64) * 100;
                if let Some(old) = there.remove(&addr) {
                    mirror.delist(&mut std::iter::once(&old));
                } else {
                    generation += 1;
                    let new = info(addr, 1 + roll(100), generation);
                    mirror.list(&mut std::iter::once(&new));
                    there.insert(addr, new);
                }
            }
            view.catch_up(&words).unwrap();
            assert!(view.newest() <= generation);
            for addr in (1000..1000 + 64 * 100).step_by(100) {
                let found = view.find(addr, 1, Want::Write, u64::MAX).ok().map(bounds);
                let expected = there.get(&addr).map(|info| (info.addr, info.end()));
                assert_eq!(found, expected, "round {round}, {addr}");
            }
        }
        mirror.close();
        view.catch_up(&words).unwrap();
        assert!(view.closed());
    }

    #[test]
    fn a_successor_is_not_the_region_that_a_batch_began_with() {
        let (mirror, fd) = Mirror::new(1).unwrap();
        let words = SharedView::open(&fd, layout::MIRROR_WORDS).unwrap();
        let mut view = View::default();
        mirror.list(&mut [info(4096, 100, 1), info(8192, 100, 2)].iter());
        view.catch_up(&words).unwrap();
        let born_by = view.newest();
        mirror.delist(&mut std::iter::once(&info(4096, 100, 1)));
        mirror.list(&mut std::iter::once(&info(4096, 100, 3)));
        view.catch_up(&words).unwrap();
        assert_eq!(view.find(4096, 100, Want::Write, born_by), Err(Miss::Successor));
        assert_eq!(view.find(8192, 100, Want::Write, born_by).map(bounds), Ok((8192, 8292)));
        assert_eq!(view.find(4096, 100, Want::Write, view.newest()).map(bounds), Ok((4096, 4196)));
    }

    #[test]
    fn a_mirror_that_lies_is_found_out_or_harmless() {
        let (words, fd) = SharedWords::create(c"lies", layout::MIRROR_WORDS, Others::Write).unwrap();
        let reader = SharedView::open(&fd, layout::MIRROR_WORDS).unwrap();
        let set = |at: usize, to: u64| words.words()[at].store(to, Ordering::Release);
        // More slots than there is room for.
        set(head::VERSION, u64::MAX >> 1);
        set(head::SLOTS_USED, u64::MAX);
        assert!(View::default().catch_up(&reader).is_err());
        // A region that wraps round.
        set(head::SLOTS_USED, 1);
        let slot = layout::slot_at(0);
        set(slot + slot::KEY, 3);
        set(slot + slot::START, 4096);
        set(slot + slot::LENGTH, u64::MAX - 10);
        assert!(View::default().catch_up(&reader).is_err());
        // A change of a slot behind the end.
        set(head::VERSION, 1);
        set(layout::change_at(1), layout::change(1, u32::MAX));
        assert!(View::default().catch_up(&reader).is_err());
        // A version that goes back.
        set(layout::change_at(1), layout::change(1, 5));
        let mut view = View::default();
        view.catch_up(&reader).unwrap();
        set(head::VERSION, 0);
        assert!(view.catch_up(&reader).is_err());
        // Two slots at one address: one of them counts, and its end takes it away.
        set(head::VERSION, 3);
        for (version, index) in [(2, 7), (3, 8)] {
            let at = layout::slot_at(index as usize);
            set(at + slot::START, 4096);
            set(at + slot::LENGTH, 100 + version);
            set(at + slot::KEY, version << 1 | 1);
            set(layout::change_at(version), layout::change(version, index));
        }
        view.catch_up(&reader).unwrap();
        let found = view.find(4096, 1, Want::Write, u64::MAX).ok();
        assert_eq!(found.map(bounds), Some((4096, 4096 + 103)));
    }
}
