//! Memory as a serving stack registers it: one buffer for the keys and one for the values of each layer, in pages.

use moonrail_memory::{MemoryRange, RegionOptions};
use moonrail_transport::testkit::Side;

/// Keys and values of 80 layers.
pub const BUFFERS: u64 = 160;
/// Pages of a buffer.
pub const PAGES: u64 = 256;
/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Buffers of address space whose pages are never touched.
pub struct Pages {
    whole: MemoryRange,
    buffer_len: u64,
    _memory: Side,
}

impl Pages {
    /// The buffers of a KV cache.
    #[must_use]
    pub fn kv_cache() -> Self {
        Self::new(BUFFERS, PAGES * PAGE)
    }

    /// `buffers` of `buffer_len` bytes, one behind the other.
    #[must_use]
    pub fn new(buffers: u64, buffer_len: u64) -> Self {
        let memory = Side::new();
        Self { whole: memory.range(buffers * buffer_len), buffer_len, _memory: memory }
    }

    /// Each buffer as it is registered.
    #[must_use]
    pub fn regions(&self) -> Vec<(MemoryRange, RegionOptions)> {
        let buffers = self.whole.len() / self.buffer_len;
        (0..buffers)
            .filter_map(|at| self.whole.part(at * self.buffer_len, self.buffer_len))
            .map(|range| (range, RegionOptions::default()))
            .collect()
    }

    /// The address of page `index` of a batch of `count` pages, which goes through the buffers one after the other and
    /// takes pages that are scattered in each.
    #[must_use]
    pub fn page(&self, index: u64, count: u64) -> u64 {
        let buffer = index * BUFFERS / count.max(BUFFERS);
        self.whole.addr() + buffer * self.buffer_len + index * 97 % PAGES * PAGE
    }
}
