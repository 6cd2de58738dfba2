//! Memory of 64-bit words that several processes map: a sealed memfd.
//!
//! Owns the words in it, as atomics; creating, sealing and checking are [`memfd`](crate::memfd)'s. It must not know what
//! the words mean.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{SealFlags, fcntl_add_seals};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::memfd::{Pages, sealed_size, unsealed};

/// What others may do with the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Read them only: no further writable mapping can be made (on kernels before 5.1 that cannot be had, and they may
    /// write all the same).
    Read,
    /// Read and write them.
    Write,
}

/// Words that this process reads and writes.
#[derive(Debug)]
pub struct SharedWords {
    map: Map,
}

impl SharedWords {
    /// Makes `count` zeroed words; the descriptor is for handing to other processes. Memory is taken when a page is
    /// first touched.
    ///
    /// # Errors
    /// No memfd, no address space, out of descriptors; the process's limit on file sizes is below the size.
    pub fn create(name: &CStr, count: usize, others: Others) -> io::Result<(SharedWords, OwnedFd)> {
        let len = byte_len(count)?;
        let fd = unsealed(name, len, Pages::Usual)?;
        let map = Map::new(&fd, len, ProtFlags::READ | ProtFlags::WRITE)?;
        if others == Others::Read {
            match fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE) {
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((SharedWords { map }, fd))
    }

    /// Maps words that another process made.
    ///
    /// # Errors
    /// `InvalidData` when the size is not sealed or is not `count` words.
    pub fn open(fd: impl AsFd, count: usize) -> io::Result<SharedWords> {
        let len = checked_len(&fd, count)?;
        Ok(SharedWords { map: Map::new(fd, len, ProtFlags::READ | ProtFlags::WRITE)? })
    }

    /// The words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        let start = self.map.start.cast::<AtomicU64>();
        // SAFETY: the mapping is `len` bytes long, page-aligned, readable and writable, lives as long as `self`, and
        // cannot shrink. Whoever else maps it changes it by atomic accesses or, at worst, as the kernel would: any bit
        // pattern is a valid word.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.map.len / WORD) }
    }
}

/// Words that this process only reads.
#[derive(Debug)]
pub struct SharedView {
    map: Map,
}

impl SharedView {
    /// Maps words that another process made.
    ///
    /// # Errors
    /// As [`SharedWords::open`].
    pub fn open(fd: impl AsFd, count: usize) -> io::Result<SharedView> {
        let len = checked_len(&fd, count)?;
        Ok(SharedView { map: Map::new(fd, len, ProtFlags::READ)? })
    }

    /// The word at `index`, or `None` behind the end. Nothing that stands behind the call is done before it (acquire).
    #[inline]
    pub fn load(&self, index: usize) -> Option<u64> {
        let word = self.load_relaxed(index);
        // Only relaxed loads are defined on memory that cannot be written.
        fence(Ordering::Acquire);
        word
    }

    /// As [`SharedView::load`], in no order with other accesses.
    #[inline]
    pub fn load_relaxed(&self, index: usize) -> Option<u64> {
        if index >= self.map.len / WORD {
            return None;
        }
        let word = self.map.start.cast::<AtomicU64>();
        // SAFETY: the index lies inside the mapping, which lives as long as `self` and cannot shrink; a relaxed load of
        // eight aligned bytes is allowed on read-only memory.
        Some(unsafe { word.add(index).as_ref() }.load(Ordering::Relaxed))
    }
}

const WORD: usize = size_of::<AtomicU64>();

fn byte_len(count: usize) -> io::Result<usize> {
    count
        .checked_mul(WORD)
        .filter(|&len| len > 0 && len <= isize::MAX as usize)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn checked_len(fd: impl AsFd, count: usize) -> io::Result<usize> {
    let len = byte_len(count)?;
    if sealed_size(&fd)?.0 != len {
        let text = "a memfd of another size than agreed";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(len)
}

#[derive(Debug)]
struct Map {
    start: NonNull<libc::c_void>,
    len: usize,
}

impl Map {
    fn new(fd: impl AsFd, len: usize, prot: ProtFlags) -> io::Result<Map> {
        // SAFETY: the kernel chooses a free address range, so no existing memory is touched; the result is owned by
        // the value made below and by nothing else.
        let start = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0)? };
        let start = NonNull::new(start).expect("invariant: mmap does not choose the null page");
        Ok(Map { start, len })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this value owns exactly this mapping, and references into it borrow from its owner.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Map {}
// SAFETY: shared access is by atomics only.
unsafe impl Sync for Map {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    #[test]
    fn a_reader_sees_what_the_maker_stores_and_cannot_store() {
        let (words, fd) = SharedWords::create(c"test", 1000, Others::Read).unwrap();
        let view = SharedView::open(&fd, 1000).unwrap();
        words.words()[999].store(7, Ordering::Release);
        assert_eq!((view.load(999), view.load(998), view.load(1000)), (Some(7), Some(0), None));
        assert!(SharedWords::open(&fd, 1000).is_err(), "a writable mapping was made");
    }

    #[test]
    fn others_may_write_where_they_are_to() {
        let (words, fd) = SharedWords::create(c"test", 8, Others::Write).unwrap();
        SharedWords::open(&fd, 8).unwrap().words()[3].store(5, Ordering::Release);
        assert_eq!(words.words()[3].load(Ordering::Acquire), 5);
    }

    #[test]
    fn what_could_be_truncated_is_not_mapped() {
        let fd = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 64).unwrap();
        assert_eq!(SharedView::open(&fd, 8).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(SharedView::open(&fd, 8).is_ok());
        assert_eq!(SharedView::open(&fd, 9).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert!(SharedView::open(&reader, 8).is_err());
    }
}
