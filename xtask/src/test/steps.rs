//! The steps of `cargo xtask test`, in their order. DEVELOPERS.md lists them for people.

use super::{Context, Outcome, Step};
use crate::cargo_tools;
use crate::faults;
use crate::instructions::{self, NotCounted};
use crate::process;
use crate::system;
use crate::venv::Venv;
use std::process::Command;

pub(super) const STEPS: &[Step] = &[
    Step { name: "fmt", fast: true, run: fmt },
    Step { name: "clippy", fast: true, run: clippy },
    Step { name: "features", fast: false, run: features },
    Step { name: "doc", fast: false, run: doc },
    Step { name: "deny", fast: false, run: deny },
    Step { name: "advisories", fast: false, run: advisories },
    Step { name: "rust", fast: true, run: rust },
    Step { name: "doctest", fast: false, run: doctest },
    Step { name: "faults", fast: false, run: faults },
    Step { name: "ruff", fast: true, run: ruff },
    Step { name: "mypy", fast: true, run: mypy },
    Step { name: "wheels", fast: false, run: wheels },
    Step { name: "instructions", fast: false, run: instructions },
    Step { name: "python", fast: false, run: |context| pytest(context, "python/moonrail/tests") },
    Step { name: "consumers", fast: false, run: |context| pytest(context, "tests/consumers") },
    Step { name: "recipes", fast: false, run: |context| pytest(context, "tests/recipes") },
    Step { name: "recipes-tcp", fast: false, run: recipes_over_tcp },
    Step { name: "page", fast: false, run: page },
    Step { name: "interop", fast: false, run: interop },
];

/// The bindings are an extension module: without a Python that loads them they have nothing to link their symbols to,
/// so they are linted and documented here and tested through the wheel.
const WITHOUT_BINDINGS: [&str; 5] =
    ["--workspace", "--exclude=moonrail-python", "--locked", "--features", "moonrail/otlp,moonrail-cli/otlp"];

/// The whole workspace. Here and above with every feature that users may turn on, so that the steps share one build of
/// the dependencies; without them the code is linted by `features` and tested through the wheels.
const WORKSPACE: [&str; 4] =
    ["--workspace", "--locked", "--features", "moonrail/otlp,moonrail-cli/otlp,moonrail-python/otlp"];

/// What ruff and mypy look at.
const PYTHON_FOLDERS: [&str; 3] = ["python", "tests", "benches"];

/// Seconds that one Python test may take.
const TEST_TIMEOUT: &str = "--timeout=120";

/// Python tests at a time: most of them wait for deadlines most of the time, so more than the cores have room.
const TEST_WORKERS: &str = "--numprocesses=4";

/// How long the advisory database may take to arrive.
const FETCH_SECONDS: &str = "60";

type StepResult = Result<Outcome, String>;

fn fmt(context: &Context<'_>) -> StepResult {
    let check =
        |rest: &[&str]| process::run(process::cargo(context.workspace).args(["fmt", "--check"]).args(rest));
    let workspace = check(&["--all"]);
    // The fuzz targets are a workspace of their own.
    let fuzz = context.workspace.require("fuzz/Cargo.toml").and(check(&["--manifest-path=fuzz/Cargo.toml"]));
    workspace.and(fuzz).map(|()| Outcome::Passed)
}

fn clippy(context: &Context<'_>) -> StepResult {
    let mut cargo = process::cargo(context.workspace);
    pass(cargo.arg("clippy").args(WORKSPACE).args(["--all-targets", "--", "-D", "warnings"]))
}

/// What users build who ask for no feature.
fn features(context: &Context<'_>) -> StepResult {
    let mut cargo = process::cargo(context.workspace);
    cargo.args(["clippy", "--locked", "-p", "moonrail", "-p", "moonrail-cli", "-p", "moonrail-python"]);
    pass(cargo.args(["--", "-D", "warnings"]))
}

fn doc(context: &Context<'_>) -> StepResult {
    let mut cargo = process::cargo(context.workspace);
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    pass(cargo.arg("doc").args(WORKSPACE).arg("--no-deps"))
}

fn deny(context: &Context<'_>) -> StepResult {
    pass(cargo_deny(context)?.args(["check", "bans", "licenses", "sources"]))
}

/// The database is not in a package registry, so a machine that reaches only those cannot have it.
fn advisories(context: &Context<'_>) -> StepResult {
    let tool = cargo_deny(context)?;
    let mut fetch = process::command(context.workspace, "timeout");
    fetch.arg(FETCH_SECONDS).arg(tool.get_program()).args(["--color", "never", "fetch", "db"]);
    if let Err(why) = process::read(&mut fetch) {
        return Ok(Outcome::Skipped(format!("the advisory database cannot be fetched: {why}")));
    }
    pass(cargo_deny(context)?.args(["check", "--disable-fetch", "advisories"]))
}

fn cargo_deny(context: &Context<'_>) -> Result<Command, String> {
    let folder = cargo_tools::DENY.folder(context.workspace)?;
    Ok(process::command(context.workspace, folder.join("cargo-deny")))
}

fn rust(context: &Context<'_>) -> StepResult {
    let mut cargo = process::cargo(context.workspace);
    if process::is_installed("cargo-nextest") {
        pass(cargo.args(["nextest", "run"]).args(WITHOUT_BINDINGS))
    } else {
        pass(cargo.args(["test", "--no-fail-fast", "--all-targets"]).args(WITHOUT_BINDINGS))
    }
}

