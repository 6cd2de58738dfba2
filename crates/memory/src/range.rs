//! A range of memory that somebody vouches for.
//!
//! Owns the checks that need no table: not null, not empty, no wrap-around. It must not know regions.

/// A range of this process's memory, vouched for by whoever made it. `addr() + len()` does not overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryRange {
    addr: u64,
    len: u64,
}

impl MemoryRange {
    /// A range of `len` bytes at `addr`.
    ///
    /// # Errors
    /// A range that no memory can have: see [`RangeError`].
    ///
    /// # Safety
    /// From registration until [`RegionTable::unregister`](crate::RegionTable::unregister) has returned `Ok`, the
    /// memory stays mapped as it is (for [`Hold::unlisted`](crate::Hold::unlisted): while the hold lives), and no Rust reference to it is relied upon, as the engine and its peers read and
    /// write it at any time. Should it be unmapped all the same, transfers that touch it fail; should something else be
    /// mapped there, that is what they move.
    pub unsafe fn assume_valid(addr: u64, len: u64) -> Result<MemoryRange, RangeError> {
        if addr == 0 {
            return Err(RangeError::Null);
        }
        if len == 0 {
            return Err(RangeError::Empty { addr });
        }
        if addr.checked_add(len).is_none() {
            return Err(RangeError::Wraps { addr, len });
        }
        Ok(MemoryRange { addr, len })
    }

    /// The `len` bytes from `offset` on, which are vouched for as the whole is; `None` for an empty or outer range.
    pub fn part(self, offset: u64, len: u64) -> Option<MemoryRange> {
        let addr = self.addr.checked_add(offset)?;
        (len > 0 && self.contains(addr, len)).then_some(MemoryRange { addr, len })
    }

    /// The first address.
    #[inline]
    pub fn addr(self) -> u64 {
        self.addr
    }

    /// The length in bytes; never 0.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(self) -> u64 {
        self.len
    }

    /// The address behind the last byte.
    #[inline]
    pub fn end(self) -> u64 {
        self.addr + self.len
    }

    /// Whether `len` bytes at `addr` lie inside.
    #[inline]
    pub fn contains(self, addr: u64, len: u64) -> bool {
        addr >= self.addr && addr.checked_add(len).is_some_and(|end| end <= self.end())
    }
}

/// Why a range cannot be memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// The address is null.
    #[error("the address is null")]
    Null,
    /// The length is zero.
    #[error("the range at {addr:#x} has zero length")]
    Empty {
        /// The address given.
        addr: u64,
    },
    /// The end lies beyond the address space.
    #[error("{len} bytes at {addr:#x} reach beyond the address space")]
    Wraps {
        /// The address given.
        addr: u64,
        /// The length given, in bytes.
        len: u64,
    },
}
