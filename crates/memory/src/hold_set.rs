//! Holds for a whole batch of ranges: one for each region touched.
//!
//! Owns the look-up from a range to its hold. It must not know where the ranges come from.

use crate::Hold;

/// The holds of one batch, one for each distinct region, by address.
#[derive(Debug, Default)]
pub struct HoldSet {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    start: u64,
    end: u64,
    hold: Hold,
}

impl Entry {
    fn contains(&self, addr: u64, len: u64) -> bool {
        addr >= self.start && addr.checked_add(len).is_some_and(|end| end <= self.end)
    }
}

impl HoldSet {
    /// From holds in rising order of address.
    pub(crate) fn from_sorted(holds: impl Iterator<Item = Hold>) -> HoldSet {
        let entries: Vec<Entry> =
            holds.map(|hold| Entry { start: hold.region().addr, end: hold.region().end(), hold }).collect();
        debug_assert!(entries.is_sorted_by_key(|entry| entry.start));
        HoldSet { entries }
    }

    /// The hold that covers `len` bytes at `addr`. `hint` remembers where the search ended: give the same variable for
    /// every range of a batch (0 at first), and ranges of one region, or of neighbouring ones in turn, are found at once.
    #[inline]
    pub fn find(&self, addr: u64, len: u64, hint: &mut usize) -> Option<&Hold> {
        for at in [*hint, hint.wrapping_add(1)] {
            if let Some(entry) = self.entries.get(at)
                && entry.contains(addr, len)
            {
                *hint = at;
                return Some(&entry.hold);
            }
        }
        let at = self.entries.partition_point(|entry| entry.start <= addr).checked_sub(1)?;
        let entry = &self.entries[at];
        *hint = at;
        entry.contains(addr, len).then_some(&entry.hold)
    }

    /// The holds, by address.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Hold> {
        self.entries.iter().map(|entry| &entry.hold)
    }

    /// The number of regions held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no region is held: every range was empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The first region of the set that is being unregistered, if any. Costs one look at each region.
    pub fn first_revoked(&self) -> Option<&Hold> {
        self.iter().find(|hold| hold.revoked())
    }

    /// Whether any region of the set is being unregistered.
    pub fn any_revoked(&self) -> bool {
        self.first_revoked().is_some()
    }
}

impl From<Hold> for HoldSet {
    fn from(hold: Hold) -> HoldSet {
        HoldSet::from_sorted(std::iter::once(hold))
    }
}
