//! Buffers that the engine allocates for its user.
//!
//! Owns their memory, from allocation to freeing, and their registration. It must not know what is stored in them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use moonrail_sys::host::total_memory;
use moonrail_sys::mapping::AnonymousMapping;
use moonrail_sys::memfd::{HUGE, Pages};
use moonrail_sys::process::ForkGuard;
use parking_lot::Mutex;

use crate::arena::{Arena, LARGEST, Run};
use crate::block::{BLOCK_PAGE, SharedBlock};
use crate::{Access, MemoryRange, RangeError, RegionOptions, RegionTable, RegisterError, UnregisterError};

/// Managed buffers, registered in one table: whole pages each, of memory that other processes of this host can map
/// ([`SharedBlock`]). Small ones share a block, large ones have one of their own. Where there is no such memory, they are
/// private pages; nothing else changes then. Any thread may call any method.
///
/// Dropping it frees every buffer; what a transfer still holds stays mapped until it lets go.
#[derive(Debug)]
pub struct ManagedBuffers {
    table: Arc<RegionTable>,
    store: Mutex<Store>,
    shared: bool,
    fork_guard: ForkGuard,
}

#[derive(Debug, Default)]
struct Store {
    buffers: BTreeMap<u64, Buffer>,
    /// By block number.
    arenas: BTreeMap<u32, Arena>,
    why_private: Option<String>,
}

#[derive(Debug)]
struct Buffer {
    range: MemoryRange,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    /// Part of an arena's block.
    Part { arena: u32, run: Run },
    /// A block of its own.
    Block(Arc<SharedBlock>),
    /// Pages that nobody else can map.
    Private(AnonymousMapping),
}

/// What came of asking for huge pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HugePages {
    /// Pages that the administrator has set aside. They are reserved.
    Hugetlb,
    /// Usual memory that the kernel has made huge pages of.
    Transparent,
    /// Usual pages, and why.
    Refused(String),
}

impl ManagedBuffers {
    /// No buffers yet; they will be registered in `table`.
    pub fn new(table: Arc<RegionTable>) -> ManagedBuffers {
        // Under strict accounting a page of a memfd is accounted for when it is touched, and is a SIGBUS if there is none
        // left; private pages are when they are mapped.
        let strict =
            std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2");
        let why =
            strict.then(|| "this system accounts for memory strictly (vm.overcommit_memory is 2)".to_owned());
        ManagedBuffers::of(table, why)
    }

    /// Buffers of private pages only, as where there are no memfds.
    pub fn private(table: Arc<RegionTable>) -> ManagedBuffers {
        ManagedBuffers::of(table, Some("it was asked for".to_owned()))
    }

    fn of(table: Arc<RegionTable>, why_private: Option<String>) -> ManagedBuffers {
        let shared = why_private.is_none();
        let store = Mutex::new(Store { why_private, ..Store::default() });
        ManagedBuffers { table, store, shared, fork_guard: ForkGuard::new() }
    }

    /// Allocates `len` zeroed bytes, page-aligned, and registers exactly them. 0 is legal and gives one byte.
    ///
    /// # Errors
    /// See [`AllocateError`].
    pub fn allocate(&self, len: u64) -> Result<(u64, MemoryRange), AllocateError> {
        self.allocate_with(len, RegionOptions::default())
    }

    /// As [`ManagedBuffers::allocate`], with options for the region. What may be read only lies in a block that other
    /// processes cannot map to write.
    ///
    /// # Errors
    /// See [`AllocateError`].
    pub fn allocate_with(
        &self,
        len: u64,
        options: RegionOptions,
    ) -> Result<(u64, MemoryRange), AllocateError> {
        let memory = |store: &mut Store, size| match options.access {
            Access::ReadWrite => store.take(size, self.shared, &self.table),
            Access::ReadOnly => store.take_block(size, true, self.shared),
        };
        let range = self.add(len, memory)?;
        self.register(range, options)
    }

