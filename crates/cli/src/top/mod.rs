//! `moonrail top`: what engines do right now.
//!
//! Owns the view of engines' reports. Asking (`fetch`), what is known (`model`), what of it is wanted (`choice`) and drawing
//! (`view`) know nothing of each other; `live` and `once` put them together.

mod choice;
mod columns;
mod endpoint;
mod fetch;
mod live;
mod model;
mod once;
mod report;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use choice::{Choice, Sort};
use endpoint::Endpoint;

use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Engines to look at: http://host:port of what they were told with MOONRAIL_METRICS or --metrics
    #[arg(value_name = "URL", required_unless_present = "metadata")]
    engines: Vec<Endpoint>,
    /// Metadata server, http://host:port/metadata: the engines are those of its segments that announce where they can be
    /// asked [Moonrail's server only]
    #[arg(long, alias = "metadata-server", value_name = "URL")]
    metadata: Option<String>,
    /// Seconds between two looks
    #[arg(long, short = 'i', default_value = "1", value_parser = interval)]
    interval: Duration,
    /// What transfers are ordered by
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// Only transfers whose engine, peer, path or op has this in its name
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Print one plain table instead
    #[arg(long)]
    once: bool,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Whether it takes the terminal, and gives it back after a signal.
    pub(crate) fn is_live(&self) -> bool {
        !self.once && !self.json
    }

    fn choice(&self) -> Choice {
        Choice { sort: self.sort, reversed: false, filter: self.filter.clone() }
    }
}

/// The exit code: 0, or for one look 3 if an engine cannot be reached.
pub(crate) fn run(args: &Args, out: &mut Output) -> Result<i32, Failure> {
    if !args.is_live() {
        return once::run(args, out);
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let what = "top draws on a terminal, and standard input or output is none";
        return Err(Failure::usage(what).fix("give --once for one plain table, or --json"));
    }
    live::run(args).map(|()| 0)
}

/// Whether colours are wanted (<https://no-color.org>).
fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = crate::ping::seconds(text)?;
    if interval < Duration::from_millis(100) || interval > Duration::from_secs(3600) {
        return Err("must be from 0.1 to 3600 seconds".to_owned());
    }
    Ok(interval)
}
