//! Copies between this process's memory and another's: `process_vm_readv(2)` and `process_vm_writev(2)`.
//!
//! Owns the two lists of pieces and the calls. It must not know whether a piece is registered memory, here or there.

use std::io;
use std::marker::PhantomData;

/// Pieces that the kernel takes in one call, on each side (`UIO_MAXIOV`).
pub const MAX_PIECES: usize = 1024;

/// What to copy in one call: pieces here and pieces there, as two streams of bytes of the same length. Pieces that
/// follow each other in memory are merged, on each side for itself.
#[derive(Debug, Default)]
pub struct CrossCopy<'a> {
    local: Pieces,
    remote: Pieces,
    bytes: usize,
    /// Set once a local piece is added that must not be copied into.
    read_only: bool,
    _local: PhantomData<&'a mut [u8]>,
}

impl<'a> CrossCopy<'a> {
    /// An empty list in memory that an earlier list has left.
    pub fn from_storage(storage: CrossStorage) -> CrossCopy<'a> {
        CrossCopy { local: storage.local, remote: storage.remote, ..CrossCopy::default() }
    }

    /// Gives the lists' own memory back for the next one.
    pub fn into_storage(mut self) -> CrossStorage {
        self.clear();
        CrossStorage { local: self.local, remote: self.remote }
    }

    /// Drops every piece.
    pub fn clear(&mut self) {
        self.local.clear();
        self.remote.clear();
        (self.bytes, self.read_only) = (0, false);
    }

    /// Adds `len` bytes here, to be copied from or into. `len` 0 adds nothing.
    ///
    /// # Safety
    /// For `'a`, if the memory is mapped, nothing that Rust code borrows or relies on may lie in `addr..addr + len`.
    #[inline]
    pub unsafe fn push_local(&mut self, addr: u64, len: usize) {
        self.local.push(addr, len);
        self.bytes = self.bytes.saturating_add(len);
    }

    /// Adds `len` bytes here, to be copied from only. `len` 0 adds nothing.
    ///
    /// # Safety
    /// For `'a`, if the memory is mapped, nothing that Rust code borrows mutably may lie in `addr..addr + len`.
    #[inline]
    pub unsafe fn push_local_read_only(&mut self, addr: u64, len: usize) {
        self.read_only |= len != 0;
        self.local.push(addr, len);
        self.bytes = self.bytes.saturating_add(len);
    }

    /// Adds `len` bytes of the other process. `len` 0 adds nothing.
    #[inline]
    pub fn push_remote(&mut self, addr: u64, len: usize) {
        self.remote.push(addr, len);
    }

    /// Whether one call's worth of pieces is in the list.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.local.len() >= MAX_PIECES || self.remote.len() >= MAX_PIECES
    }

    /// Local bytes left.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the first `count` bytes on both sides: they have been copied.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        if count >= self.bytes {
            return self.clear();
        }
        self.bytes -= count;
        self.local.advance(count);
        self.remote.advance(count);
    }

    /// Copies from process `pid` to here; returns the bytes copied, which may be fewer than asked. Call
    /// [`CrossCopy::advance`] with them. Not interrupted by signals.
    ///
    /// # Errors
    /// EFAULT when the first piece on either side is not mapped; EPERM when the kernel forbids it; ESRCH when there is
    /// no such process (any more); ENOSYS where a sandbox hides the call; `InvalidInput` when a local piece is read-only.
    ///
    /// # Safety
    /// The caller knows who `pid` is; where it is this process, the remote pieces may be read by the kernel at any time.
    #[inline]
    pub unsafe fn read_from(&self, pid: i32) -> io::Result<usize> {
        if self.read_only {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "copying into memory held to be read"));
        }
        let (local, remote) = (self.local.now(), self.remote.now());
        // SAFETY: both lists live through the call; the local pieces are vouched for by the callers of `push_local`,
        // and the kernel checks every address.
        let copied = unsafe {
            libc::process_vm_readv(
                pid,
                local.as_ptr(),
                local.len() as _,
                remote.as_ptr(),
                remote.len() as _,
                0,
            )
        };
        usize::try_from(copied).map_err(|_| io::Error::last_os_error())
    }

    /// Copies from here into process `pid`; otherwise as [`CrossCopy::read_from`].
    ///
    /// # Errors
    /// As [`CrossCopy::read_from`], but for `InvalidInput`.
    ///
    /// # Safety
    /// The owner of the remote pieces lets them be written at any time: nothing that Rust code borrows or relies on
    /// lies in them, in this process (if `pid` is its own) or in the other.
    #[inline]
    pub unsafe fn write_to(&self, pid: i32) -> io::Result<usize> {
        let (local, remote) = (self.local.now(), self.remote.now());
        // SAFETY: both lists live through the call; the kernel only reads the local pieces, and checks every address;
        // the remote ones are the caller's word.
        let copied = unsafe {
            libc::process_vm_writev(
                pid,
                local.as_ptr(),
                local.len() as _,
                remote.as_ptr(),
                remote.len() as _,
                0,
            )
        };
        usize::try_from(copied).map_err(|_| io::Error::last_os_error())
    }
}

