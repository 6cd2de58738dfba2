//! The demo's result, as a table or as JSON.

use std::time::Duration;

use serde_json::json;

use crate::demo::model::{BLOCK_TOKENS, Shape};
use crate::demo::router::Outcome;
use crate::demo::trace::Slice;
use crate::failure::Failure;
use crate::output::{Facts, Output, human_time};
use crate::size;

pub(super) fn print(
    as_json: bool,
    slice: &Slice,
    shape: &Shape,
    pages: u32,
    outcome: &Outcome,
    out: &mut Output,
) -> Result<(), Failure> {
    let rates = Rates::of(outcome);
    if as_json {
        out.json(&json(slice, shape, pages, outcome, &rates))
    } else {
        table(shape, pages, outcome, &rates, out)
    }
}

/// Decimal GB a second.
struct Rates {
    transfer: f64,
    whole: f64,
    /// Share of the prompts' blocks that decode had.
    reuse: f64,
}

impl Rates {
    fn of(outcome: &Outcome) -> Self {
        let rate = |time: Duration| {
            if time.is_zero() { 0.0 } else { outcome.moved.bytes as f64 / 1e9 / time.as_secs_f64() }
        };
        Self {
            transfer: rate(Duration::from_nanos(outcome.moved.nanos)),
            whole: rate(outcome.wall),
            reuse: outcome.reused as f64 / (outcome.blocks as f64).max(1.0),
        }
    }
}

fn table(
    shape: &Shape,
    pages: u32,
    outcome: &Outcome,
    rates: &Rates,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut facts = Facts::new();
    let limit = if outcome.cut_short { ", then --seconds were over" } else { "" };
    facts.add("requests", format_args!("{}{limit}, as fast as they go", outcome.requests));
    facts.add(
        "pages",
        format_args!(
            "{} tokens x {} buffers of {}; two pools of {pages} pages, {} each",
            shape.model.page_tokens(),
            shape.buffers,
            size::human(shape.page_bytes),
            size::human(u64::from(pages) * shape.page_bytes_in_all())
        ),
    );
    facts.add(
        "blocks",
        format_args!(
            "{}, of which decode had {} ({:.1} % reused)",
            outcome.blocks,
            outcome.reused,
            100.0 * rates.reuse
        ),
    );
    let entry = outcome.moved.bytes.checked_div(outcome.moved.entries).unwrap_or(0);
    facts.add(
        "written",
        format_args!(
            "{} in {} batches of {} entries, {} an entry",
            size::human(outcome.moved.bytes),
            outcome.moved.batches,
            outcome.moved.entries.checked_div(outcome.moved.batches).unwrap_or(0),
            size::human(entry)
        ),
    );
    facts.add(
        "transfer only",
        format_args!(
            "{:.2} GB/s in {}",
            rates.transfer,
            human_time(Duration::from_nanos(outcome.moved.nanos))
        ),
    );
    facts.add(
        "end to end",
        format_args!(
            "{:.2} GB/s in {}: making, moving and comparing the pages",
            rates.whole,
            human_time(outcome.wall)
        ),
    );
    let at = |histogram: &hdrhistogram::Histogram<u64>, quantile| {
        human_time(Duration::from_nanos(histogram.value_at_quantile(quantile)))
    };
    facts.add(
        "transfer a request",
        format_args!("p50 {}, p99 {}", at(&outcome.transfer, 0.5), at(&outcome.transfer, 0.99)),
    );
    facts.add(
        "request end to end",
        format_args!("p50 {}, p99 {}", at(&outcome.whole, 0.5), at(&outcome.whole, 0.99)),
    );
    facts.add(
        "compared",
        format_args!("{} in decode's pages by BLAKE3, no difference", size::human(outcome.compared)),
    );
    facts.print(out)?;
    out.line("verified")
}

fn json(slice: &Slice, shape: &Shape, pages: u32, outcome: &Outcome, rates: &Rates) -> serde_json::Value {
    let millis = |histogram: &hdrhistogram::Histogram<u64>| {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        json!({ "p50": at(0.5), "p99": at(0.99), "max": histogram.max() as f64 / 1e6 })
    };
    json!({
        "trace": slice.source,
        "model": shape.model.title(),
        "requests": outcome.requests,
        "cut_short": outcome.cut_short,
        "trace_block_tokens": BLOCK_TOKENS,
        "tokens_per_block": shape.tokens_per_block,
        "page_tokens": shape.model.page_tokens(),
        "page_bytes": shape.page_bytes,
        "buffers": shape.buffers,
        "pool_pages": pages,
        "pool_bytes": u64::from(pages) * shape.page_bytes_in_all(),
        "blocks": outcome.blocks,
        "blocks_reused": outcome.reused,
        "reuse_rate": rates.reuse,
        "bytes": outcome.moved.bytes,
        "entries": outcome.moved.entries,
        "batches": outcome.moved.batches,
        "transfer_seconds": outcome.moved.nanos as f64 / 1e9,
        "transfer_gb_per_second": rates.transfer,
        "seconds": outcome.wall.as_secs_f64(),
        "end_to_end_gb_per_second": rates.whole,
        "transfer_ms": millis(&outcome.transfer),
        "request_ms": millis(&outcome.whole),
        "bytes_compared": outcome.compared,
        "verified": true,
    })
}
