//! `cargo xtask demo`.

use crate::process;
use crate::workspace::Workspace;

const TRACE: &str = "data/conversation_trace.jsonl";

/// Builds the command in release mode and becomes it.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    let trace = workspace.require(TRACE)?;
    let mut cargo = process::cargo(workspace);
    cargo.args(["run", "--release", "--locked", "--package", "moonrail-cli", "--bin", "moonrail", "--"]);
    cargo.args(["demo", "--trace"]).arg(trace).args(args);
    process::replace_with(&mut cargo)
}
