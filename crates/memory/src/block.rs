//! One piece of memory that other processes can map: a memfd, mapped here whole.
//!
//! Owns the memfd and its mapping, and the number that it is known by. It must not know what parts of it are used for, or
//! who maps it.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use moonrail_sys::memfd::{Memfd, Pages, SharedMapping};

/// Page size that offsets of blocks are counted in where they are published.
pub const BLOCK_PAGE: u64 = 4096;

const NAME: &CStr = c"moonrail-memory";

/// A memfd that this process made and has mapped. It stays mapped as long as anything refers to it: a region that lies in it
/// does, so the memory of such a region, while it is registered or held, can be read and written without asking the kernel.
pub struct SharedBlock {
    id: u32,
    memfd: Memfd,
    mapping: SharedMapping,
}

impl SharedBlock {
    /// Makes and maps `len` zeroed bytes. With `sealed`, other processes can map them to read only.
    ///
    /// # Errors
    /// Those of [`Memfd::create`] and [`SharedMapping::new`]; `Unsupported` when this process has used up all numbers.
    pub(crate) fn new(len: usize, pages: Pages, sealed: bool) -> io::Result<SharedBlock> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let mut memfd = Memfd::create(NAME, len, pages)?;
        let mapping = SharedMapping::new(&memfd)?;
        if sealed {
            memfd.seal_writes()?;
        }
        // A number that came round could name another block to a process that has mapped the first.
        let id = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1));
        let id = id.map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
        Ok(SharedBlock { id, memfd, mapping })
    }

    /// What it is known by: never 0, never reused in this process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// For handing to another process; its size is sealed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    /// The first address here.
    pub fn addr(&self) -> u64 {
        self.mapping.addr()
    }

    /// The length in bytes: whole pages.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    pub(crate) fn contains(&self, addr: u64, len: u64) -> bool {
        addr.checked_sub(self.addr()).is_some_and(|offset| self.mapping.at(offset, len).is_some())
    }

    /// Gives whole pages back to the system, wherever they are mapped.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memfd.discard(offset as usize, len as usize)
    }

    /// See [`SharedMapping::collapse`].
    pub(crate) fn collapse(&self) -> io::Result<()> {
        self.mapping.collapse()
    }
}

impl fmt::Debug for SharedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBlock {} ({} bytes at {:#x})", self.id, self.len(), self.addr())
    }
}

/// Where a region lies in a block.
#[derive(Debug, Clone)]
pub struct Backing {
    /// The block; this keeps it mapped.
    pub block: Arc<SharedBlock>,
    /// Bytes from its start to the region's.
    pub offset: u64,
}

impl PartialEq for Backing {
    fn eq(&self, other: &Backing) -> bool {
        (self.block.id, self.offset) == (other.block.id, other.offset)
    }
}

impl Eq for Backing {}
