//! Where each word of the shared memory stands: docs/same-host.md, "What is shared".
//!
//! Owns numbers only. Changing one is a new version of the contact.

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
    pub(crate) const WORDS: usize = 4;
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
