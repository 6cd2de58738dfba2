//! A paged KV cache's bookkeeping: which pages are free, which hold which block, which block goes first.
//!
//! Free pages are taken in random order, as in a server that has run for a while, so a block's pages lie scattered.
//! Blocks in use are pinned; of the others the one not used for longest is evicted. Knows page numbers, no memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::demo::content::mix;

pub(super) struct Pool {
    pages_per_block: usize,
    total: usize,
    free: Vec<u32>,
    blocks: HashMap<u64, Block>,
    /// Unpinned blocks by their last use.
    idle: BTreeMap<u64, u64>,
    uses: u64,
    random: u64,
}

struct Block {
    pages: Vec<u32>,
    pins: u32,
    /// Key in `idle` while there are no pins.
    used: u64,
}

/// A block of a request, pinned until [`Pool::release`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) pages: Vec<u32>,
    /// The pool had it before; otherwise its pages hold nothing yet.
    pub(super) present: bool,
}

/// Why a request's blocks cannot be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// Not now: other requests have pinned too much.
    Pinned,
    /// Never: the pool is smaller than the request.
    TooSmall,
}

impl Pool {
    pub(super) fn new(pages: u32, pages_per_block: u32, seed: u64) -> Self {
        Self {
            pages_per_block: pages_per_block as usize,
            total: pages as usize,
            free: (0..pages).collect(),
            blocks: HashMap::new(),
            idle: BTreeMap::new(),
            uses: 0,
            random: seed,
        }
    }

    /// Places and pins all of `ids`, in order, or nothing. An id that comes twice is pinned twice.
    pub(super) fn acquire(&mut self, ids: &[u64]) -> Result<Vec<Placed>, Full> {
        let present: Vec<bool> = ids.iter().map(|id| self.pin(*id)).collect();
        let distinct: HashSet<u64> = ids.iter().copied().collect();
        let missing = distinct.iter().filter(|id| !self.blocks.contains_key(id)).count();
        if missing * self.pages_per_block > self.free.len() + self.idle.len() * self.pages_per_block {
            for (id, _) in ids.iter().zip(&present).filter(|(_, present)| **present) {
                self.unpin(*id);
            }
            let never = distinct.len() * self.pages_per_block > self.total;
            return Err(if never { Full::TooSmall } else { Full::Pinned });
        }
        let place = |(id, present): (&u64, bool)| {
            let present = present || self.pin(*id);
            let pages = if present { self.blocks[id].pages.clone() } else { self.place(*id) };
            Placed { pages, present }
        };
        Ok(ids.iter().zip(present).map(place).collect())
    }

    /// Unpins what [`Pool::acquire`] pinned for `ids`.
    pub(super) fn release(&mut self, ids: &[u64]) {
        for id in ids {
            self.unpin(*id);
        }
    }

    fn pin(&mut self, id: u64) -> bool {
        let Some(block) = self.blocks.get_mut(&id) else { return false };
        if block.pins == 0 {
            self.idle.remove(&block.used);
        }
        block.pins += 1;
        true
    }

