//! Scatter-gather socket I/O: one `sendmsg` or `recvmsg` for many pieces of memory.
//!
//! Owns the list of pieces and the two calls. It must not know whether a piece is registered memory: that check belongs
//! to whoever calls [`IovList::push_raw`].

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};

use crate::copy::{Direction, copy_pieces};

/// Pieces that the kernel takes in one call (`UIO_MAXIOV`).
pub const MAX_ENTRIES: usize = 1024;
/// Pieces that one copy is given.
const PIECES: usize = 64;

/// A list of memory pieces to send from or receive into, in order.
///
/// It may hold more than [`MAX_ENTRIES`] pieces; one call moves the first [`MAX_ENTRIES`] at most. After a partial move,
/// [`IovList::advance`] drops what is done. Both calls never block, whatever mode the socket is in.
#[derive(Debug, Default)]
pub struct IovList<'a> {
    entries: Vec<libc::iovec>,
    /// Entries before this one are done.
    first: usize,
    bytes: usize,
    /// Set once a piece is pushed that must not be received into.
    read_only: bool,
    _pieces: PhantomData<&'a mut [u8]>,
}

impl<'a> IovList<'a> {
    /// An empty list.
    pub fn new() -> IovList<'a> {
        IovList::default()
    }

    /// An empty list in memory that an earlier list has left.
    pub fn from_storage(storage: IovStorage) -> IovList<'a> {
        IovList { entries: storage.entries, ..IovList::default() }
    }

    /// Gives the list's own memory back for the next list.
    pub fn into_storage(mut self) -> IovStorage {
        self.entries.clear();
        IovStorage { entries: self.entries }
    }

    /// Adds bytes to send. A list with such a piece cannot be received into.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &'a [u8]) {
        self.read_only |= !bytes.is_empty();
        self.push(bytes.as_ptr().cast_mut().cast(), bytes.len());
    }

    /// Adds bytes to receive into (or to send).
    #[inline]
    pub fn push_bytes_mut(&mut self, bytes: &'a mut [u8]) {
        self.push(bytes.as_mut_ptr().cast(), bytes.len());
    }

    /// Adds memory by address, to send from or to receive into. `len` 0 is skipped.
    ///
    /// # Safety
    /// For `'a`, if the memory is mapped, nothing that Rust code borrows or relies on may lie in `addr..addr + len`.
    /// Memory that is not mapped is an error (EFAULT) of the call, not undefined behaviour.
    #[inline]
    pub unsafe fn push_raw(&mut self, addr: u64, len: usize) {
        self.push(pointer(addr), len);
    }

    /// Adds memory by address, to send from only. `len` 0 is skipped.
    ///
    /// # Safety
    /// For `'a`, if the memory is mapped, nothing that Rust code borrows mutably may lie in `addr..addr + len`.
    #[inline]
    pub unsafe fn push_raw_read_only(&mut self, addr: u64, len: usize) {
        self.read_only |= len != 0;
        self.push(pointer(addr), len);
    }

    #[inline]
    fn push(&mut self, base: *mut libc::c_void, len: usize) {
        if len != 0 {
            self.entries.push(libc::iovec { iov_base: base, iov_len: len });
            // Saturating: a list of raw pieces may overlap itself and add up to more than the address space.
            self.bytes = self.bytes.saturating_add(len);
        }
    }

    /// Pieces left.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len() - self.first
    }

    /// Whether no piece is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes left.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether one call's worth of pieces is in the list.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len() >= MAX_ENTRIES
    }

    /// Drops the first `count` bytes: they have been moved.
    ///
    /// # Panics
    /// When `count` is more than [`IovList::bytes`].
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes, "advanced by {count} of {} bytes", self.bytes);
        self.bytes -= count;
        let mut left = count;
        while left > 0 {
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

    /// Sends as much as the socket takes now; returns the bytes taken, which may be fewer than asked. An empty list
    /// sends nothing and returns 0. Call [`IovList::advance`] with the result.
    ///
    /// # Errors
    /// `WouldBlock` when the socket takes nothing now; EFAULT when a piece cannot be read; the socket's own errors
    /// (`BrokenPipe`, `ConnectionReset`, …). No SIGPIPE is raised.
    pub fn send(&self, fd: impl AsFd) -> io::Result<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        let message = self.message();
        // SAFETY: `message` points at entries that live through the call; the kernel only reads the pieces, which are
        // borrowed for `'a` or vouched for by the caller of `push_raw`.
        retry(|| unsafe {
            libc::sendmsg(fd.as_fd().as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
        })
    }

    /// Receives what has arrived, at most the list's bytes; 0 is the end of the stream. Call [`IovList::advance`] with
    /// the result.
    ///
    /// # Errors
    /// `InvalidInput` when the list is empty or has a piece that may only be sent; `WouldBlock` when nothing has
    /// arrived; EFAULT when a piece cannot be written; the socket's own errors.
    pub fn recv(&mut self, fd: impl AsFd) -> io::Result<usize> {
        if self.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "nothing to receive into"));
        }
        if self.read_only {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "receiving into memory that may only be sent",
            ));
        }
        let mut message = self.message();
        // SAFETY: `message` points at entries that live through the call; the pieces are mutably borrowed for `'a` or
        // vouched for by the caller of `push_raw`, as none is read-only.
        retry(|| unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &mut message, libc::MSG_DONTWAIT) })
    }

    /// Copies the first bytes of the list into `into`, through the kernel: for what cannot be given to a socket as it is.
    ///
    /// # Errors
    /// `InvalidInput` when the list is shorter; EFAULT when a piece cannot be read. `into` may be partly filled then.
    pub fn copy_out(&self, into: &mut [u8]) -> io::Result<()> {
        let base = into.as_mut_ptr();
        self.in_parts(0, into.len(), |pieces, at, len| {
            // SAFETY: `at + len` is within `into`; the pieces are borrowed for `'a`, or vouched for by the caller of
            // `push_raw`, and are only read.
            unsafe { copy_pieces(base.wrapping_add(at).cast(), pieces, len, Direction::FromForeign) }
        })
    }

    /// Copies `from` to the list, `offset` bytes behind its start, through the kernel.
    ///
    /// # Errors
    /// `InvalidInput` when that is more than the list takes, or when it has a piece that may only be sent; EFAULT when a piece
    /// cannot be written. Some of `from` may have been stored then.
    pub fn copy_in(&mut self, offset: usize, from: &[u8]) -> io::Result<()> {
        if self.read_only {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "copying into memory that may only be sent",
            ));
        }
        let base = from.as_ptr().cast_mut();
        self.in_parts(offset, from.len(), |pieces, at, len| {
            // SAFETY: `at + len` is within `from`, which is only read in this direction; the pieces are mutably borrowed for
            // `'a`, or vouched for by the caller of `push_raw`, as none is read-only.
            unsafe { copy_pieces(base.wrapping_add(at).cast(), pieces, len, Direction::ToForeign) }
        })
    }

    /// Has `moves` move `len` bytes from `offset` on, some pieces at a time. It is given them, how many bytes were moved
    /// before, and how many there are to move; it says how many it moved, which is not 0.
    fn in_parts(
        &self,
        offset: usize,
        len: usize,
        mut moves: impl FnMut(&[libc::iovec], usize, usize) -> io::Result<usize>,
    ) -> io::Result<()> {
        let (mut index, mut within) = self.forward(self.first, 0, offset);
        let mut done = 0;
        while done < len {
            let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES];
            let (mut count, mut bytes, mut skip) = (0, 0, within);
            for entry in self.entries[index..].iter().take(PIECES) {
                let part = (entry.iov_len - skip).min(len - done - bytes);
                if part == 0 {
                    break;
                }
                pieces[count] =
                    libc::iovec { iov_base: entry.iov_base.wrapping_byte_add(skip), iov_len: part };
                (count, bytes, skip) = (count + 1, bytes + part, 0);
            }
            if bytes == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "a list shorter than that"));
            }
            let moved = moves(&pieces[..count], done, bytes)?;
            done += moved;
            (index, within) = self.forward(index, within, moved);
        }
        Ok(())
    }

    /// The place `bytes` behind this one: an entry, and bytes of it.
    fn forward(&self, mut index: usize, mut within: usize, mut bytes: usize) -> (usize, usize) {
        while let Some(entry) = self.entries.get(index) {
            let left = entry.iov_len - within;
            if bytes < left {
                return (index, within + bytes);
            }
            (index, within, bytes) = (index + 1, 0, bytes - left);
        }
        (index, 0)
    }

    fn message(&self) -> libc::msghdr {
        let now = &self.entries[self.first..];
        // SAFETY: all-zero is a valid msghdr: no name, no pieces, no control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = now.as_ptr().cast_mut();
        message.msg_iovlen = now.len().min(MAX_ENTRIES) as _;
        message
    }
}

// SAFETY: the pieces are slices of bytes, borrowed for `'a`, or addresses; neither is tied to a thread.
unsafe impl Send for IovList<'_> {}
// SAFETY: shared access reads the list and lets the kernel read the pieces.
unsafe impl Sync for IovList<'_> {}

/// The memory of an emptied [`IovList`], for use by the next one.
#[derive(Debug, Default)]
pub struct IovStorage {
    /// Always empty; only its capacity counts.
    entries: Vec<libc::iovec>,
}

impl IovStorage {
    /// Room for `capacity` pieces.
    pub fn with_capacity(capacity: usize) -> IovStorage {
        IovStorage { entries: Vec::with_capacity(capacity) }
    }
}

// SAFETY: the vector is empty, so there is no pointer to move to another thread.
unsafe impl Send for IovStorage {}
// SAFETY: as above.
unsafe impl Sync for IovStorage {}

fn pointer(addr: u64) -> *mut libc::c_void {
    std::ptr::with_exposed_provenance_mut(addr as usize)
}

fn retry(mut call: impl FnMut() -> libc::ssize_t) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(moved) => return Ok(moved),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

const _: () = assert!(usize::BITS == 64, "addresses on the wire are 64 bits wide");
