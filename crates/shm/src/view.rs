//! An initiator's ordered copy of a target's mirror, and the look-up in it.
//!
//! Owns catching up and the check of a range. Everything read is checked for sense: a target that lies can be refused or
//! spoil its own memory, nothing else. It must not know what is copied.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use moonrail_memory::Want;
use moonrail_sys::shared_words::SharedView;
use std::sync::atomic::{Ordering, fence};

use crate::layout::{self, head, slot};

/// The regions of a target at some version, or later.
#[derive(Debug, Default)]
pub(crate) struct View {
    version: u64,
    closed: bool,
    left_out: bool,
    /// The highest generation ever seen.
    newest: u64,
    by_start: BTreeMap<u64, Listed>,
    /// Start of the region that each slot was last seen with; 0 for none, as no region starts there.
    starts: Vec<u64>,
    /// The blocks that the regions lie in, and how many lie in each.
    blocks: HashMap<u32, u32>,
    /// Blocks that no region has lain in since [`View::take_left`].
    left: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Listed {
    end: u64,
    generation: u64,
    writable: bool,
    slot: usize,
    backing: Option<(u32, u64)>,
}

/// A region that a range was found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The block that it lies in, and the bytes from the block's start to its own.
    pub(crate) backing: Option<(u32, u64)>,
}

impl Found {
    #[inline]
    pub(crate) fn contains(&self, addr: u64, len: u64) -> bool {
        addr >= self.start && addr.checked_add(len).is_some_and(|end| end <= self.end)
    }
}

/// A mirror that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadMirror(&'static str);

impl fmt::Display for BadMirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer's shared page makes no sense: {}", self.0)
    }
}

/// The mirror's version now.
pub(crate) fn version(mirror: &SharedView) -> u64 {
    mirror.load(head::VERSION).unwrap_or(0)
}

impl View {
    /// The version up to which every change is known.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whether the target's engine was shut down.
    pub(crate) fn closed(&self) -> bool {
        self.closed
    }

    /// Whether the target has regions that are not in the mirror.
    pub(crate) fn left_out(&self) -> bool {
        self.left_out
    }

    /// No region seen so far is younger.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Brings the copy up to the mirror's version, or further.
    pub(crate) fn catch_up(&mut self, mirror: &SharedView) -> Result<(), BadMirror> {
        let now = version(mirror);
        if now == self.version {
            return Ok(());
        }
        if now < self.version {
            return Err(BadMirror("its version went back"));
        }
        if now - self.version >= layout::RING as u64 || !self.follow(mirror, now)? {
            self.read_all(mirror)?;
        }
        self.version = now;
        self.closed = mirror.load(head::CLOSED) != Some(0);
        self.left_out = mirror.load(head::LEFT_OUT) != Some(0);
        Ok(())
    }

    /// Applies the changes up to `now`, one by one; `false` when the ring has been overwritten meanwhile.
    fn follow(&mut self, mirror: &SharedView, now: u64) -> Result<bool, BadMirror> {
        for version in self.version + 1..=now {
            let change = mirror.load(layout::change_at(version)).unwrap_or(0);
            if change != layout::change(version, change as u32) {
                return Ok(false);
            }
            self.read_slot(mirror, change as u32 as usize)?;
        }
        Ok(true)
    }

    fn read_all(&mut self, mirror: &SharedView) -> Result<(), BadMirror> {
        let used = mirror.load(head::SLOTS_USED).and_then(|used| usize::try_from(used).ok());
        let used = used.filter(|&used| used <= layout::SLOTS).ok_or(BadMirror("too many regions"))?;
        for index in 0..used {
            self.read_slot(mirror, index)?;
        }
        Ok(())
    }

