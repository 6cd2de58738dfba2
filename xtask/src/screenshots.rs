//! `cargo xtask screenshots`: the pictures of the book, from the test that takes them on every run.

use crate::process;
use crate::system::{self, Missing};
use crate::wheel;
use crate::workspace::Workspace;

const FOLDER: &str = "docs/images";

pub(crate) fn run(workspace: &Workspace) -> Result<(), String> {
    system::chromium(workspace).map_err(Missing::into_message)?;
    let venv = wheel::install(workspace)?;
    let mut pytest = venv.command(workspace, "pytest");
    pytest.args([
        "--config-file=pyproject.toml",
        "--rootdir=.",
        "--timeout=120",
        "tests/page/test_screenshots.py",
    ]);
    process::run(pytest.args(["--screenshots", FOLDER]))
}
