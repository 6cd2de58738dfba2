//! Hashes of KV pages, in logical order: block by block of the prompt, in a block buffer by buffer, page by page.

use serde::{Deserialize, Serialize};

/// BLAKE3 of one block's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockDigest([u8; 32]);

/// BLAKE3 of all of a request's block digests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RequestDigest(String);

/// A block being hashed.
pub(super) struct BlockHasher(blake3::Hasher);

impl BlockHasher {
    pub(super) fn new() -> Self {
        Self(blake3::Hasher::new())
    }

    pub(super) fn page(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(&self) -> BlockDigest {
        BlockDigest(*self.0.finalize().as_bytes())
    }
}

impl RequestDigest {
    pub(super) fn of(blocks: impl IntoIterator<Item = BlockDigest>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for block in blocks {
            hasher.update(&block.0);
        }
        Self(hasher.finalize().to_hex().to_string())
    }
}
