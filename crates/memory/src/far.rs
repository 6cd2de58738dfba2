//! Memory of another process, mapped here, and plain copies between it and held memory of this one.
//!
//! Owns the proof that both sides of such a copy are mapped: the far one by this type, the near one by a region that lies in
//! a [`SharedBlock`](crate::SharedBlock) and is held. It must not know what the other process lets be copied.

use std::io;
use std::os::fd::OwnedFd;

use moonrail_sys::memfd::{Memfd, SharedMapping};
pub use moonrail_sys::plain_copy::Stores;
use moonrail_sys::plain_copy::copy;

use crate::{Hold, Want};

/// A memfd of another process, mapped here whole.
#[derive(Debug)]
pub struct FarBlock {
    mapping: SharedMapping,
}

/// The two sides of one piece: `len` bytes at `local` here and at `offset` in the far block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// An address of this process.
    pub local: u64,
    /// Bytes from the block's start.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A piece that is not copied this way: the near side is not known to be mapped or was not held for that, or the far side
/// lies outside the block or may not be written. Nothing was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not memory that can be copied plainly")]
pub struct NotPlain;

impl FarBlock {
    /// Maps it: to be written too, unless its owner has sealed that. Its size must be sealed, and be `len` bytes.
    ///
    /// # Errors
    /// `InvalidData` when it is no such memfd; `OutOfMemory` when there is no room to map it.
    pub fn open(fd: OwnedFd, len: u64) -> io::Result<FarBlock> {
        let memfd = Memfd::open(fd)?;
        if memfd.len() as u64 != len {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a memfd of another size than agreed"));
        }
        Ok(FarBlock { mapping: SharedMapping::new(&memfd)? })
    }

    /// The length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Copies a piece from here to there.
    ///
    /// # Errors
    /// [`NotPlain`].
    #[inline]
    pub fn write(&self, hold: &Hold, piece: Piece, stores: Stores) -> Result<(), NotPlain> {
        let far = self.far(hold, piece).filter(|_| self.mapping.writable()).ok_or(NotPlain)?;
        // SAFETY: `far` checked that the near range is held and stays mapped while it is, and that the far one lies in the
        // mapping, which lives as long as `self` and is writable. The owners of both promised on registration that nothing in
        // Rust relies on the memory.
        unsafe { copy(piece.local, far, piece.len as usize, stores) };
        Ok(())
    }

    /// Copies a piece from there to here.
    ///
    /// # Errors
    /// [`NotPlain`].
    #[inline]
    pub fn read(&self, hold: &Hold, piece: Piece, stores: Stores) -> Result<(), NotPlain> {
        let far = self.far(hold, piece).filter(|_| hold.want() == Want::Write).ok_or(NotPlain)?;
        // SAFETY: as in `write`; the hold was taken to write, and memory of a block is mapped so.
        unsafe { copy(far, piece.local, piece.len as usize, stores) };
        Ok(())
    }

    /// Where the far side is mapped, if both sides are.
    #[inline]
    fn far(&self, hold: &Hold, piece: Piece) -> Option<u64> {
        let near = hold.region().backing.is_some() && hold.covers(piece.local, piece.len);
        self.mapping.at(piece.offset, piece.len).filter(|_| near)
    }
}
