//! One piece of the engine's own work, to be run under `valgrind --tool=callgrind --toggle-collect='*counted_here*'`:
//! `instructions CASE`. Prints how many units the piece has. `cargo xtask test instructions` runs it.
#![allow(clippy::print_stdout, clippy::print_stderr)] // what it prints is read by xtask

use std::hint::black_box;
use std::process::ExitCode;

use moonrail::Error;
use moonrail_benches::{OverNothing, Pages};

const BUFFERS: u64 = 10_000;

fn main() -> ExitCode {
    let case = std::env::args().nth(1).unwrap_or_default();
    let done = match case.as_str() {
        "batch" => transfer(4096),
        "call" => transfer(1),
        "register" => register(),
        _ => {
            eprintln!("usage: instructions batch|call|register");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(units) => {
            println!("{units}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A call with `count` descriptors, when all that is fetched or made once is there.
fn transfer(count: u64) -> Result<u64, Error> {
    let over = OverNothing::start()?;
    let request = over.request(count);
    for _ in 0..3 {
        over.engine.transfer(&request)?;
    }
    counted_here(|| over.engine.transfer(black_box(&request)))?;
    Ok(count)
}

/// Registering many buffers in one call, and unregistering them.
fn register() -> Result<u64, Error> {
    let over = OverNothing::start()?;
    let pages = Pages::new(BUFFERS, 4096);
    let regions = pages.regions();
    let starts: Vec<u64> = regions.iter().map(|(range, _)| range.addr()).collect();
    counted_here(|| {
        over.engine.register_batch(regions)?;
        over.engine.unregister_batch(&starts)
    })?;
    Ok(BUFFERS)
}

/// What is counted: valgrind is told by the name.
#[inline(never)]
fn counted_here(work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    work()
}
