//! The region table: which memory is registered, and who may begin to use it.
//!
//! Owns look-up, registration and the unregister fence. It must not know what regions are used for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use crate::outside::fence_outside;
use crate::region::Region;
use crate::{
    Backing, Hold, HoldError, HoldMiss, MemoryRange, Outside, RegionInfo, RegionOptions, RegionSpan,
    RegisterError, SharedBlock, UnregisterError, Want,
};

/// Called after regions were revoked and before their holds are waited for, on the unregistering thread, with no lock of
/// the table held. It should make whoever holds a revoked region let go soon, and must not block.
pub type RevokeHook = Box<dyn Fn() + Send + Sync>;

/// The registered regions of one engine. No two overlap; adjacent ones stay separate. Any thread may call any method.
#[derive(Default)]
pub struct RegionTable {
    pub(crate) regions: RwLock<Regions>,
    hooks: RwLock<Vec<RevokeHook>>,
    version: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Regions {
    /// By first address. A revoked region stays until its last hold is gone, so that its memory is not registered anew
    /// under the feet of an old transfer.
    by_start: BTreeMap<u64, Arc<Region>>,
    by_name: HashMap<Arc<str>, u64>,
    next_generation: u64,
    /// Of the regions that are not revoked.
    bytes: u64,
    outside: Vec<Arc<dyn Outside>>,
    /// Blocks that regions may lie in, by first address.
    blocks: BTreeMap<u64, Weak<SharedBlock>>,
    /// The location of the region registered last; thousands of regions in a row share one text.
    location: Option<Arc<str>>,
}

impl RegionTable {
    /// An empty table.
    pub fn new() -> RegionTable {
        RegionTable::default()
    }

    /// Registers one range.
    ///
    /// # Errors
    /// See [`RegisterError`]; nothing has changed then.
    pub fn register(&self, range: MemoryRange, options: RegionOptions) -> Result<RegionInfo, RegisterError> {
        let mut regions = self.regions.write();
        let info = regions.insert(range, options)?.info.clone();
        for outside in &regions.outside {
            outside.registered(&mut std::iter::once(&info));
        }
        self.changed();
        Ok(info)
    }

    /// Registers all ranges or none, in O(n log n).
    ///
    /// # Errors
    /// The first entry that cannot be registered after those before it, and why.
    pub fn register_batch(
        &self,
        entries: Vec<(MemoryRange, RegionOptions)>,
    ) -> Result<(), (usize, RegisterError)> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut regions = self.regions.write();
        let mut inserted = Vec::with_capacity(entries.len());
        for (index, (range, options)) in entries.into_iter().enumerate() {
            match regions.insert(range, options) {
                Ok(region) => inserted.push(Arc::clone(region)),
                Err(error) => {
                    // Nobody has seen them: the lock was not let go.
                    for region in inserted {
                        regions.withdraw(region.info.addr);
                    }
                    return Err((index, error));
                }
            }
        }
        for outside in &regions.outside {
            outside.registered(&mut inserted.iter().map(|region| &region.info));
        }
        self.changed();
        Ok(())
    }

    /// Takes the region that starts at `start` out of the table, then waits until nothing holds it: once this has
    /// returned `Ok`, no transfer touches the memory any more. New holds are refused from the beginning of the call.
    ///
    /// # Errors
    /// `NotRegistered`; or `Busy` when a hold is left after `patience`: then the region is out of the table for good,
    /// but its memory is still in use.
    pub fn unregister(&self, start: u64, patience: Duration) -> Result<(), UnregisterError> {
        self.unregister_batch(&[start], patience).map_err(|(_, error)| error)
    }

    /// Unregisters many regions, revoking all before it waits for any. `patience` is for all of them together.
    ///
    /// # Errors
    /// The first entry that no region starts at (or that stands in the batch already): then nothing has changed. Or the
    /// first that is busy: then every other region has been unregistered or is busy too.
    pub fn unregister_batch(
        &self,
        starts: &[u64],
        patience: Duration,
    ) -> Result<(), (usize, UnregisterError)> {
        if starts.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        // Beyond the clock's range means without limit.
        let deadline = began.checked_add(patience);
        let (leaving, outside) = self.revoke(starts)?;
        for hook in self.hooks.read().iter() {
            hook();
        }
        let holders = fence_outside(&outside, &leaving, deadline);
        let mut busy = None;
        for (index, region) in leaving.iter().enumerate() {
            let holds = region.wait_released(deadline);
            let outside = holders.get(&index).copied();
            if (holds != 0 || outside.is_some()) && busy.is_none() {
                let (region, waited) = (region.info.span(), began.elapsed());
                busy = Some((index, UnregisterError::Busy { region, holds, outside, waited }));
            }
        }
        self.regions.write().forget_released(&leaving);
        busy.map_or(Ok(()), Err)
    }

