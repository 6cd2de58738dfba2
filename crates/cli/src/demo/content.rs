//! What KV pages hold: bytes that follow from the block, the buffer and the page, and from nothing else.
//!
//! Both processes can make them, so the receiving one knows what must have arrived. Made at memory speed: a fixed table
//! of random words, each xored with a key of the page; a page in the wrong place differs in every word.

/// More words than any page has.
const WORDS: usize = 16 << 10;

pub(super) struct Content {
    table: Vec<u64>,
}

/// Which page: the block's id in the trace, the buffer of the pool, the page within the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageId {
    pub(super) block: u64,
    pub(super) buffer: u32,
    pub(super) page: u32,
}

impl Content {
    pub(super) fn new() -> Self {
        Self { table: (0..WORDS as u64).map(|word| mix(word ^ 0x6d6f_6f6e_7261_696c)).collect() }
    }

    /// Fills `page` with the bytes of page `id`. The length is a multiple of 8, at most 128 KiB.
    pub(super) fn fill(&self, id: PageId, page: &mut [u8]) {
        let key = mix(mix(id.block) ^ (u64::from(id.buffer) << 32 | u64::from(id.page)));
        for (bytes, word) in page.chunks_exact_mut(8).zip(&self.table) {
            bytes.copy_from_slice(&(word ^ key).to_le_bytes());
        }
    }
}

/// The finalizer of SplitMix64: a bijection that spreads every bit.
pub(super) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn pages_differ_and_repeat() {
        let content = Content::new();
        let page = |block, buffer, page| {
            let mut bytes = vec![0; 4096];
            content.fill(PageId { block, buffer, page }, &mut bytes);
            bytes
        };
        let mut seen = HashSet::new();
        for block in [0, 1, 255, u64::MAX] {
            for buffer in 0..4 {
                for number in 0..4 {
                    assert!(seen.insert(page(block, buffer, number)));
                }
            }
        }
        assert_eq!(page(7, 3, 1), page(7, 3, 1));
    }

    #[test]
    fn the_table_is_longer_than_every_page() {
        use crate::demo::model::{Model, Shape};
        use clap::ValueEnum;
        for model in Model::value_variants() {
            let bytes = Shape::new(*model, 64).map_or(0, |shape| shape.page_bytes);
            assert!(bytes > 0 && bytes.is_multiple_of(8) && bytes <= 8 * WORDS as u64, "{model:?}");
        }
    }
}
