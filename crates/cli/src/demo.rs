//! `moonrail demo`: the KV cache of real requests, pushed from a prefill to a decode process on this machine.
//!
//! Three processes, as in serving: this one routes requests; `prefill` makes the KV pages of a request's prompt and
//! writes those that decode lacks into decode's pool; `decode` owns the pages they arrive in and compares every byte.
//! They are separate processes of the same program and speak JSON lines with this one; pages move through the engine.

mod content;
mod decode;
mod digest;
mod layout;
mod memory;
mod messages;
mod model;
mod pool;
mod prefill;
mod program;
mod report;
mod router;
mod runs;
mod sizing;
mod trace;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

use crate::demo::messages::Setup;
use crate::demo::model::{Model, Shape};
use crate::failure::Failure;
use crate::output::Output;
use crate::size;

pub(crate) use crate::demo::program::Program;
pub(crate) use crate::demo::worker::run as run_worker;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Request trace, JSON lines; without it data/conversation_trace.jsonl, or the copy in this program
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Whose KV cache the pages are shaped like
    #[arg(long, value_enum, default_value_t = Model::Llama3_8b)]
    model: Model,
    /// Requests to replay, from the first on
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// Start no request after so many seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Tokens that stand for each 512-token block of the trace: a multiple of the model's page, at most 512. Without
    /// it as many, up to 64, as let the longest prompt fit
    #[arg(long, value_name = "TOKENS")]
    tokens_per_block: Option<u32>,
    /// Memory of each of the two pools; without it 1.5 GiB, or a quarter of the free memory where that is less
    #[arg(long, value_parser = size::parse_positive)]
    pool_size: Option<u64>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// Spoil one byte of this request's pages on the prefill side, to see it found
    #[arg(long, hide = true, value_name = "REQUEST")]
    spoil: Option<u64>,
}

pub(crate) fn run(args: &Args, program: &Program, out: &mut Output) -> Result<(), Failure> {
    let slice = trace::load(args.trace.as_deref(), args.requests as usize)?;
    let longest = slice.requests.iter().map(|request| request.hash_ids.len()).max().unwrap_or(0);
    let pool_size = args.pool_size.unwrap_or_else(sizing::default_pool);
    let tokens = match args.tokens_per_block {
        Some(tokens) => tokens,
        None => sizing::tokens_that_fit(args.model, longest, pool_size)?,
    };
    let shape = Shape::new(args.model, tokens).map_err(Failure::usage)?;
    let pages = sizing::pages(&shape, longest, pool_size)?;
    let setup = Setup { model: args.model, tokens_per_block: tokens, pages, spoil: args.spoil };
    if !args.json {
        let title = args.model.title();
        out.line(format_args!("{title} KV cache of {} requests of {}", slice.requests.len(), slice.source))?;
        let asked_for = args.tokens_per_block.is_some();
        out.line(sizing::scale(&shape, asked_for, longest, pool_size))?;
    }
    let limit = Duration::from_secs(args.seconds);
    let outcome = router::replay(program, &setup, &slice.requests, limit, args.json)?;
    report::print(args.json, &slice, &shape, pages, &outcome, out)
}
