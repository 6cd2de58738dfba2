//! `cargo xtask fuzz`.

use crate::cargo_tools;
use crate::process;
use crate::workspace::Workspace;
use std::process::Command;

/// Runs the named targets (all without names), each for `seconds`; the first finding ends the run.
pub(crate) fn run(workspace: &Workspace, seconds: u32, targets: &[String]) -> Result<(), String> {
    workspace.require("fuzz/Cargo.toml")?;
    let folder = cargo_tools::FUZZ.folder(workspace)?;
    let nightly = has_nightly(workspace);
    let fuzz = |args: &[&str]| {
        let mut command = process::command(workspace, folder.join("cargo-fuzz"));
        command.arg("fuzz").args(args);
        if nightly {
            command.env("RUSTUP_TOOLCHAIN", "nightly");
            // Set by the cargo that runs us, for its own toolchain.
            command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTDOC");
        } else {
            // The sanitizer and coverage switches are there in the stable compiler too, behind this variable.
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        command
    };
    let known = process::read(&mut fuzz(&["list"]))?;
    let known: Vec<&str> = known.lines().collect();
    if let Some(unknown) = targets.iter().find(|target| !known.contains(&target.as_str())) {
        return Err(format!("there is no fuzz target {unknown}; there are: {}", known.join(", ")));
    }
    let chosen: Vec<&str> =
        if targets.is_empty() { known } else { targets.iter().map(String::as_str).collect() };
    for target in &chosen {
        // libFuzzer adds what it finds to the first folder, and only reads the second.
        let corpus = workspace.cache(&format!("fuzz/{target}"))?;
        std::fs::create_dir_all(&corpus).map_err(|e| format!("cannot make {}: {e}", corpus.display()))?;
        let seeds = workspace.require(&format!("fuzz/seeds/{target}"))?;
        let mut run = fuzz(&["run", target]);
        run.arg(corpus).arg(seeds).arg("--").arg(format!("-max_total_time={seconds}"));
        process::run(run.args(["-rss_limit_mb=2048", "-print_final_stats=1"]))
            .map_err(|e| format!("fuzz target {target}: {e}"))?;
    }
    println!("fuzz: {} targets, {seconds} s each, nothing found", chosen.len());
    Ok(())
}

fn has_nightly(workspace: &Workspace) -> bool {
    let mut rustup: Command = process::command(workspace, "rustup");
    process::read(rustup.args(["run", "nightly", "rustc", "--version"])).is_ok()
}
