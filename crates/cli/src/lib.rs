//! The `moonrail` command: everything from the arguments to the exit code.
//!
//! Owns the command line, what is printed, and the demo. Each command is a file of its own.
//! Must not know: anything below the engine's public API.

mod bench;
mod capabilities;
mod completions;
mod demo;
mod doctor;
mod endpoint;
mod explain;
mod failure;
mod metadata_server;
mod output;
mod ping;
mod reference;
mod serve;
mod signals;
mod size;
mod top;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tracing_subscriber::filter::LevelFilter;

use crate::failure::Failure;
use crate::output::Output;

/// Moves registered memory between processes and hosts.
#[derive(Debug, Parser)]
#[command(name = "moonrail", version, about, max_term_width = 110, propagate_version = false)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Be a target: one buffer that peers may read and write, until Ctrl-C
    Serve(serve::Args),
    /// Measure transfers, with the workload options of Mooncake's transfer_engine_bench
    Bench(bench::Args),
    /// Ask a peer, Moonrail or Mooncake, whether it is alive and what it offers
    Ping(ping::Args),
    /// Run a metadata server for engines that are not peer-to-peer, Mooncake's too
    MetadataServer(metadata_server::Args),
    /// Say what an error means and what mends it: a code, a message, or every known message of a log
    Explain(explain::Args),
    /// Write the error reference as a static site
    Reference(reference::Args),
    /// Print what this build can do on this machine
    Capabilities(capabilities::Args),
    /// Find what will go wrong before anything is started: on this host, or between engines that run
    Doctor(doctor::Args),
    /// Watch engines: what they move, how fast, and what failed
    Top(top::Args),
    /// Move the KV cache of real requests between two processes and compare every byte
    Demo(demo::Args),
    /// Print the completion script of a shell
    Completions(completions::Args),
    /// One of the demo's two processes
    #[command(hide = true)]
    DemoWorker,
}

impl Command {
    /// Takes a signal as the end of its work, not as its death.
    fn stops_tidily(&self) -> bool {
        match self {
            Command::Serve(_) | Command::MetadataServer(_) => true,
            Command::Bench(args) => args.is_target(),
            Command::Top(args) => args.is_live(),
            _ => false,
        }
    }
}

/// Runs the command line `args` (the program's name first) and returns its exit code. Output goes to this process's
/// standard output and error; what stays empty on errors is the former.
///
/// Codes: 0 success, 1 the operation failed or the doctor found a problem, 2 wrong usage, 3 the peer cannot be reached,
/// 141 nobody reads the output.
#[must_use]
pub fn run(args: Vec<OsString>) -> i32 {
    let program = demo::Program::of(args.first());
    let command = match Cli::try_parse_from(args) {
        Ok(cli) => cli.command,
        Err(error) => return refuse(&error),
    };
    log_warnings();
    let outcome = dispatch(command, &program, &mut Output::stdout());
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            failure.report(&mut io::stderr().lock());
            failure.exit_code()
        }
    }
}

fn dispatch(command: Command, program: &demo::Program, out: &mut Output) -> Result<i32, Failure> {
    if !command.stops_tidily() {
        signals::end_on_interrupt();
    }
    let done = match command {
        Command::Doctor(args) => return doctor::run(&args, out),
        Command::Top(args) => return top::run(&args, out),
        Command::Capabilities(args) => capabilities::run(&args, out),
        Command::Serve(args) => serve::run(&args, out),
        Command::Bench(args) => bench::run(&args, out),
        Command::Ping(args) => ping::run(&args, out),
        Command::MetadataServer(args) => metadata_server::run(&args, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Reference(args) => reference::run(&args, out),
        Command::Demo(args) => demo::run(&args, program, out),
        Command::Completions(args) => completions::run(&args, out),
        Command::DemoWorker => demo::run_worker(),
    };
    done.map(|()| 0)
}

/// Help and version, which are no errors, or what is wrong with the arguments.
fn refuse(error: &clap::Error) -> i32 {
    let wanted = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if wanted {
        // Nobody left to read the help is nothing to report either.
        let _ = error.print();
        return 0;
    }
    let rendered = error.render();
    let text = if io::stderr().is_terminal() { rendered.ansi().to_string() } else { rendered.to_string() };
    let text = text.strip_prefix("error: ").map_or(text.clone(), |rest| format!("moonrail: {rest}"));
    let _ = write!(io::stderr().lock(), "{text}");
    failure::USAGE
}

/// What the engine warns about goes to standard error, a line each.
fn log_warnings() {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false)
        .finish();
    // Where the process has a subscriber already, that one gets the warnings.
    let _ = tracing_subscriber::util::SubscriberInitExt::try_init(subscriber);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_are_code_2_and_help_is_0() {
        let run = |args: &[&str]| run(args.iter().map(Into::into).collect());
        assert_eq!(run(&["moonrail"]), 2);
        assert_eq!(run(&["moonrail", "nosuch"]), 2);
        assert_eq!(run(&["moonrail", "serve", "--size", "12 parsecs"]), 2);
        assert_eq!(run(&["moonrail", "bench", "--threads", "0", "--segment-id", "x:1"]), 2);
        assert_eq!(run(&["moonrail", "--version"]), 0);
        assert_eq!(run(&["moonrail", "bench", "--help"]), 0);
    }
}