    /// Unregisters all regions that start inside `range`.
    ///
    /// # Errors
    /// `Busy`, as [`RegionTable::unregister_batch`].
    pub(crate) fn unregister_inside(
        &self,
        range: MemoryRange,
        patience: Duration,
    ) -> Result<(), UnregisterError> {
        loop {
            let inside = |regions: &Regions| {
                regions.by_start.range(range.addr()..range.end()).map(|(&start, _)| start).collect::<Vec<_>>()
            };
            let starts = inside(&self.regions.read());
            match self.unregister_batch(&starts, patience) {
                // Somebody else has unregistered one of them meanwhile.
                Err((_, UnregisterError::NotRegistered { .. })) => {}
                outcome => return outcome.map_err(|(_, error)| error),
            }
        }
    }

    /// Regions that are registered from now on in this block keep it mapped, and say that they lie there.
    pub(crate) fn adopt(&self, block: &Arc<SharedBlock>) {
        self.regions.write().blocks.insert(block.addr(), Arc::downgrade(block));
    }

    /// Ends [`RegionTable::adopt`].
    pub(crate) fn disown(&self, block: &SharedBlock) {
        self.regions.write().blocks.remove(&block.addr());
    }

    /// Marks all regions as revoked, or none if one is missing.
    fn revoke(&self, starts: &[u64]) -> Result<Leaving, (usize, UnregisterError)> {
        let mut regions = self.regions.write();
        let mut leaving = Vec::with_capacity(starts.len());
        // Only where the order does not show it, an address that stands there twice is to be looked for.
        let rising = starts.is_sorted_by(|one, next| one < next);
        let mut seen = HashSet::with_capacity(if rising { 0 } else { starts.len() });
        for (index, &start) in starts.iter().enumerate() {
            match regions.by_start.get(&start) {
                Some(region) if rising || seen.insert(start) => leaving.push(Arc::clone(region)),
                _ => {
                    let inside = regions
                        .last_from(start)
                        .filter(|region| region.info.contains(start, 1) && region.info.addr != start)
                        .map(|region| region.info.span());
                    return Err((index, UnregisterError::NotRegistered { addr: start, inside }));
                }
            }
        }
        let mut revoked = Vec::with_capacity(leaving.len());
        for region in &leaving {
            if regions.revoke(region) {
                revoked.push(&region.info);
            }
        }
        if !revoked.is_empty() {
            for outside in &regions.outside {
                outside.revoked(&mut revoked.iter().copied());
            }
            self.changed();
        }
        let outside = regions.outside.clone();
        Ok((leaving, outside))
    }

    /// Adds somebody who lets users outside this process at the regions, for the life of the table; tells them at once
    /// of what is registered already.
    pub fn attach(&self, outside: Arc<dyn Outside>) {
        let mut regions = self.regions.write();
        let listed = regions.by_start.values().filter(|region| !region.revoked());
        outside.registered(&mut listed.map(|region| &region.info));
        regions.outside.push(outside);
    }

    /// Adds a hook for the life of the table. A hook must not call this method.
    pub fn on_revoke(&self, hook: RevokeHook) {
        self.hooks.write().push(hook);
    }

    /// The registered regions, in order of registration; revoked ones are not among them.
    pub fn snapshot(&self) -> Vec<RegionInfo> {
        let mut infos: Vec<RegionInfo> = {
            let regions = self.regions.read();
            let listed = regions.by_start.values().filter(|region| !region.revoked());
            listed.map(|region| region.info.clone()).collect()
        };
        infos.sort_unstable_by_key(|info| info.generation);
        infos
    }

    /// A number that changes whenever [`RegionTable::snapshot`] does.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The number of registered regions.
    pub fn count(&self) -> usize {
        self.regions.read().by_start.values().filter(|region| !region.revoked()).count()
    }

    /// The bytes registered.
    pub fn registered_bytes(&self) -> u64 {
        self.regions.read().bytes
    }

    /// Called with the write lock held, so that a snapshot taken after a version was seen is not older than it.
    fn changed(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

/// Revoked regions, and those whose users outside must be waited for.
type Leaving = (Vec<Arc<Region>>, Vec<Arc<dyn Outside>>);

impl fmt::Debug for RegionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionTable").field("regions", &self.snapshot()).finish_non_exhaustive()
    }
}

impl Regions {
    fn insert(&mut self, range: MemoryRange, options: RegionOptions) -> Result<&Arc<Region>, RegisterError> {
        self.make_room(range)?;
        if let Some(name) = &options.name
            && let Some(owner) = self.by_name.get(name.as_str()).and_then(|start| self.by_start.get(start))
        {
            return Err(RegisterError::NameTaken { name: name.clone(), other: owner.info.span() });
        }
        self.next_generation += 1;
        let backing = self.backing(range);
        let location = self.location(&options.location);
        let region = Arc::new(Region::new(range, options, location, self.next_generation, backing));
        if let Some(name) = &region.info.name {
            self.by_name.insert(Arc::clone(name), range.addr());
        }
        self.bytes += range.len();
        Ok(self.by_start.entry(range.addr()).or_insert(region))
    }

    fn location(&mut self, text: &str) -> Arc<str> {
        match &self.location {
            Some(last) if **last == *text => Arc::clone(last),
            _ => Arc::clone(self.location.insert(text.into())),
        }
    }

