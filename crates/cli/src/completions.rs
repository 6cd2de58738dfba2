//! `moonrail completions`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    // Into memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "moonrail", &mut script);
    out.bytes(&script)
}
