//! `cargo xtask bench`.

use crate::process;
use crate::system;
use crate::wheel;
use crate::workspace::Workspace;

const PACKAGE: &str = "moonrail-benches";
const FIGURES: &str = "docs/performance";

/// Installs what is to be measured as it would be shipped, and becomes the comparison.
pub(crate) fn run(workspace: &Workspace, gate: bool, plots: bool, args: &[String]) -> Result<(), String> {
    if let Some((_, rest)) = args.split_first().filter(|(first, _)| *first == "parts") {
        return parts(workspace, rest);
    }
    let script = workspace.require("benches/compare.py")?;
    system::genuine_libraries(workspace).map_err(system::Missing::into_message)?;
    let venv = wheel::install(workspace)?;
    let mut rows = process::cargo(workspace);
    process::run(rows.args(["build", "--release", "--locked", "--package", PACKAGE, "--bin", "rust-rows"]))?;
    let mut compare = venv.command(workspace, "python");
    compare.env("MOONRAIL_RUST_ROWS", workspace.target().join("release/rust-rows"));
    compare.arg(script).args(gate.then_some("--gate"));
    if plots {
        compare.arg("--out").arg(workspace.path(FIGURES));
    }
    process::replace_with(compare.args(args))
}

/// The Criterion benches.
fn parts(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    let mut bench = process::cargo(workspace);
    process::replace_with(bench.args(["bench", "--locked", "--package", PACKAGE, "--"]).args(args))
}
