//! What stands between the table and users of its regions outside this process.
//!
//! Owns one trait, and the waiting for all who fulfil it. It must not know how such users reach the memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::region::Region;
use crate::{RegionInfo, RegionSpan};

/// Lets processes of this host at the regions without a [`Hold`](crate::Hold) for each use: it keeps a copy of the table
/// where they see it, and knows which of them are in the middle of a copy.
///
/// `registered` and `revoked` are called with the table's lock held, in the order of the changes: they must be quick and
/// must not call the table.
pub trait Outside: Send + Sync {
    /// Regions that may be used from now on.
    fn registered(&self, regions: &mut dyn Iterator<Item = &RegionInfo>);

    /// Regions on which no copy may begin any more.
    fn revoked(&self, regions: &mut dyn Iterator<Item = &RegionInfo>);

    /// Waits until no user outside is in the middle of a copy from or into `regions`, which have all been revoked. For each
    /// one that is still used at `deadline` (`None`: no deadline), calls `busy` with its index and the number of a
    /// process that uses it. A deadline that has passed only looks. May be called with the table's lock held if
    /// its deadline has passed.
    fn fence(&self, regions: &[RegionSpan], deadline: Option<Instant>, busy: &mut dyn FnMut(usize, u32));
}

/// Waits for the users outside, and marks the regions that have none any more; the process that uses each of the others.
pub(crate) fn fence_outside(
    outside: &[Arc<dyn Outside>],
    leaving: &[Arc<Region>],
    deadline: Option<Instant>,
) -> HashMap<usize, u32> {
    let mut holders = HashMap::new();
    if !outside.is_empty() {
        let spans: Vec<RegionSpan> = leaving.iter().map(|region| region.info.span()).collect();
        for users in outside {
            users.fence(&spans, deadline, &mut |index, pid| {
                holders.insert(index, pid);
            });
        }
    }
    for (index, region) in leaving.iter().enumerate() {
        if !holders.contains_key(&index) {
            region.set_fenced();
        }
    }
    holders
}
