//! `cargo xtask faults`, `cargo xtask hostile` and `cargo xtask soak`: the programs of tests/faults.

use crate::process;
use crate::workspace::Workspace;

/// Seeds of a CI run, by what the bytes travel over.
pub(crate) const CI_SEEDS: [(&str, &str); 3] =
    [("clear", "0..1000"), ("tls", "1000..1200"), ("checksum", "1200..1400")];

/// Runs `moonrail-faults` with these arguments. Not in release mode: overflow checks and assertions belong to it.
pub(crate) fn run(workspace: &Workspace, command: &str, args: &[String]) -> Result<(), String> {
    workspace.require("tests/faults/Cargo.toml")?;
    let mut cargo = process::cargo(workspace);
    cargo.args(["run", "--locked", "--quiet", "--package", "moonrail-faults", "--", command]);
    process::run(cargo.args(args))
}
