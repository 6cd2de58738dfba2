//! `cargo xtask test`: runs the steps in order, all of them whatever fails, and closes with a table.

mod steps;

use crate::venv::Venv;
use crate::wheel;
use crate::workspace::Workspace;
use std::cell::OnceCell;
use std::time::{Duration, Instant};
use steps::STEPS;

/// One named check.
struct Step {
    name: &'static str,
    /// What `--fast` keeps.
    fast: bool,
    run: fn(&Context<'_>) -> Result<Outcome, String>,
}

enum Outcome {
    Passed,
    /// It cannot be done here, and that is no fault of the code; the text says why.
    Skipped(String),
}

/// What the steps share.
struct Context<'a> {
    workspace: &'a Workspace,
    installed: OnceCell<Result<Venv, String>>,
}

impl Context<'_> {
    /// The tests' environment with our wheels in it, built once a run.
    fn installed(&self) -> Result<&Venv, String> {
        let installed = self.installed.get_or_init(|| wheel::install(self.workspace));
        installed.as_ref().map_err(|e| format!("the wheels under test are not installed: {e}"))
    }
}

struct Finished {
    name: &'static str,
    result: Result<Outcome, String>,
    took: Duration,
}

pub(crate) fn step_names() -> impl Iterator<Item = &'static str> {
    STEPS.iter().map(|step| step.name)
}

/// Runs the steps named; without names the fast ones or all.
pub(crate) fn run(workspace: &Workspace, fast: bool, names: &[String]) -> Result<(), String> {
    let chosen = |step: &&Step| {
        if names.is_empty() { step.fast || !fast } else { names.iter().any(|name| name == step.name) }
    };
    let context = Context { workspace, installed: OnceCell::new() };
    let finished: Vec<Finished> = STEPS
        .iter()
        .filter(chosen)
        .map(|step| {
            eprintln!("\n=== {} ===", step.name);
            let start = Instant::now();
            let result = (step.run)(&context);
            if let Err(message) = &result {
                eprintln!("{} failed: {message}", step.name);
            }
            Finished { name: step.name, result, took: start.elapsed() }
        })
        .collect();
    summarize(&finished)
}

fn summarize(finished: &[Finished]) -> Result<(), String> {
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), 0);
    println!("\n=== summary ===");
    for step in finished {
        let (word, why) = match &step.result {
            Ok(Outcome::Passed) => {
                passed += 1;
                ("ok", "")
            }
            Ok(Outcome::Skipped(why)) => {
                skipped += 1;
                ("skipped", why.as_str())
            }
            Err(why) => {
                failed.push(step.name);
                ("FAILED", why.as_str())
            }
        };
        println!("{:<12} {word:<8} {:>7.1} s  {why}", step.name, step.took.as_secs_f64());
    }
    let total: Duration = finished.iter().map(|step| step.took).sum();
    println!("{:<12} {:<8} {:>7.1} s", "all steps", "", total.as_secs_f64());
    println!("steps: {passed} passed, {} failed, {skipped} skipped", failed.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}