    /// As [`ManagedBuffers::allocate_with`], of huge pages if they are to be had; all of the memory is taken at once then, and
    /// that takes time (about 3 ms for each MiB).
    ///
    /// # Errors
    /// See [`AllocateError`]. That there are no huge pages is none.
    pub fn allocate_huge(
        &self,
        len: u64,
        options: RegionOptions,
    ) -> Result<(MemoryRange, HugePages), AllocateError> {
        let mut outcome = HugePages::Refused("the memory is private".to_owned());
        let shared = self.shared;
        // Outside of the lock, as it takes so long.
        let block =
            if shared && fits(len) { Some(huge_block(len, options.access, &mut outcome)) } else { None };
        let range = self.add(len, |store, size| match block {
            Some(block) => store.or_private(block, size),
            None => store.take(size, shared, &self.table),
        })?;
        let (_, range) = self.register(range, options)?;
        Ok((range, outcome))
    }

    /// Takes memory for `len` bytes, and keeps it.
    fn add(
        &self,
        len: u64,
        take: impl FnOnce(&mut Store, u64) -> io::Result<Memory>,
    ) -> Result<MemoryRange, AllocateError> {
        let len = len.max(1);
        let no_memory = |source| AllocateError::Memory { len, source };
        if self.fork_guard.forked() {
            return Err(no_memory(io::Error::other(
                "this process was forked from the one that has the buffers",
            )));
        }
        if !fits(len) {
            return Err(no_memory(io::ErrorKind::OutOfMemory.into()));
        }
        let mut store = self.store.lock();
        let memory = take(&mut store, len).map_err(no_memory)?;
        let addr = match &memory {
            Memory::Part { arena, run } => store.arenas[arena].block.addr() + run.offset(),
            Memory::Block(block) => {
                self.table.adopt(block);
                block.addr()
            }
            Memory::Private(mapping) => mapping.addr(),
        };
        // SAFETY: the memory is at least `len` bytes long, is never lent as a Rust reference, and is unmapped only after the
        // region has been unregistered.
        let range = unsafe { MemoryRange::assume_valid(addr, len)? };
        store.buffers.insert(addr, Buffer { range, memory });
        Ok(range)
    }

    fn register(
        &self,
        range: MemoryRange,
        options: RegionOptions,
    ) -> Result<(u64, MemoryRange), AllocateError> {
        if let Err(error) = self.table.register(range, options) {
            let mut store = self.store.lock();
            if let Some(buffer) = store.buffers.remove(&range.addr()) {
                store.give_back(buffer, &self.table);
            }
            return Err(error.into());
        }
        Ok((range.addr(), range))
    }

    /// Ends every registration inside the buffer at `addr`, waits until nothing holds it, and gives its memory back to the
    /// system. A buffer whose region its user has unregistered already is freed all the same.
    ///
    /// # Errors
    /// See [`FreeError`].
    pub fn free(&self, addr: u64, patience: Duration) -> Result<(), FreeError> {
        if self.fork_guard.forked() {
            return Err(FreeError::NotAllocated { addr });
        }
        // Out of the map while this thread waits, so that nobody frees it twice; the lock is not held meanwhile.
        let buffer = self.store.lock().buffers.remove(&addr).ok_or(FreeError::NotAllocated { addr })?;
        let outcome = self.table.unregister_inside(buffer.range, patience);
        let mut store = self.store.lock();
        match outcome {
            Ok(()) => {
                store.give_back(buffer, &self.table);
                Ok(())
            }
            Err(busy) => {
                store.buffers.insert(addr, buffer);
                Err(FreeError::Busy(busy))
            }
        }
    }

    /// Whether a managed buffer starts at `addr`.
    pub fn contains(&self, addr: u64) -> bool {
        self.store.lock().buffers.contains_key(&addr)
    }

    /// The number of buffers.
    pub fn len(&self) -> usize {
        self.store.lock().buffers.len()
    }

    /// Whether there is no buffer.
    pub fn is_empty(&self) -> bool {
        self.store.lock().buffers.is_empty()
    }

    /// The bytes given out: whole pages.
    pub fn mapped_bytes(&self) -> u64 {
        let length = |buffer: &Buffer| match &buffer.memory {
            Memory::Part { run, .. } => run.len(),
            Memory::Block(block) => block.len(),
            Memory::Private(mapping) => mapping.len() as u64,
        };
        self.store.lock().buffers.values().map(length).sum()
    }

    /// Why some of the buffers, or all, are private pages that other processes cannot map; `None` if none is.
    pub fn why_private(&self) -> Option<String> {
        self.store.lock().why_private.clone()
    }
}

