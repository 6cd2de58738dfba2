//! A hold on one region.
//!
//! Owns the counting, by RAII. It must not know what the memory is used for.

use std::io;
use std::sync::Arc;

use crate::region::Region;
use crate::{MemoryRange, RegionInfo, RegionOptions, Want};

/// Keeps one region from being unregistered. While it lives, the region's memory may be given to the kernel.
///
/// Drop it as soon as the kernel is done, and look at [`Hold::revoked`] wherever the end depends on a peer: then the
/// owner waits, and the transfer is to be broken off.
#[derive(Debug)]
pub struct Hold {
    region: Arc<Region>,
    want: Want,
}

impl Hold {
    /// Counts a hold on `region`; the caller holds the table's lock and has checked access.
    pub(crate) fn acquire(region: &Arc<Region>, want: Want) -> Hold {
        region.acquire();
        Hold { region: Arc::clone(region), want }
    }

    /// A hold on memory that stands in no table, and so cannot be unregistered: for a caller's own buffer during one
    /// call. Its generation is 0, which no registered region has.
    pub fn unlisted(range: MemoryRange, want: Want) -> Hold {
        let options = RegionOptions::default();
        let location = options.location.as_str().into();
        let region = Region::new(range, options, location, 0, None);
        Hold::acquire(&Arc::new(region), want)
    }

    /// The region held.
    #[inline]
    pub fn region(&self) -> &RegionInfo {
        &self.region.info
    }

    /// What the hold was taken for.
    #[inline]
    pub fn want(&self) -> Want {
        self.want
    }

    /// Whether `len` bytes at `addr` lie inside the region held.
    #[inline]
    pub fn covers(&self, addr: u64, len: u64) -> bool {
        self.region.info.contains(addr, len)
    }

    /// Whether the region is being unregistered, so that somebody waits for this hold.
    #[inline]
    pub fn revoked(&self) -> bool {
        self.region.revoked()
    }

    /// Copies bytes of the region into `into`.
    ///
    /// # Errors
    /// `InvalidInput` when the range lies outside the region; EFAULT when the memory is not mapped any more.
    pub fn copy_out(&self, addr: u64, into: &mut [u8]) -> io::Result<()> {
        self.check(addr, into.len())?;
        // SAFETY: the range lies inside a held region, whose owner promised that nothing in Rust relies on it; `into`
        // is borrowed, so it does not lie in there.
        unsafe { moonrail_sys::copy::copy_from(addr, into) }
    }

    /// Copies `from` into the region.
    ///
    /// # Errors
    /// As [`Hold::copy_out`]; `PermissionDenied` when the hold was not taken to write.
    pub fn copy_in(&self, addr: u64, from: &[u8]) -> io::Result<()> {
        self.check(addr, from.len())?;
        if self.want != Want::Write {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the hold was taken to read"));
        }
        // SAFETY: as in `copy_out`.
        unsafe { moonrail_sys::copy::copy_to(addr, from) }
    }

    fn check(&self, addr: u64, len: usize) -> io::Result<()> {
        if self.covers(addr, len as u64) {
            return Ok(());
        }
        let text = format!("{len} bytes at {addr:#x} lie outside {}", self.region.info.span());
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.region.release();
    }
}