    /// The block that a range lies in.
    fn backing(&self, range: MemoryRange) -> Option<Backing> {
        let (_, block) = self.blocks.range(..=range.addr()).next_back()?;
        let block = block.upgrade().filter(|block| block.contains(range.addr(), range.len()))?;
        Some(Backing { offset: range.addr() - block.addr(), block })
    }

    /// Checks that no region is in the way of `range`, then forgets the revoked ones there that nothing holds any more.
    fn make_room(&mut self, range: MemoryRange) -> Result<(), RegisterError> {
        // Almost always empty, and then without an allocation.
        let mut released = Vec::new();
        for other in self.overlapping(range) {
            let (asked, span) = (RegionSpan::from(range), other.info.span());
            if !other.revoked() {
                return Err(RegisterError::Overlap { range: asked, other: span });
            }
            if !other.fenced() {
                // Who was in its way may have ended or died since: only a look, no wait.
                fence_outside(&self.outside, std::slice::from_ref(other), Some(Instant::now()));
            }
            let holds = other.in_use();
            if holds != 0 {
                return Err(RegisterError::StillHeld { range: asked, other: span, holds });
            }
            released.push(span.addr);
        }
        for start in released {
            self.by_start.remove(&start);
        }
        Ok(())
    }

    /// The regions that share memory with `range`, from the highest down. They do not overlap each other, so the first
    /// that ends too low ends the search.
    fn overlapping(&self, range: MemoryRange) -> impl Iterator<Item = &Arc<Region>> {
        let below_end = self.by_start.range(..range.end()).rev().map(|(_, region)| region);
        below_end.take_while(move |region| region.info.end() > range.addr())
    }

    /// Undoes [`Regions::insert`].
    fn withdraw(&mut self, start: u64) {
        if let Some(region) = self.by_start.remove(&start) {
            self.unlist(&region);
        }
    }

    /// Revokes a region; whether it was not revoked before.
    fn revoke(&mut self, region: &Region) -> bool {
        if region.revoked() {
            return false;
        }
        region.revoke();
        self.unlist(region);
        true
    }

    fn unlist(&mut self, region: &Region) {
        self.bytes -= region.info.len;
        if let Some(name) = &region.info.name {
            self.by_name.remove(name);
        }
    }

    /// Removes those of these revoked regions that nothing holds, unless others have taken their place meanwhile.
    fn forget_released(&mut self, revoked: &[Arc<Region>]) {
        if revoked.len() > self.by_start.len() / 2 {
            // Most of the table goes: one walk is quicker than a search for each.
            let left = std::mem::take(&mut self.by_start).into_iter();
            self.by_start = left.filter(|(_, region)| !region.revoked() || region.in_use() != 0).collect();
            return;
        }
        for region in revoked {
            let start = region.info.addr;
            let listed = self.by_start.get(&start).is_some_and(|listed| Arc::ptr_eq(listed, region));
            if listed && region.in_use() == 0 {
                self.by_start.remove(&start);
            }
        }
    }

    pub(crate) fn hold(&self, addr: u64, len: u64, want: Want) -> Result<Hold, HoldError> {
        let miss = match self.last_from(addr) {
            Some(region) if region.info.contains(addr, len) => {
                if region.revoked() {
                    HoldMiss::Revoked { region: region.info.span() }
                } else if region.info.access.allows(want) {
                    return Ok(Hold::acquire(region, want));
                } else {
                    HoldMiss::ReadOnly { region: region.info.span() }
                }
            }
            _ => self.miss(addr, len),
        };
        Err(HoldError { addr, len, miss })
    }

    /// How a range that lies in no single region misses.
    fn miss(&self, addr: u64, len: u64) -> HoldMiss {
        let Some(end) = addr.checked_add(len) else { return HoldMiss::Wraps };
        let below = self.last_from(addr).map(|region| region.info.span());
        let above = self.first_above(addr).map(|region| region.info.span());
        match (below, above) {
            (Some(region), next) if region.end() > addr => match next {
                Some(next) if next.addr == region.end() => HoldMiss::Straddles { region, next },
                _ => HoldMiss::PastEnd { region, by: end - region.end() },
            },
            (_, Some(region)) if region.addr < end => {
                HoldMiss::BeginsBelow { region, by: region.addr - addr }
            }
            (Some(below), Some(above)) if above.addr - end < addr - below.end() => {
                HoldMiss::Outside { nearest: above, gap: above.addr - end, above: true }
            }
            (Some(nearest), _) => HoldMiss::Outside { nearest, gap: addr - nearest.end(), above: false },
            (None, Some(nearest)) => HoldMiss::Outside { nearest, gap: nearest.addr - end, above: true },
            (None, None) => HoldMiss::NoRegions,
        }
    }

    /// The last region that starts at or below `addr`.
    fn last_from(&self, addr: u64) -> Option<&Arc<Region>> {
        self.by_start.range(..=addr).next_back().map(|(_, region)| region)
    }

    /// The first region that starts above `addr`.
    fn first_above(&self, addr: u64) -> Option<&Arc<Region>> {
        let above = (std::ops::Bound::Excluded(addr), std::ops::Bound::Unbounded);
        self.by_start.range(above).next().map(|(_, region)| region)
    }
}