    fn unpin(&mut self, id: u64) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        if block.pins == 0 {
            return;
        }
        block.pins -= 1;
        if block.pins == 0 {
            self.uses += 1;
            block.used = self.uses;
            self.idle.insert(block.used, id);
        }
    }

    /// Gives pages to a block that has none; [`Pool::acquire`] has made sure that there are enough.
    fn place(&mut self, id: u64) -> Vec<u32> {
        while self.free.len() < self.pages_per_block {
            let (_, oldest) =
                self.idle.pop_first().expect("invariant: acquire counted free and evictable pages");
            self.forget(oldest);
        }
        let pages: Vec<u32> = (0..self.pages_per_block).map(|_| self.take_page()).collect();
        self.blocks.insert(id, Block { pages: pages.clone(), pins: 1, used: 0 });
        pages
    }

    fn forget(&mut self, id: u64) {
        if let Some(block) = self.blocks.remove(&id) {
            self.free.extend(block.pages);
        }
    }

    /// A random one of the free pages, of which there is one.
    fn take_page(&mut self) -> u32 {
        self.random = mix(self.random);
        let index = (self.random % self.free.len() as u64) as usize;
        self.free.swap_remove(index)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn present(placed: &[Placed]) -> Vec<bool> {
        placed.iter().map(|block| block.present).collect()
    }

    #[test]
    fn the_block_unused_for_longest_goes_first() {
        let mut pool = Pool::new(6, 2, 1);
        for id in [1, 2, 3] {
            assert_eq!(present(&pool.acquire(&[id]).unwrap()), [false]);
            pool.release(&[id]);
        }
        pool.acquire(&[1]).unwrap();
        pool.release(&[1]);
        // 2 is the oldest now.
        assert_eq!(present(&pool.acquire(&[4]).unwrap()), [false]);
        pool.release(&[4]);
        assert_eq!(present(&pool.acquire(&[1, 3]).unwrap()), [true, true]);
        pool.release(&[1, 3]);
        assert_eq!(present(&pool.acquire(&[2]).unwrap()), [false]);
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut pool = Pool::new(8, 2, 1);
        let held = pool.acquire(&[1, 2]).unwrap();
        assert_eq!(pool.acquire(&[1, 3, 4, 5]), Err(Full::Pinned));
        assert_eq!(pool.acquire(&[5, 6, 7, 8, 9]), Err(Full::TooSmall));
        let again = pool.acquire(&[1, 2]).unwrap();
        assert_eq!(
            again.iter().map(|block| &block.pages).collect::<Vec<_>>(),
            held.iter().map(|block| &block.pages).collect::<Vec<_>>()
        );
        pool.release(&[1, 2]);
        pool.release(&[1, 2]);
        assert_eq!(present(&pool.acquire(&[1, 3, 4, 5]).unwrap()), [true, false, false, false]);
    }

    #[test]
    fn an_id_that_comes_twice_has_one_place() {
        let mut pool = Pool::new(4, 2, 1);
        let placed = pool.acquire(&[9, 9]).unwrap();
        assert_eq!(placed[0].pages, placed[1].pages);
        assert_eq!(present(&placed), [false, true]);
        pool.release(&[9, 9]);
        assert_eq!(present(&pool.acquire(&[7, 8]).unwrap()), [false, false]);
    }

    #[test]
    fn pages_lie_scattered() {
        let mut pool = Pool::new(4096, 4, 7);
        let pages: Vec<u32> =
            pool.acquire(&(0..512).collect::<Vec<_>>()).unwrap().into_iter().flat_map(|b| b.pages).collect();
        let neighbours = pages.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(neighbours < 32, "{neighbours} of {} pages follow one another", pages.len());
    }

    proptest! {
        /// Whatever is asked for and given back in whatever order: pinned blocks keep their pages, no page is in two
        /// blocks, none is lost, and a request is refused only for the reason given.
        #[test]
        fn pages_belong_to_one_block(
            requests in vec(vec(0_u64..24, 1..8), 1..40),
            order in vec(any::<prop::sample::Index>(), 40),
            capacity in 4_u32..12,
        ) {
            const PER_BLOCK: u32 = 3;
            let mut pool = Pool::new(capacity * PER_BLOCK + 1, PER_BLOCK, 5);
            let mut held: Vec<(Vec<u64>, Vec<Placed>)> = Vec::new();
            for (ids, which) in requests.into_iter().zip(order) {
                match pool.acquire(&ids) {
                    Ok(placed) => held.push((ids, placed)),
                    Err(full) => {
                        let distinct = ids.iter().collect::<HashSet<_>>().len();
                        prop_assert_eq!(full == Full::TooSmall, distinct > capacity as usize);
                        prop_assert!(full == Full::TooSmall || !held.is_empty());
                    }
                }
                let mut owner: HashMap<u32, u64> = HashMap::new();
                for (ids, placed) in &held {
                    for (id, block) in ids.iter().zip(placed) {
                        prop_assert_eq!(block.pages.len(), PER_BLOCK as usize);
                        for page in &block.pages {
                            prop_assert!(*page < capacity * PER_BLOCK + 1);
                            prop_assert_eq!(*owner.entry(*page).or_insert(*id), *id);
                        }
                    }
                }
                let in_blocks: usize = pool.blocks.values().map(|block| block.pages.len()).sum();
                prop_assert_eq!(in_blocks + pool.free.len(), pool.total);
                let idle = pool.blocks.values().filter(|block| block.pins == 0).count();
                prop_assert_eq!(idle, pool.idle.len());
                if held.len() > 2 {
                    let (ids, _) = held.swap_remove(which.index(held.len()));
                    pool.release(&ids);
                }
            }
        }
    }
}
