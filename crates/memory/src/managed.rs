//! Buffers that the engine allocates for its user.
//!
//! Owns the mappings, from allocation to freeing, and their registration. It must not know what is stored in them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use moonrail_sys::mapping::AnonymousMapping;
use parking_lot::Mutex;

use crate::{MemoryRange, RangeError, RegionOptions, RegionTable, RegisterError, UnregisterError};

/// Managed buffers, each a page-rounded mapping of its own, registered in one table. Any thread may call any method.
///
/// Dropping it frees every buffer; one that a transfer still holds is leaked instead.
#[derive(Debug)]
pub struct ManagedBuffers {
    table: Arc<RegionTable>,
    mappings: Mutex<BTreeMap<u64, AnonymousMapping>>,
}

impl ManagedBuffers {
    /// No buffers yet; they will be registered in `table`.
    pub fn new(table: Arc<RegionTable>) -> ManagedBuffers {
        ManagedBuffers { table, mappings: Mutex::default() }
    }

    /// Allocates `len` zeroed bytes, page-aligned, and registers exactly them. 0 is legal and gives one byte.
    ///
    /// # Errors
    /// See [`AllocateError`].
    pub fn allocate(&self, len: u64) -> Result<(u64, MemoryRange), AllocateError> {
        self.allocate_with(len, RegionOptions::default())
    }

    /// As [`ManagedBuffers::allocate`], with options for the region.
    ///
    /// # Errors
    /// See [`AllocateError`].
    pub fn allocate_with(
        &self,
        len: u64,
        options: RegionOptions,
    ) -> Result<(u64, MemoryRange), AllocateError> {
        let len = len.max(1);
        let no_memory = |source| AllocateError::Memory { len, source };
        let size = usize::try_from(len).map_err(|_| no_memory(io::ErrorKind::OutOfMemory.into()))?;
        let mapping = AnonymousMapping::new(size).map_err(no_memory)?;
        let addr = mapping.addr();
        // SAFETY: the mapping is at least `len` bytes long, is never lent as a Rust reference, and is unmapped only
        // after the region has been unregistered.
        let range = unsafe { MemoryRange::assume_valid(addr, len)? };
        self.table.register(range, options)?;
        self.mappings.lock().insert(addr, mapping);
        Ok((addr, range))
    }

    /// Unregisters the buffer at `addr`, waits until nothing holds it, and gives its memory back to the system. A
    /// buffer whose region its user has unregistered already is freed all the same.
    ///
    /// # Errors
    /// See [`FreeError`].
    pub fn free(&self, addr: u64, patience: Duration) -> Result<(), FreeError> {
        // Out of the map while this thread waits, so that nobody frees it twice; the lock is not held meanwhile.
        let mapping = self.mappings.lock().remove(&addr).ok_or(FreeError::NotAllocated { addr })?;
        match self.table.unregister(addr, patience) {
            Ok(()) | Err(UnregisterError::NotRegistered { .. }) => Ok(()),
            Err(busy) => {
                self.mappings.lock().insert(addr, mapping);
                Err(FreeError::Busy(busy))
            }
        }
    }

    /// Whether a managed buffer starts at `addr`.
    pub fn contains(&self, addr: u64) -> bool {
        self.mappings.lock().contains_key(&addr)
    }

    /// The number of buffers.
    pub fn len(&self) -> usize {
        self.mappings.lock().len()
    }

    /// Whether there is no buffer.
    pub fn is_empty(&self) -> bool {
        self.mappings.lock().is_empty()
    }

    /// The bytes mapped: whole pages.
    pub fn mapped_bytes(&self) -> u64 {
        self.mappings.lock().values().map(|mapping| mapping.len() as u64).sum()
    }
}

impl Drop for ManagedBuffers {
    fn drop(&mut self) {
        for (addr, mapping) in std::mem::take(self.mappings.get_mut()) {
            if let Err(UnregisterError::Busy { .. }) = self.table.unregister(addr, Duration::ZERO) {
                // A transfer still uses it: leaking is safe, unmapping is not.
                std::mem::forget(mapping);
            }
        }
    }
}

/// Why a buffer was not allocated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// The system has no such amount of memory or address space.
    #[error("cannot allocate {len} bytes: {source}")]
    Memory {
        /// The length asked for, in bytes.
        len: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The length cannot be a range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The table refused the new region.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// Why a buffer was not freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// No managed buffer starts at the address.
    #[error("no managed buffer starts at {addr:#x}")]
    NotAllocated {
        /// The address given.
        addr: u64,
    },
    /// Transfers still hold it. It stays allocated; free it again later.
    #[error("the managed buffer was not freed: {0}")]
    Busy(UnregisterError),
}
