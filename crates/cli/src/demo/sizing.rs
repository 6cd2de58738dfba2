//! How large the pools are, and how many tokens of the trace are moved so that they suffice.

use std::fs;

use crate::demo::model::{BLOCK_TOKENS, Model, Shape};
use crate::failure::Failure;
use crate::size;

/// A pool on each side, where there is memory for it.
const USUAL_POOL: u64 = 3 << 29;
const USUAL_TOKENS: u32 = 64;

/// 1.5 GiB, or a quarter of what is free: there are two pools, and others want memory too.
pub(super) fn default_pool() -> u64 {
    let free = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    free.map_or(USUAL_POOL, |free| (free / 4).min(USUAL_POOL))
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The most tokens a block, up to the usual, with which the longest prompt fits the pool.
pub(super) fn tokens_that_fit(model: Model, longest: usize, pool: u64) -> Result<u32, Failure> {
    let page = model.page_tokens();
    let shapes = (1..=USUAL_TOKENS / page).rev().filter_map(|pages| Shape::new(model, pages * page).ok());
    let mut fitting = shapes.filter(|shape| shape.block_bytes().saturating_mul(longest as u64) <= pool);
    fitting.next().map(|shape| shape.tokens_per_block).ok_or_else(|| {
        let least = Shape::new(model, page).map_or(0, |shape| shape.block_bytes() * longest as u64);
        too_large(longest, least, pool)
    })
}

/// The pages of a pool of `pool` bytes.
pub(super) fn pages(shape: &Shape, longest: usize, pool: u64) -> Result<u32, Failure> {
    let needed = shape.block_bytes().saturating_mul(longest as u64);
    if needed > pool {
        return Err(too_large(longest, needed, pool));
    }
    u32::try_from(pool / shape.page_bytes_in_all())
        .map_err(|_| Failure::usage("--pool-size: more than 2^32 pages").fix("give less"))
}

/// What part of the prompts is moved, and why not all of it.
pub(super) fn scale(shape: &Shape, asked_for: bool, longest: usize, pool: u64) -> String {
    let tokens = shape.tokens_per_block;
    let reason = if tokens == BLOCK_TOKENS {
        return "every token of the prompts is moved".to_owned();
    } else if asked_for {
        "as --tokens-per-block says".to_owned()
    } else if tokens < USUAL_TOKENS {
        format!("so that the longest prompt, {longest} blocks, fits a pool of {}", size::human(pool))
    } else {
        format!("so that pools of {} hold many prompts and the run is short", size::human(pool))
    };
    format!("scaled: {tokens} of every {BLOCK_TOKENS} tokens are moved, {reason}")
}

fn too_large(longest: usize, needed: u64, pool: u64) -> Failure {
    let what = format!(
        "the longest prompt of the slice, {longest} blocks, needs {} of KV pages, and a pool has {}",
        size::human(needed),
        size::human(pool)
    );
    Failure::usage(what).fix("give a larger --pool-size, fewer --tokens-per-block or fewer --requests")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn tokens_shrink_until_the_longest_prompt_fits() {
        let block = |tokens| Shape::new(Model::Llama3_8b, tokens).unwrap().block_bytes();
        assert_eq!(tokens_that_fit(Model::Llama3_8b, 10, 1 << 30).unwrap(), 64);
        assert_eq!(tokens_that_fit(Model::Llama3_8b, 10, block(32) * 10).unwrap(), 32);
        assert_eq!(tokens_that_fit(Model::Llama3_8b, 10, block(16) * 10).unwrap(), 16);
        assert_eq!(tokens_that_fit(Model::Llama3_8b, 10, block(16) * 10 - 1).unwrap_err().exit_code(), 2);
        let shape = Shape::new(Model::Llama3_8b, 64).unwrap();
        assert_eq!(pages(&shape, 10, 80 << 20).unwrap(), 40);
        assert!(pages(&shape, 11, 80 << 20).is_err());
    }

    #[test]
    fn free_memory_is_read_from_the_kernels_table() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   24 kB\n"), Some(24 * 1024));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
        assert_eq!(available("MemAvailable: lots\n"), None);
    }
}
