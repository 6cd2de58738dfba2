//! Where the pages of a pool lie: one buffer for K and one for V of each layer, a page at its number in each.

/// The buffers of one side's pool.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    starts: Vec<u64>,
    page_bytes: u64,
}

impl Layout {
    pub(super) fn new(starts: Vec<u64>, page_bytes: u64) -> Self {
        Self { starts, page_bytes }
    }

    pub(super) fn buffers(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// The address of a page in one buffer; the caller keeps to the pool's size.
    pub(super) fn address(&self, buffer: u32, page: u32) -> u64 {
        self.starts[buffer as usize] + self.page_bytes * u64::from(page)
    }
}