fn doctest(context: &Context<'_>) -> StepResult {
    pass(process::cargo(context.workspace).args(["test", "--doc"]).args(WITHOUT_BINDINGS))
}

fn faults(context: &Context<'_>) -> StepResult {
    for (over, seeds) in faults::CI_SEEDS {
        let args = ["--over", over, "--seeds", seeds].map(str::to_owned);
        faults::run(context.workspace, "run", &args)?;
    }
    faults::run(context.workspace, "hostile", &[]).map(|()| Outcome::Passed)
}

fn ruff(context: &Context<'_>) -> StepResult {
    require_python_folders(context)?;
    let tools = Venv::tools(context.workspace)?;
    let ruff = |args: &[&str]| {
        let mut command = tools.command(context.workspace, "ruff");
        process::run(command.args(args).args(PYTHON_FOLDERS))
    };
    // Both, so that one run shows all there is to mend.
    let (check, format) = (ruff(&["check"]), ruff(&["format", "--check"]));
    check.and(format).map(|()| Outcome::Passed)
}

fn mypy(context: &Context<'_>) -> StepResult {
    require_python_folders(context)?;
    let tools = Venv::tools(context.workspace)?;
    pass(tools.command(context.workspace, "mypy").args(PYTHON_FOLDERS))
}

fn require_python_folders(context: &Context<'_>) -> Result<(), String> {
    PYTHON_FOLDERS.iter().try_for_each(|folder| context.workspace.require(folder).map(drop))
}

fn wheels(context: &Context<'_>) -> StepResult {
    context.installed().map(|_| Outcome::Passed)
}

fn instructions(context: &Context<'_>) -> StepResult {
    match instructions::check(context.workspace) {
        Ok(()) => Ok(Outcome::Passed),
        Err(NotCounted::Skipped(why)) => Ok(Outcome::Skipped(why)),
        Err(NotCounted::Failed(why)) => Err(why),
    }
}

fn interop(context: &Context<'_>) -> StepResult {
    match system::genuine_libraries(context.workspace) {
        Ok(()) => {
            // One at a time: the pairs of one test are already spread over the cores.
            pass(&mut pytest_command(context, "tests/interop")?).and_then(|_| metadata_interop(context))
        }
        Err(system::Missing::NeedsRoot(why)) => Ok(Outcome::Skipped(why)),
        Err(system::Missing::Failed(why)) => Err(why),
    }
}

/// The metadata crate against the genuine release that the step before has installed.
fn metadata_interop(context: &Context<'_>) -> StepResult {
    let python = context.workspace.require(".cache/interop/0.3.13.post1/bin/python")?;
    let mut command = process::cargo(context.workspace);
    // Of the whole workspace, so that what the step `rust` has built is used.
    command.arg("test").args(WITHOUT_BINDINGS).args(["--test", "genuine", "--"]);
    pass(command.args(["--ignored", "--skip", "an_old_"]).env("MOONRAIL_GENUINE_PYTHON", python))
}

/// One at a time: the browser and the engines that it looks at want the cores for themselves.
fn page(context: &Context<'_>) -> StepResult {
    match system::chromium(context.workspace) {
        Ok(()) => pass(&mut pytest_command(context, "tests/page")?),
        Err(system::Missing::NeedsRoot(why)) => Ok(Outcome::Skipped(why)),
        Err(system::Missing::Failed(why)) => Err(why),
    }
}

fn pytest(context: &Context<'_>, folder: &str) -> StepResult {
    pass(pytest_command(context, folder)?.arg(TEST_WORKERS))
}

/// On one machine the recipes take the same-host path; a network is what most users have.
fn recipes_over_tcp(context: &Context<'_>) -> StepResult {
    pass(pytest_command(context, "tests/recipes")?.arg(TEST_WORKERS).env("RECIPES_PATHS", "tcp"))
}

fn pytest_command(context: &Context<'_>, folder: &str) -> Result<Command, String> {
    context.workspace.require(folder)?;
    let venv = context.installed()?;
    let mut command = venv.command(context.workspace, "pytest");
    command.env("PYTHONFAULTHANDLER", "1").args(["--config-file=pyproject.toml", "--rootdir=."]);
    command.args([TEST_TIMEOUT, folder]);
    Ok(command)
}

fn pass(command: &mut Command) -> StepResult {
    process::run(command).map(|()| Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn the_list_for_people_names_every_step_in_order_and_marks_the_fast_ones() {
        let path = Workspace::find().require("DEVELOPERS.md").expect("the file is in the checkout");
        let text = std::fs::read_to_string(path).expect("the file is text");
        let listed: Vec<(&str, bool)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
            .filter(|(name, _)| !name.contains(' '))
            .map(|(name, rest)| (name, rest.starts_with(" yes |")))
            .collect();
        let steps: Vec<(&str, bool)> = STEPS.iter().map(|step| (step.name, step.fast)).collect();
        assert_eq!(listed, steps);
    }

    #[test]
    fn every_folder_of_whole_system_tests_has_a_step() {
        let folder = Workspace::find().require("tests").expect("the folder is in the checkout");
        for entry in std::fs::read_dir(folder).expect("it is a folder") {
            let path = entry.expect("it can be listed").path();
            let name = path.file_name().expect("entries have names").to_string_lossy().into_owned();
            let Ok(files) = std::fs::read_dir(&path) else { continue };
            let has_tests =
                files.flatten().any(|file| file.file_name().to_string_lossy().starts_with("test_"));
            assert!(!has_tests || STEPS.iter().any(|step| step.name == name), "tests/{name} has no step");
        }
    }
}
