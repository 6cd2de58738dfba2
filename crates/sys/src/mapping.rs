//! Private anonymous memory of whole pages.
//!
//! Owns the mapping from `mmap` to `munmap`. It hands out no Rust references: others may write to the memory at any
//! time, so it is reached by address only.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::param::page_size;

/// A readable and writable mapping, zeroed, unmapped when dropped.
#[derive(Debug)]
pub struct AnonymousMapping {
    start: NonNull<libc::c_void>,
    len: usize,
}

impl AnonymousMapping {
    /// Maps `len` bytes, rounded up to whole pages (0 becomes one page). Pages take memory when first touched.
    ///
    /// # Errors
    /// `OutOfMemory` when the address space or a limit on it is exhausted, or when `len` cannot be rounded up.
    pub fn new(len: usize) -> io::Result<AnonymousMapping> {
        let len = len
            .max(1)
            .checked_next_multiple_of(page_size())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: the kernel chooses a free address range, so no existing memory is touched; the result is owned by
        // the value made below and by nothing else.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        let start = NonNull::new(start).expect("invariant: mmap does not choose the null page");
        Ok(AnonymousMapping { start, len })
    }

    /// The first address.
    pub fn addr(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// The length in bytes: whole pages, never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for AnonymousMapping {
    fn drop(&mut self) {
        // SAFETY: this value owns exactly this mapping, and no reference into it was handed out.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        // It fails only when splitting a mapping passes the kernel's limit on their number: then the memory leaks.
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

// SAFETY: the pointer is only an address here; no method dereferences it, and unmapping may happen on any thread.
unsafe impl Send for AnonymousMapping {}
// SAFETY: as above; shared access reads two plain fields.
unsafe impl Sync for AnonymousMapping {}