// SAFETY: the pieces are addresses, vouched for during `'a`; none is tied to a thread.
unsafe impl Send for CrossCopy<'_> {}

/// The memory of an emptied [`CrossCopy`], for use by the next one.
#[derive(Debug, Default)]
pub struct CrossStorage {
    local: Pieces,
    remote: Pieces,
}

// SAFETY: both lists are empty; only their capacity counts.
unsafe impl Send for CrossStorage {}
// SAFETY: as above.
unsafe impl Sync for CrossStorage {}

/// Reads `into.len()` bytes at `addr` in process `pid`.
///
/// # Errors
/// As [`CrossCopy::read_from`]; EFAULT too when only some of the bytes are there.
pub fn read_exact(pid: i32, addr: u64, into: &mut [u8]) -> io::Result<()> {
    let mut copy = CrossCopy::default();
    // SAFETY: `into` is exclusively borrowed for longer than `copy` lives.
    unsafe { copy.push_local(into.as_mut_ptr().expose_provenance() as u64, into.len()) };
    copy.push_remote(addr, into.len());
    // SAFETY: reading another process's memory has no effect there. Should `pid` be our own, the bytes may be changing
    // under the kernel's copy, which then copies some of each; no Rust code reads them.
    match unsafe { copy.read_from(pid) }? {
        all if all == into.len() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

#[derive(Debug, Default)]
struct Pieces {
    entries: Vec<libc::iovec>,
    /// Entries before this one are done.
    first: usize,
    /// Address behind the last piece.
    end: u64,
}

impl Pieces {
    #[inline]
    fn push(&mut self, addr: u64, len: usize) {
        if len == 0 {
            return;
        }
        if self.end == addr
            && self.first < self.entries.len()
            && let Some(last) = self.entries.last_mut()
        {
            last.iov_len = last.iov_len.saturating_add(len);
        } else {
            let base = std::ptr::with_exposed_provenance_mut(addr as usize);
            self.entries.push(libc::iovec { iov_base: base, iov_len: len });
        }
        self.end = addr.wrapping_add(len as u64);
    }

    #[inline]
    fn len(&self) -> usize {
        self.entries.len() - self.first
    }

    #[inline]
    fn now(&self) -> &[libc::iovec] {
        let left = &self.entries[self.first..];
        &left[..left.len().min(MAX_PIECES)]
    }

    fn clear(&mut self) {
        self.entries.clear();
        (self.first, self.end) = (0, 0);
    }

    fn advance(&mut self, count: usize) {
        let mut left = count;
        while left > 0 && self.first < self.entries.len() {
            let entry = &mut self.entries[self.first];
            if left < entry.iov_len {
                entry.iov_base = entry.iov_base.wrapping_byte_add(left);
                entry.iov_len -= left;
                return;
            }
            left -= entry.iov_len;
            self.first += 1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mapping::AnonymousMapping;

    fn own_pid() -> i32 {
        rustix::process::getpid().as_raw_nonzero().get()
    }

    #[test]
    fn pieces_merge_on_each_side_for_itself() {
        let mut copy = CrossCopy::default();
        for at in 0..3_u64 {
            // SAFETY: the list is never given to the kernel.
            unsafe { copy.push_local(4096 + 10 * at, 10) };
            copy.push_remote(8192 + 20 * at, 10);
        }
        assert_eq!((copy.local.len(), copy.remote.len(), copy.bytes()), (1, 3, 30));
        copy.advance(15);
        assert_eq!((copy.local.len(), copy.remote.len(), copy.bytes()), (1, 2, 15));
        assert_eq!(copy.remote.now()[0].iov_base as usize, 8192 + 20 + 5);
        copy.clear();
        // SAFETY: as above.
        unsafe { copy.push_local(0, 10) };
        assert_eq!(copy.local.len(), 1, "the first piece merges with nothing, wherever it lies");
    }

    #[test]
    fn a_hole_at_the_far_side_is_a_partial_count_then_a_fault() {
        let page = rustix::param::page_size();
        let (from, to) = (AnonymousMapping::new(page).unwrap(), AnonymousMapping::new(page).unwrap());
        let mut copy = CrossCopy::default();
        // SAFETY: the mappings are this test's own.
        unsafe { copy.push_local(from.addr(), 128) };
        copy.push_remote(to.addr(), 64);
        copy.push_remote(64, 64);
        // SAFETY: `to` is this test's own; nothing is mapped at 64.
        assert_eq!(unsafe { copy.write_to(own_pid()) }.unwrap(), 64);
        copy.advance(64);
        // SAFETY: as above.
        let fault = unsafe { copy.write_to(own_pid()) }.unwrap_err();
        assert_eq!(fault.raw_os_error(), Some(libc::EFAULT));
    }

    #[test]
    fn nobody_there_is_said_so() {
        let gone = i32::MAX;
        let error = read_exact(gone, 4096, &mut [0; 8]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
