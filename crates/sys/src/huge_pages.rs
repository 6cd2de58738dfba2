//! Small pages that could be huge ones: finding them, and having the kernel put them together.
//!
//! Owns `PAGEMAP_SCAN` (Linux 6.7) and `MADV_COLLAPSE` (6.1). Neither changes a byte of the memory. It must not know whose
//! memory it is.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// What the machine's huge pages are.
#[derive(Debug)]
pub struct HugePages {
    size: u64,
    pagemap: File,
}

impl HugePages {
    /// `None` where the administrator wants no huge pages (`transparent_hugepage/enabled` is `never`), or the kernel has no
    /// such pages or no such calls.
    pub fn find() -> Option<HugePages> {
        let setting = |name| fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}")).ok();
        if setting("enabled")?.contains("[never]") {
            return None;
        }
        let size: u64 = setting("hpage_pmd_size")?.trim().parse().ok()?;
        let pages = HugePages {
            size,
            pagemap: File::open("/proc/self/pagemap").ok().filter(|_| size.is_power_of_two())?,
        };
        pages.small(0, 0).is_ok().then_some(pages)
    }

    /// Bytes of a huge page.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The huge pages that lie whole within `len` bytes at `addr`, by number: each covers [`HugePages::size`] bytes from
    /// that many times its size on.
    pub fn whole(&self, addr: u64, len: u64) -> Range<u64> {
        addr.div_ceil(self.size)..addr.saturating_add(len) / self.size
    }

    /// Whether at least seven eighths of huge page `number` are there, in small pages of private anonymous memory: pages
    /// that were only read so far, swapped out or never touched do not count, as they would take memory.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.7; the kernel has no memory.
    pub fn is_worth_it(&self, number: u64) -> io::Result<bool> {
        let start = number * self.size;
        Ok(self.small(start, start + self.size)? >= self.size / 8 * 7)
    }

    /// Has the kernel put huge page `number` together. It copies the pages, some hundred microseconds for 2 MiB, during
    /// which whoever touches them waits.
    ///
    /// # Errors
    /// EAGAIN, EBUSY: a page is in use; ENOMEM: no huge page is free, or nothing is mapped; EINVAL: not this kind of memory.
    pub fn collapse(&self, number: u64) -> io::Result<()> {
        let start = std::ptr::with_exposed_provenance_mut((number * self.size) as usize);
        // SAFETY: the call changes how the range is backed and nothing of what is in it; the kernel checks the range.
        match unsafe { libc::madvise(start, self.size as usize, libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Bytes in small pages, as [`HugePages::is_worth_it`] counts them, from `start` to `end`.
    fn small(&self, start: u64, end: u64) -> io::Result<u64> {
        const UNWANTED: u64 = IS_FILE | IS_ZERO | IS_HUGE;
        let mut found = [PageRegion::default(); 64];
        let (mut from, mut bytes) = (start, 0);
        loop {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                start: from,
                end,
                vec: (&raw mut found).expose_provenance() as u64,
                vec_len: found.len() as u64,
                category_inverted: UNWANTED,
                category_mask: IS_PRESENT | UNWANTED,
                return_mask: IS_PRESENT,
                ..Scan::default()
            };
            // SAFETY: the kernel reads and writes `scan`, and writes up to `vec_len` regions to `found`; both are
            // exclusively borrowed and of the layout that `linux/fs.h` gives.
            let count = unsafe { libc::ioctl(self.pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
            let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
            bytes += found.iter().take(count).map(|region| region.end - region.start).sum::<u64>();
            if scan.walk_end >= end || scan.walk_end <= from {
                return Ok(bytes);
            }
            from = scan.walk_end;
        }
    }
}

const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_ZERO: u64 = 1 << 5;
const IS_HUGE: u64 = 1 << 6;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xC060_6610_u32 as libc::Ioctl;

/// `struct pm_scan_arg`.
#[derive(Default)]
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

const _: () = assert!(size_of::<Scan>() == 0x60 && size_of::<PageRegion>() == 24);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustix::param::page_size;

    use super::*;
    use crate::copy::{copy_from, copy_to};
    use crate::mapping::AnonymousMapping;

    #[test]
    fn only_what_is_there_is_put_together_and_keeps_its_bytes() {
        let Some(huge) = HugePages::find() else { return };
        let size = huge.size();
        let memory = AnonymousMapping::new(4 * size as usize).unwrap();
        let whole = huge.whole(memory.addr(), memory.len() as u64);
        assert!(whole.end - whole.start >= 3);
        let (first, second) = (whole.start, whole.start + 1);
        assert!(!huge.is_worth_it(first).unwrap(), "nothing was touched");
        // One byte of each page of the first, and half of the second.
        let page = page_size() as u64;
        for at in (0..size + size / 2).step_by(page as usize) {
            // SAFETY: nothing else knows the mapping.
            unsafe { copy_to(first * size + at, &[at as u8 | 1]).unwrap() };
        }
        // With `always` they are huge already.
        if !huge.is_worth_it(first).unwrap() {
            return;
        }
        assert!(!huge.is_worth_it(second).unwrap(), "half of it is not there");
        match huge.collapse(first) {
            Ok(()) => assert!(!huge.is_worth_it(first).unwrap(), "it is huge now"),
            // No huge page was free.
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
        let mut byte = [0];
        // SAFETY: as above.
        unsafe { copy_from(first * size + 7 * page, &mut byte).unwrap() };
        assert_eq!(byte[0], (7 * page) as u8 | 1);
    }

    #[test]
    fn whole_pages_lie_inside() {
        let Some(huge) = HugePages::find() else { return };
        let size = huge.size();
        assert_eq!(huge.whole(size, 2 * size), 1..3);
        assert_eq!(huge.whole(size + 1, 2 * size), 2..3);
        assert!(huge.whole(size + 1, size).is_empty());
    }
}
