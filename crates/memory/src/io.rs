//! Scatter-gather I/O on held memory, in safe calls.
//!
//! Owns the check that every address given to the kernel lies in a held region. It must not know what is sent.

use std::io;
use std::os::fd::AsFd;

use moonrail_sys::iovec::IovList;
pub use moonrail_sys::iovec::{IovStorage, MAX_ENTRIES};

use crate::{Hold, RegionSpan, Want};

/// A list of memory pieces, in order: held memory, and plain bytes (headers, statuses) between.
///
/// See [`IovList`] for how partial sends and receives go on.
#[derive(Debug, Default)]
pub struct HeldIov<'a> {
    list: IovList<'a>,
}

impl<'a> HeldIov<'a> {
    /// An empty list.
    pub fn new() -> HeldIov<'a> {
        HeldIov::default()
    }

    /// An empty list in memory that an earlier list has left.
    pub fn from_storage(storage: IovStorage) -> HeldIov<'a> {
        HeldIov { list: IovList::from_storage(storage) }
    }

    /// Gives the list's own memory back for the next list.
    pub fn into_storage(self) -> IovStorage {
        self.list.into_storage()
    }

    /// Adds bytes to send. A list with such a piece cannot be received into.
    pub fn push_bytes(&mut self, bytes: &'a [u8]) {
        self.list.push_bytes(bytes);
    }

    /// Adds bytes to receive into (or to send).
    pub fn push_bytes_mut(&mut self, bytes: &'a mut [u8]) {
        self.list.push_bytes_mut(bytes);
    }

    /// Adds `len` bytes of held memory at `addr`. A list with memory of a hold that was taken to read cannot be
    /// received into. `len` 0 adds nothing.
    ///
    /// # Errors
    /// The range lies outside the region held; the list is unchanged.
    #[inline]
    pub fn push_held(&mut self, hold: &'a Hold, addr: u64, len: u64) -> Result<(), OutOfHold> {
        if !hold.covers(addr, len) {
            return Err(OutOfHold { addr, len, region: hold.region().span() });
        }
        // A range inside a region fits the address space, which is 64 bits wide on every supported target.
        let bytes = len as usize;
        // SAFETY: the range lies in a region that stays held for 'a, and whose owner promised on registration that
        // nothing in Rust relies on that memory until unregistering has returned, which waits for this hold.
        unsafe {
            match hold.want() {
                Want::Read => self.list.push_raw_read_only(addr, bytes),
                Want::Write => self.list.push_raw(addr, bytes),
            }
        }
        Ok(())
    }

    /// Pieces left.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether no piece is left.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether one call's worth of pieces ([`MAX_ENTRIES`]) is in the list.
    pub fn is_full(&self) -> bool {
        self.list.is_full()
    }

    /// Bytes left.
    pub fn bytes(&self) -> usize {
        self.list.bytes()
    }

    /// Drops the first `count` bytes: they have been moved.
    ///
    /// # Panics
    /// When `count` is more than [`HeldIov::bytes`].
    pub fn advance(&mut self, count: usize) {
        self.list.advance(count);
    }

    /// Sends what the socket takes now, without blocking; see [`IovList::send`].
    ///
    /// # Errors
    /// `WouldBlock`; EFAULT when registered memory has been unmapped; the socket's errors.
    pub fn send(&self, fd: impl AsFd) -> io::Result<usize> {
        self.list.send(fd)
    }

    /// Receives what has arrived, without blocking; 0 is the end of the stream; see [`IovList::recv`].
    ///
    /// # Errors
    /// `InvalidInput` when the list is empty or has a piece that may only be sent; `WouldBlock`; EFAULT when registered
    /// memory has been unmapped (bytes may be lost then: give the connection up); the socket's errors.
    pub fn recv(&mut self, fd: impl AsFd) -> io::Result<usize> {
        self.list.recv(fd)
    }

    /// Copies the first bytes of the list into `into`, through the kernel; see [`IovList::copy_out`].
    ///
    /// # Errors
    /// `InvalidInput` when the list is shorter; EFAULT when registered memory has been unmapped.
    pub fn copy_out(&self, into: &mut [u8]) -> io::Result<()> {
        self.list.copy_out(into)
    }

    /// Copies `from` to the list, `offset` bytes behind its start, through the kernel; see [`IovList::copy_in`].
    ///
    /// # Errors
    /// `InvalidInput` when the list is shorter or has a piece that may only be sent; EFAULT when registered memory has been
    /// unmapped (some of `from` may have been stored then).
    pub fn copy_in(&mut self, offset: usize, from: &[u8]) -> io::Result<()> {
        self.list.copy_in(offset, from)
    }
}

/// A range that lies outside the region held for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {addr:#x} lie outside {region}, which is held")]
pub struct OutOfHold {
    /// The address asked for.
    pub addr: u64,
    /// The length asked for, in bytes.
    pub len: u64,
    /// The region held.
    pub region: RegionSpan,
}
