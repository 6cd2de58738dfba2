//! Holds for a whole batch of ranges: one for each region touched.
//!
//! Owns taking them, and the look-up from a range to its hold. It must not know where the ranges come from.

use std::collections::BTreeMap;

use crate::{Hold, HoldError, HoldMiss, RegionTable, Want};

/// The holds of one batch, one for each distinct region, by address.
#[derive(Debug, Default)]
pub struct HoldSet {
    entries: Entries,
}

/// Most batches touch one region, and then nothing is allocated.
#[derive(Debug)]
enum Entries {
    One(Entry),
    Many(Vec<Entry>),
}

impl Default for Entries {
    fn default() -> Entries {
        Entries::Many(Vec::new())
    }
}

impl Entries {
    #[inline]
    fn as_slice(&self) -> &[Entry] {
        match self {
            Entries::One(entry) => std::slice::from_ref(entry),
            Entries::Many(entries) => entries,
        }
    }
}

#[derive(Debug)]
struct Entry {
    start: u64,
    end: u64,
    hold: Hold,
}

impl Entry {
    fn of(hold: Hold) -> Entry {
        Entry { start: hold.region().addr, end: hold.region().end(), hold }
    }

    #[inline]
    fn contains(&self, addr: u64, len: u64) -> bool {
        addr >= self.start && addr.checked_add(len).is_some_and(|end| end <= self.end)
    }
}

impl HoldSet {
    /// From holds in rising order of address.
    pub(crate) fn from_sorted(holds: impl Iterator<Item = Hold>) -> HoldSet {
        let entries: Vec<Entry> = holds.map(Entry::of).collect();
        debug_assert!(entries.is_sorted_by_key(|entry| entry.start));
        HoldSet { entries: Entries::Many(entries) }
    }

    /// The hold that covers `len` bytes at `addr`. `hint` remembers where the search ended: give the same variable for
    /// every range of a batch (0 at first), and ranges of one region, or of neighbouring ones in turn, are found at once.
    #[inline]
    pub fn find(&self, addr: u64, len: u64, hint: &mut usize) -> Option<&Hold> {
        let entries = self.entries.as_slice();
        for at in [*hint, hint.wrapping_add(1)] {
            if let Some(entry) = entries.get(at)
                && entry.contains(addr, len)
            {
                *hint = at;
                return Some(&entry.hold);
            }
        }
        let at = entries.partition_point(|entry| entry.start <= addr).checked_sub(1)?;
        let entry = &entries[at];
        *hint = at;
        entry.contains(addr, len).then_some(&entry.hold)
    }

    /// The holds, by address.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Hold> {
        self.entries.as_slice().iter().map(|entry| &entry.hold)
    }

    /// The number of regions held.
    pub fn len(&self) -> usize {
        self.entries.as_slice().len()
    }

    /// Whether no region is held: every range was empty.
    pub fn is_empty(&self) -> bool {
        self.entries.as_slice().is_empty()
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
        HoldSet { entries: Entries::One(Entry::of(hold)) }
    }
}

impl RegionTable {
    /// Holds the region that `len` bytes at `addr` lie in. A zero `len` asks for the region that `addr` lies in (or
    /// ends). Allocates nothing.
    ///
    /// # Errors
    /// How the range misses the regions.
    pub fn hold(&self, addr: u64, len: u64, want: Want) -> Result<Hold, HoldError> {
        self.regions.read().hold(addr, len, want)
    }

    /// [`RegionTable::hold`] for callers that must not wait: `None` also while another thread changes the table.
    pub fn try_hold(&self, addr: u64, len: u64, want: Want) -> Option<Hold> {
        self.regions.try_read()?.hold(addr, len, want).ok()
    }

    /// Holds every region that the ranges `(addr, len)` lie in, once each. Empty ranges are skipped, wherever they
    /// point. Takes the table's lock only for the first range of each region, and allocates per region, not per range.
    ///
    /// # Errors
    /// The first range that cannot be held, by its index, and why. Nothing stays held then.
    pub fn hold_all(
        &self,
        ranges: impl IntoIterator<Item = (u64, u64)>,
        want: Want,
    ) -> Result<HoldSet, (usize, HoldError)> {
        // The region of the ranges so far, as long as there is only one; then `held`, by first address.
        let mut only: Option<Hold> = None;
        let mut held: BTreeMap<u64, Hold> = BTreeMap::new();
        let (mut start, mut end) = (0, 0);
        for (index, (addr, len)) in ranges.into_iter().enumerate() {
            if len == 0 {
                continue;
            }
            let Some(last) = addr.checked_add(len) else {
                return Err((index, HoldError { addr, len, miss: HoldMiss::Wraps }));
            };
            if addr >= start && last <= end {
                continue;
            }
            if let Some((_, hold)) = held.range(..=addr).next_back()
                && hold.covers(addr, len)
            {
                (start, end) = (hold.region().addr, hold.region().end());
                continue;
            }
            let hold = self.hold(addr, len, want).map_err(|error| (index, error))?;
            (start, end) = (hold.region().addr, hold.region().end());
            if only.is_none() && held.is_empty() {
                only = Some(hold);
                continue;
            }
            held.extend(only.take().map(|first| (first.region().addr, first)));
            held.insert(start, hold);
        }
        Ok(only.map_or_else(|| HoldSet::from_sorted(held.into_values()), HoldSet::from))
    }
}