    /// Takes over what stands in one slot. A slot in the middle of a change counts as empty (see docs/same-host.md).
    fn read_slot(&mut self, mirror: &SharedView, index: usize) -> Result<(), BadMirror> {
        if index >= layout::SLOTS {
            return Err(BadMirror("a change of a slot that cannot be"));
        }
        if self.starts.len() <= index {
            self.starts.resize(index + 1, 0);
        }
        let at = layout::slot_at(index);
        let key = mirror.load(at + slot::KEY).unwrap_or(0);
        let (start, len) = (mirror.load_relaxed(at + slot::START), mirror.load_relaxed(at + slot::LENGTH));
        let backing = mirror.load_relaxed(at + slot::BACKING).unwrap_or(0);
        fence(Ordering::Acquire);
        let still = mirror.load_relaxed(at + slot::KEY) == Some(key);
        let before = std::mem::take(&mut self.starts[index]);
        if before != 0 && self.by_start.get(&before).is_some_and(|listed| listed.slot == index) {
            self.remove(before);
        }
        let (Some(start), Some(len)) = (start, len) else { return Err(BadMirror("it is too short")) };
        if key == 0 || !still {
            return Ok(());
        }
        let end = start.checked_add(len).filter(|&end| start > 0 && end > start);
        let end = end.ok_or(BadMirror("a region that wraps round"))?;
        let (generation, writable) = (key >> 1, key & 1 == 1);
        self.newest = self.newest.max(generation);
        self.starts[index] = start;
        let backing = layout::backed(backing, start);
        self.remove(start);
        if let Some((block, _)) = backing {
            *self.blocks.entry(block).or_default() += 1;
        }
        self.by_start.insert(start, Listed { end, generation, writable, slot: index, backing });
        Ok(())
    }

    fn remove(&mut self, start: u64) {
        let Some((block, _)) = self.by_start.remove(&start).and_then(|listed| listed.backing) else { return };
        if let Entry::Occupied(mut uses) = self.blocks.entry(block) {
            *uses.get_mut() -= 1;
            if *uses.get() == 0 {
                uses.remove();
                self.left.push(block);
            }
        }
    }

    /// Whether a region lies in the block.
    pub(crate) fn lists(&self, block: u32) -> bool {
        self.blocks.contains_key(&block)
    }

    /// The blocks that regions have left since the last call; some may be listed again.
    pub(crate) fn take_left(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.left)
    }

    /// Whether `len` bytes at `addr` lie inside one region that allows `want` and is not younger than generation
    /// `born_by`; on success, that region.
    pub(crate) fn find(&self, addr: u64, len: u64, want: Want, born_by: u64) -> Result<Found, Miss> {
        let Some(last) = addr.checked_add(len) else { return Err(Miss::Wraps) };
        let below = self.by_start.range(..=addr).next_back();
        let Some((&start, listed)) = below.filter(|(_, listed)| last <= listed.end) else {
            let above = self.by_start.range(addr..).next();
            let nearest = below.or(above).map(|(&start, listed)| (start, listed.end));
            return Err(Miss::Outside { nearest, regions: self.by_start.len() });
        };
        if want == Want::Write && !listed.writable {
            return Err(Miss::ReadOnly { region: (start, listed.end) });
        }
        if listed.generation > born_by {
            return Err(Miss::Successor);
        }
        Ok(Found { start, end: listed.end, backing: listed.backing })
    }
}

/// How a remote range misses the target's regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    Wraps,
    Outside { nearest: Option<(u64, u64)>, regions: usize },
    ReadOnly { region: (u64, u64) },
    Successor,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Wraps => f.write_str("reaches beyond the address space"),
            Self::Outside { nearest: None, .. } => {
                f.write_str("does not lie inside a region: the peer has registered none")
            }
            Self::Outside { nearest: Some((start, end)), regions } => write!(
                f,
                "does not lie inside one region that the peer has registered: the nearest of its {regions} is \
                 {start:#x}..{end:#x} ({} bytes)",
                end - start
            ),
            Self::ReadOnly { region: (start, end) } => {
                write!(f, "lies inside {start:#x}..{end:#x}, which the peer lets be read only")
            }
            Self::Successor => {
                f.write_str("lies in a region that was registered anew while the batch was being carried out")
            }
        }
    }
}
