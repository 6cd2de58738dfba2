//! The models whose KV cache is moved, and the shape of their pages.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Tokens of a prompt that one id of the trace stands for.
pub(super) const BLOCK_TOKENS: u32 = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(super) enum Model {
    /// Llama 3 8B on one device: 32 layers, 8 KV heads of 128, bf16, pages of 16 tokens
    #[value(name = "llama3-8b")]
    Llama3_8b,
    /// One of eight ranks of Llama 3 70B: 80 layers, 1 KV head of 128, bf16, pages of 16 tokens
    #[value(name = "llama3-70b-tp8")]
    Llama3_70bTp8,
    /// DeepSeek-V3, MLA: 61 layers, 576 values a token, bf16, pages of 64 tokens
    #[value(name = "deepseek-v3")]
    DeepseekV3,
}

impl Model {
    pub(super) fn title(self) -> &'static str {
        match self {
            Model::Llama3_8b => "Llama-3-8B",
            Model::Llama3_70bTp8 => "Llama-3-70B (one rank of TP8)",
            Model::DeepseekV3 => "DeepSeek-V3",
        }
    }

    /// Tokens a page.
    pub(super) fn page_tokens(self) -> u32 {
        match self {
            Model::Llama3_8b | Model::Llama3_70bTp8 => 16,
            Model::DeepseekV3 => 64,
        }
    }

    fn layers(self) -> u32 {
        match self {
            Model::Llama3_8b => 32,
            Model::Llama3_70bTp8 => 80,
            Model::DeepseekV3 => 61,
        }
    }

    /// K and V apart, or MLA's one latent.
    fn buffers_per_layer(self) -> u32 {
        match self {
            Model::Llama3_8b | Model::Llama3_70bTp8 => 2,
            Model::DeepseekV3 => 1,
        }
    }

    /// Bytes of one token in one buffer.
    fn token_bytes(self) -> u64 {
        const BF16: u64 = 2;
        match self {
            Model::Llama3_8b => 8 * 128 * BF16,
            Model::Llama3_70bTp8 => 128 * BF16,
            Model::DeepseekV3 => 576 * BF16,
        }
    }
}

/// A model's KV cache in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) model: Model,
    /// Tokens moved for each block of the trace.
    pub(super) tokens_per_block: u32,
    /// Buffers of a pool: K and V of each layer.
    pub(super) buffers: u32,
    /// Bytes of a page in one buffer.
    pub(super) page_bytes: u64,
    pub(super) pages_per_block: u32,
}

impl Shape {
    pub(super) fn new(model: Model, tokens_per_block: u32) -> Result<Self, String> {
        let page = model.page_tokens();
        if tokens_per_block == 0 || tokens_per_block > BLOCK_TOKENS || !tokens_per_block.is_multiple_of(page)
        {
            return Err(format!(
                "--tokens-per-block {tokens_per_block}: must be a multiple of {page}, {}'s page, and at most {BLOCK_TOKENS}",
                model.title()
            ));
        }
        Ok(Self {
            model,
            tokens_per_block,
            buffers: model.layers() * model.buffers_per_layer(),
            page_bytes: model.token_bytes() * u64::from(page),
            pages_per_block: tokens_per_block / page,
        })
    }

    /// Bytes of one page number in all buffers together.
    pub(super) fn page_bytes_in_all(&self) -> u64 {
        self.page_bytes * u64::from(self.buffers)
    }

    /// Bytes of one block of the trace in all buffers together.
    pub(super) fn block_bytes(&self) -> u64 {
        self.page_bytes_in_all() * u64::from(self.pages_per_block)
    }

    /// `layer 3 V`, for people.
    pub(super) fn buffer_name(&self, buffer: u32) -> String {
        match self.model.buffers_per_layer() {
            1 => format!("layer {buffer}"),
            _ => format!("layer {} {}", buffer / 2, if buffer.is_multiple_of(2) { "K" } else { "V" }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_of_the_models() {
        let llama = Shape::new(Model::Llama3_8b, 64).unwrap();
        assert_eq!((llama.buffers, llama.page_bytes, llama.pages_per_block), (64, 32 << 10, 4));
        assert_eq!(llama.block_bytes(), 8 << 20);
        let rank = Shape::new(Model::Llama3_70bTp8, 16).unwrap();
        assert_eq!((rank.buffers, rank.page_bytes), (160, 4 << 10));
        let mla = Shape::new(Model::DeepseekV3, 512).unwrap();
        assert_eq!((mla.buffers, mla.page_bytes, mla.pages_per_block), (61, 73_728, 8));
        assert_eq!(llama.buffer_name(7), "layer 3 V");
        assert_eq!(mla.buffer_name(60), "layer 60");
    }

    #[test]
    fn blocks_are_whole_pages() {
        for (model, tokens) in
            [(Model::Llama3_8b, 0), (Model::Llama3_8b, 40), (Model::DeepseekV3, 16), (Model::Llama3_8b, 528)]
        {
            assert!(Shape::new(model, tokens).is_err(), "{model:?} {tokens}");
        }
    }
}
