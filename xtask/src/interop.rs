//! `cargo xtask interop`.

use crate::process;
use crate::system;
use crate::wheel;
use crate::workspace::Workspace;

/// Installs our wheels and what genuine ones link to, and becomes the interoperability run.
pub(crate) fn run(workspace: &Workspace, releases: &[String], args: &[String]) -> Result<(), String> {
    let script = workspace.require("tests/interop/run.py")?;
    system::genuine_libraries(workspace).map_err(system::Missing::into_message)?;
    let venv = wheel::install(workspace)?;
    let mut interop = venv.command(workspace, "python");
    interop.arg(script);
    for release in releases {
        interop.args(["--release", release]);
    }
    process::replace_with(interop.args(args))
}