impl Drop for ManagedBuffers {
    fn drop(&mut self) {
        let mut store = std::mem::take(self.store.get_mut());
        if self.fork_guard.forked() {
            // The memory is the parent's too: nothing of it may be given back.
            std::mem::forget(store);
            return;
        }
        for buffer in std::mem::take(&mut store.buffers).into_values() {
            match self.table.unregister_inside(buffer.range, Duration::ZERO) {
                Ok(()) => store.give_back(buffer, &self.table),
                // A transfer still uses it. Its region keeps a block mapped; private pages are leaked, which is safe.
                Err(_) => {
                    if let Memory::Private(mapping) = buffer.memory {
                        std::mem::forget(mapping);
                    }
                }
            }
        }
        store.arenas.values().for_each(|arena| self.table.disown(&arena.block));
    }
}

impl Store {
    /// Memory for a buffer of `len` bytes.
    fn take(&mut self, len: u64, shared: bool, table: &RegionTable) -> io::Result<Memory> {
        if !shared || len > LARGEST {
            return self.take_block(len, false, shared);
        }
        for (&arena, pages) in &mut self.arenas {
            if let Some(run) = pages.take(len) {
                return Ok(Memory::Part { arena, run });
            }
        }
        match Arena::new() {
            Ok(mut pages) => {
                let arena = pages.block.id();
                let run = pages.take(len).expect("invariant: the largest part fits into an empty arena");
                table.adopt(&pages.block);
                self.arenas.insert(arena, pages);
                Ok(Memory::Part { arena, run })
            }
            // A limit on address space or file sizes may have room for this much.
            Err(_) => self.take_block(len, false, shared),
        }
    }

    fn take_block(&mut self, len: u64, sealed: bool, shared: bool) -> io::Result<Memory> {
        let size = len.next_multiple_of(BLOCK_PAGE) as usize;
        if !shared {
            return AnonymousMapping::new(size).map(Memory::Private);
        }
        let block = SharedBlock::new(size, Pages::Usual, sealed);
        self.or_private(block, len)
    }

    fn or_private(&mut self, block: io::Result<SharedBlock>, len: u64) -> io::Result<Memory> {
        match block {
            Ok(block) => Ok(Memory::Block(Arc::new(block))),
            Err(error) => {
                let memory = AnonymousMapping::new(len as usize).map(Memory::Private)?;
                self.why_private.get_or_insert_with(|| format!("no memfd could be made and mapped: {error}"));
                Ok(memory)
            }
        }
    }

    /// Takes the memory of a buffer back that nothing uses any more.
    fn give_back(&mut self, buffer: Buffer, table: &RegionTable) {
        match buffer.memory {
            Memory::Part { arena, run } => {
                let Some(pages) = self.arenas.get_mut(&arena) else { return };
                pages.give_back(run);
                if pages.is_empty()
                    && let Some(pages) = self.arenas.remove(&arena)
                {
                    table.disown(&pages.block);
                }
            }
            Memory::Block(block) => {
                // Others have it mapped until they look at the table again. (Sealed memory cannot be discarded.)
                let _ = block.discard(0, block.len());
                table.disown(&block);
            }
            Memory::Private(mapping) => drop(mapping),
        }
    }
}

/// A block of huge pages, or of usual ones if there are none.
fn huge_block(len: u64, access: Access, outcome: &mut HugePages) -> io::Result<SharedBlock> {
    let (size, sealed) = (len.next_multiple_of(HUGE as u64) as usize, access == Access::ReadOnly);
    let none_reserved = match SharedBlock::new(size, Pages::Hugetlb, sealed) {
        Ok(block) => {
            *outcome = HugePages::Hugetlb;
            return Ok(block);
        }
        Err(error) => error,
    };
    let block = SharedBlock::new(size, Pages::Usual, sealed)?;
    *outcome = match block.collapse() {
        Ok(()) => HugePages::Transparent,
        Err(error) => {
            let _ = block.discard(0, block.len());
            HugePages::Refused(format!(
                "none could be had of those set aside ({none_reserved}), and the kernel made none: {error}"
            ))
        }
    };
    Ok(block)
}

/// Whether the machine could ever have so much memory: a memfd is not asked that, private pages are.
fn fits(len: u64) -> bool {
    len <= total_memory()
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
