//! Copies between held memory and the regions of another process on this host, in safe calls.
//!
//! Owns the check that every local address given to the kernel lies in a held region. The remote addresses are the
//! caller's business: it must have found them in what the other process published of its own
//! [`RegionTable`](crate::RegionTable).

use std::io;

use moonrail_sys::cross_memory::CrossCopy;
pub use moonrail_sys::cross_memory::{CrossStorage, MAX_PIECES, read_exact};

use crate::io::OutOfHold;
use crate::{Hold, Want};

/// Pieces to copy in one call; see [`CrossCopy`] for how partial copies go on.
#[derive(Debug, Default)]
pub struct HeldCopy<'a> {
    copy: CrossCopy<'a>,
}

impl<'a> HeldCopy<'a> {
    /// An empty list in memory that an earlier list has left.
    pub fn from_storage(storage: CrossStorage) -> HeldCopy<'a> {
        HeldCopy { copy: CrossCopy::from_storage(storage) }
    }

    /// Gives the list's own memory back for the next list.
    pub fn into_storage(self) -> CrossStorage {
        self.copy.into_storage()
    }

    /// Drops every piece.
    pub fn clear(&mut self) {
        self.copy.clear();
    }

    /// Adds `len` bytes, at `local` in held memory and at `remote` in the other process. A list with memory of a hold
    /// that was taken to read cannot be copied into. `len` 0 adds nothing.
    ///
    /// # Errors
    /// The local range lies outside the region held; the list is unchanged.
    #[inline]
    pub fn push(&mut self, hold: &'a Hold, local: u64, remote: u64, len: u64) -> Result<(), OutOfHold> {
        if !hold.covers(local, len) {
            return Err(OutOfHold { addr: local, len, region: hold.region().span() });
        }
        // A range inside a region fits the address space, which is 64 bits wide on every supported target.
        let bytes = len as usize;
        // SAFETY: the range lies in a region that stays held for 'a, and whose owner promised on registration that
        // nothing in Rust relies on that memory until unregistering has returned, which waits for this hold.
        unsafe {
            match hold.want() {
                Want::Read => self.copy.push_local_read_only(local, bytes),
                Want::Write => self.copy.push_local(local, bytes),
            }
        }
        self.copy.push_remote(remote, bytes);
        Ok(())
    }

    /// Whether one call's worth of pieces ([`MAX_PIECES`]) is in the list.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.copy.is_full()
    }

    /// Bytes left.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.copy.bytes()
    }

    /// Drops the first `count` bytes: they have been copied.
    pub fn advance(&mut self, count: usize) {
        self.copy.advance(count);
    }

    /// Copies from process `pid` to here; see [`CrossCopy::read_from`].
    ///
    /// # Errors
    /// Those of [`CrossCopy::read_from`].
    #[inline]
    pub fn read_from(&self, pid: i32) -> io::Result<usize> {
        // SAFETY: reading has no effect on the other process. Where it is this one, the remote pieces lie in regions
        // of a table of ours, whose owners promised that the engine may read them at any time.
        unsafe { self.copy.read_from(pid) }
    }

    /// Copies from here into process `pid`; see [`CrossCopy::write_to`].
    ///
    /// # Errors
    /// Those of [`CrossCopy::write_to`].
    #[inline]
    pub fn write_to(&self, pid: i32) -> io::Result<usize> {
        // SAFETY: the remote pieces lie in regions that the other process (which may be this one) registered, whose
        // owners promised that the engine's peers may write them at any time. That the caller found them there is this
        // module's contract; as with `/proc/PID/mem`, which safe Rust may write too, the type system cannot say more.
        unsafe { self.copy.write_to(pid) }
    }
}
