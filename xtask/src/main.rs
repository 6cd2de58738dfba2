//! Every development command: `cargo xtask --help`.
//!
//! Each module owns one command or one thing that several commands need. Nothing here is part of the product, and
//! nothing in the product may depend on it.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a command's output is its purpose

mod bench;
#[cfg(test)]
mod book;
mod cargo_tools;
mod demo;
mod faults;
mod fuzz;
mod generate;
mod instructions;
mod interop;
mod process;
mod screenshots;
mod system;
mod test;
mod venv;
mod wheel;
mod workspace;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Moonrail's development commands", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build `moonrail` and run its demo over the real request trace in data/
    Demo {
        /// Passed to `moonrail demo` as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<String>,
    },
    /// Run every check (or the steps named) and print a summary; non-zero exit if one failed
    Test {
        /// Only formatting, lints, the Rust tests and the Python lints
        #[arg(long, conflicts_with = "steps")]
        fast: bool,
        /// Steps to run, in the usual order (default: all)
        #[arg(value_name = "STEP", value_parser = clap::builder::PossibleValuesParser::new(test::step_names()))]
        steps: Vec<String>,
    },
    /// Build both Python wheels: moonrail (abi3) and moonrail-mooncake, the drop-in
    Wheel {
        /// The folder to put them in
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Measure against the machine's ceilings and other engines (benches/compare.py); `bench parts`: the Criterion benches
    Bench {
        /// Run all that benches/gate.txt has bounds for, and fail where one is not met
        #[arg(long)]
        gate: bool,
        /// Write the figures and plots of docs/performance/ anew
        #[arg(long)]
        plots: bool,
        /// Passed to benches/compare.py as they are; after `parts`, to `cargo bench`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<String>,
    },
    /// Run the fuzz targets, each for a while
    Fuzz {
        /// Seconds to spend on each target
        #[arg(long, default_value_t = 30)]
        seconds: u32,
        /// Targets to run (default: all)
        #[arg(value_name = "TARGET")]
        targets: Vec<String>,
    },
    /// Run the fault suite: seeded schedules over real processes that are killed, stopped, cut off and starved
    Faults {
        /// --seeds FROM..TO, --seed N, --times N, --sets N, --messages, --show; `--help` explains them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<String>,
    },
    /// Throw hostile messages at the live ports of a process, while honest clients use it
    Hostile {
        /// --messages N, --threads N, --seed N; `--help` explains them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<String>,
    },
    /// Run many peers for a long time while some die and return every second
    Soak {
        /// --minutes N, --peers N, --deaths N; `--help` explains them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<String>,
    },
    /// Write the codes and tables that are made from the error reference (crates/reference/records)
    Generate {
        /// Write nothing; fail where a file is not current
        #[arg(long)]
        check: bool,
    },
    /// Take the pictures of docs/status-page.md anew
    Screenshots,
    /// Run Moonrail against genuine Mooncake releases, both ways (tests/interop/run.py)
    Interop {
        /// A release to test, for example 0.3.13.post1; may be repeated (default: those run.py lists)
        #[arg(long, value_name = "VERSION")]
        release: Vec<String>,
        /// Passed to run.py as they are
        #[arg(last = true, value_name = "ARGS")]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let workspace = Workspace::find();
    let result = match command {
        Command::Demo { args } => demo::run(&workspace, &args),
        Command::Test { fast, steps } => test::run(&workspace, fast, &steps),
        Command::Wheel { out } => wheel::build(&workspace, &out).map(|built| {
            for wheel in built.paths() {
                println!("{}", wheel.display());
            }
        }),
        Command::Bench { gate, plots, args } => bench::run(&workspace, gate, plots, &args),
        Command::Fuzz { seconds, targets } => fuzz::run(&workspace, seconds, &targets),
        Command::Faults { args } => faults::run(&workspace, "run", &args),
        Command::Soak { args } => faults::run(&workspace, "soak", &args),
        Command::Hostile { args } => faults::run(&workspace, "hostile", &args),
        Command::Generate { check } => generate::run(&workspace, check),
        Command::Screenshots => screenshots::run(&workspace),
        Command::Interop { release, args } => interop::run(&workspace, &release, &args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
