//! Where each word of the shared memory stands: docs/same-host.md, "What is shared".
//!
//! Owns numbers only. Changing one is a new version of the contact.

use moonrail_memory::BLOCK_PAGE;

/// The first word of a mirror: "mnrlshm1".
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"mnrlshm1");

/// Words of a mirror's head.
pub(crate) mod head {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const EPOCH: usize = 1;
    /// Not 0 once the target's engine was shut down.
    pub(crate) const CLOSED: usize = 2;
    /// Region slots that were ever used.
    pub(crate) const SLOTS_USED: usize = 3;
    /// Regions that found no slot.
    pub(crate) const LEFT_OUT: usize = 4;
    /// Whether the target lives, as [`moonrail_sys::life`] tells; 0 where that is not known (the release before).
    pub(crate) const LIFE: usize = 5;
    /// Raised by each change; on a cache line of its own, as every entry looks at it.
    pub(crate) const VERSION: usize = 8;
    /// Where the ring begins.
    pub(crate) const LEN: usize = 512;
}

/// Changes that an initiator may be behind before it has to read every slot.
pub(crate) const RING: usize = 16_384;

/// Regions that a mirror has room for.
pub(crate) const SLOTS: usize = 1 << 20;

/// Words of one region slot.
pub(crate) mod slot {
    /// `generation << 1 | writable`; 0 while nothing is listed here.
    pub(crate) const KEY: usize = 0;
    pub(crate) const START: usize = 1;
    pub(crate) const LENGTH: usize = 2;
    /// Where the region can be mapped: see [`backing`](super::backing). 0: nowhere, or a target of the release before.
    pub(crate) const BACKING: usize = 3;
    pub(crate) const WORDS: usize = 4;
}

/// A region's block, and the page of it that the region begins in, as one word; 0 when it cannot be told so.
pub(crate) fn backing(block: u32, offset: u64) -> u64 {
    u32::try_from(offset / BLOCK_PAGE).map_or(0, |page| u64::from(block) << 32 | u64::from(page))
}

/// The block, and the bytes from its start to the region that begins at `start`.
pub(crate) fn backed(word: u64, start: u64) -> Option<(u32, u64)> {
    let (block, page) = ((word >> 32) as u32, word & u64::from(u32::MAX));
    (block != 0).then_some((block, page * BLOCK_PAGE + start % BLOCK_PAGE))
}

const FIRST_SLOT: usize = head::LEN + RING;

/// Words of a mirror.
pub(crate) const MIRROR_WORDS: usize = FIRST_SLOT + SLOTS * slot::WORDS;

/// Where the first word of a slot stands.
pub(crate) fn slot_at(index: usize) -> usize {
    FIRST_SLOT + index * slot::WORDS
}

/// Where the change that made `version` stands.
pub(crate) fn change_at(version: u64) -> usize {
    head::LEN + (version % RING as u64) as usize
}

/// A change as it stands in the ring. The version in it tells it from the one that takes its place a round later.
pub(crate) fn change(version: u64, slot: u32) -> u64 {
    version << 32 | u64::from(slot)
}

/// Entries of one initiator: threads that may copy at once.
pub(crate) const ENTRIES: usize = 256;

/// Words of one entry: a cache line.
pub(crate) mod entry {
    /// `version << 1 | 1` while a copy may be going on; 0 otherwise.
    pub(crate) const STATE: usize = 0;
    /// Lowest remote address of the batch.
    pub(crate) const LOW: usize = 1;
    /// Address behind its highest.
    pub(crate) const HIGH: usize = 2;
    pub(crate) const WORDS: usize = 8;
}

/// Words of an entry page.
pub(crate) const PAGE_WORDS: usize = ENTRIES * entry::WORDS;
