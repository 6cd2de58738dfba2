//! `cargo xtask bench`.

use crate::process;
use crate::wheel;
use crate::workspace::Workspace;

/// Installs what is to be measured as it would be shipped, and becomes the comparison.
pub(crate) fn run(workspace: &Workspace, gate: bool, args: &[String]) -> Result<(), String> {
    let script = workspace.require("benches/compare.py")?;
    let venv = wheel::install(workspace)?;
    let mut compare = venv.command(workspace, "python");
    compare.arg(script).args(gate.then_some("--gate")).args(args);
    process::replace_with(&mut compare)
}
