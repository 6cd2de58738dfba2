//! One end of a transfer under test: registered memory whose bytes can be set and looked at safely.

use std::sync::Arc;
use std::time::Duration;

use moonrail_memory::{Hold, ManagedBuffers, MemoryRange, RegionTable, Want};

/// A region table with managed buffers in it. Each buffer is surrounded by what the caller leaves as guard.
pub struct Side {
    /// The table that a server serves, or a call holds from.
    pub regions: Arc<RegionTable>,
    managed: ManagedBuffers,
}

impl Default for Side {
    fn default() -> Self {
        Self::new()
    }
}

impl Side {
    /// A side without memory.
    #[must_use]
    pub fn new() -> Self {
        let regions = Arc::new(RegionTable::new());
        Self { managed: ManagedBuffers::new(Arc::clone(&regions)), regions }
    }

    /// A side whose memory no other process can map.
    #[must_use]
    pub fn private() -> Self {
        let regions = Arc::new(RegionTable::new());
        Self { managed: ManagedBuffers::private(Arc::clone(&regions)), regions }
    }

    /// Registers a new buffer holding `bytes`; returns its address.
    ///
    /// # Panics
    /// When the machine has no memory for it.
    #[must_use]
    pub fn buffer(&self, bytes: &[u8]) -> u64 {
        let (addr, _) = self.managed.allocate(bytes.len() as u64).expect("memory for a test buffer");
        self.set(addr, bytes);
        addr
    }

    /// Stores `bytes` at `addr`.
    ///
    /// # Panics
    /// When the range is not registered.
    pub fn set(&self, addr: u64, bytes: &[u8]) {
        let hold = self.regions.hold(addr, bytes.len() as u64, Want::Write).expect("a registered range");
        hold.copy_in(addr, bytes).expect("mapped memory");
    }

    /// The `len` bytes at `addr`.
    ///
    /// # Panics
    /// When the range is not registered.
    #[must_use]
    pub fn get(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let hold = self.regions.hold(addr, len as u64, Want::Read).expect("a registered range");
        hold.copy_out(addr, &mut bytes).expect("mapped memory");
        bytes
    }

    /// Unregisters and frees the buffer at `addr`.
    ///
    /// # Panics
    /// When transfers still hold it after 10 s.
    pub fn free(&self, addr: u64) {
        self.managed.free(addr, Duration::from_secs(10)).expect("a buffer no transfer holds");
    }

    /// A registered buffer of `len` zero bytes that a test may unregister and register again by itself.
    ///
    /// # Panics
    /// When the machine has no memory for it.
    #[must_use]
    pub fn range(&self, len: u64) -> MemoryRange {
        self.managed.allocate(len).expect("memory for a test buffer").1
    }

    /// Stores bytes into a range of this side, registered or not.
    ///
    /// # Panics
    /// When the range is no longer mapped.
    pub fn poke(range: MemoryRange, bytes: &[u8]) {
        Hold::unlisted(range, Want::Write).copy_in(range.addr(), bytes).expect("mapped memory");
    }

    /// The bytes of a range of this side, registered or not.
    ///
    /// # Panics
    /// When the range is no longer mapped.
    #[must_use]
    pub fn peek(range: MemoryRange) -> Vec<u8> {
        let mut bytes = vec![0; range.len() as usize];
        Hold::unlisted(range, Want::Read).copy_out(range.addr(), &mut bytes).expect("mapped memory");
        bytes
    }
}
