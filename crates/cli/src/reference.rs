//! `moonrail reference`.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write it into a folder: index.html, a page for each record, and the JSON of /api/errors
    Export {
        /// The folder; made where it is not there
        dir: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let Action::Export { dir, json } = &args.action;
    let files = moonrail_reference::export(dir).map_err(|error| {
        Failure::failed(format!("cannot write to {}: {error}", dir.display()))
            .fix("give a folder that you may write")
    })?;
    if *json {
        return out.json(&json!({ "folder": dir, "files": files }));
    }
    out.line(format_args!("{files} files in {}; open index.html", dir.display()))
}
