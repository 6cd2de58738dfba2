//! Python environments under `.cache/`, each made from pinned requirement files and kept until those change.

use crate::process;
use crate::system;
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest Python that the abi3 wheel supports.
const OLDEST: (u32, u32) = (3, 10);

/// One environment.
pub(crate) struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// Where maturin, ruff and mypy are.
    pub(crate) fn tools(workspace: &Workspace) -> Result<Self, String> {
        Self::ready(
            workspace,
            "venv-tools",
            &["python/requirements/tools.txt", "python/requirements/test.txt"],
        )
    }

    /// Where the tests run. The wheels under test are installed on top (see the `wheel` module).
    pub(crate) fn tests(workspace: &Workspace) -> Result<Self, String> {
        Self::ready(workspace, "venv", &["python/requirements/test.txt"])
    }

    /// The environment `.cache/NAME` with the first of `requirements` installed; the others are files that it includes.
    /// Nothing is run but the interpreter's version when it is already as it should be.
    pub(crate) fn ready(workspace: &Workspace, name: &str, requirements: &[&str]) -> Result<Self, String> {
        let folder = workspace.cache(name)?;
        let venv = Self { folder };
        let stamp = venv.folder.join("moonrail-stamp");
        let wanted = venv.wanted(workspace, requirements)?;
        if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(venv);
        }
        venv.create(workspace)?;
        let first = requirements.first().expect("invariant: an environment has a requirements file");
        let mut pip = venv.pip(workspace);
        process::run(pip.args(["install", "--quiet", "--prefer-binary", "-r", first]))?;
        std::fs::write(&stamp, wanted).map_err(|e| format!("cannot write {}: {e}", stamp.display()))?;
        Ok(venv)
    }

    /// A program installed in the environment.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// A command of the environment, with its programs first on the path.
    pub(crate) fn command(&self, workspace: &Workspace, name: &str) -> Command {
        let mut command = process::command(workspace, self.program(name));
        let mut path = vec![self.folder.join("bin")];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let path =
            std::env::join_paths(path).expect("invariant: PATH was made of folders that can be joined");
        command.env("PATH", path).env("VIRTUAL_ENV", &self.folder);
        command
    }

    pub(crate) fn pip(&self, workspace: &Workspace) -> Command {
        let mut command = self.command(workspace, "python");
        command.args(["-m", "pip", "--disable-pip-version-check", "--no-input"]);
        command
    }

    /// All that the environment is made from: another interpreter, place or pin makes another environment.
    fn wanted(&self, workspace: &Workspace, requirements: &[&str]) -> Result<String, String> {
        let ask = "import sys; print(sys.version_info[0], sys.version_info[1], sys.base_prefix, sys.version.split()[0])";
        let python = process::read(process::command(workspace, "python3").args(["-c", ask]))
            .map_err(|e| format!("Python {}.{} or newer is needed as `python3`: {e}", OLDEST.0, OLDEST.1))?;
        check_version(&python)?;
        let mut wanted = format!("{python}\n{}\n", self.folder.display());
        for file in requirements {
            let path = workspace.require(file)?;
            let text = std::fs::read_to_string(&path).map_err(|e| format!("cannot read {file}: {e}"))?;
            wanted.push_str(&text);
        }
        Ok(wanted)
    }

    fn create(&self, workspace: &Workspace) -> Result<(), String> {
        if make(workspace, &self.folder).is_ok() {
            return Ok(());
        }
        // Debian's Python comes without ensurepip until this package is there.
        let why = "python3 -m venv does not work without it";
        system::apt_install(workspace, &["python3-venv"], why).map_err(system::Missing::into_message)?;
        make(workspace, &self.folder)
    }
}

fn make(workspace: &Workspace, folder: &Path) -> Result<(), String> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|e| format!("cannot remove {}: {e}", folder.display()))?;
    }
    process::run(process::command(workspace, "python3").args(["-m", "venv"]).arg(folder))
}

fn check_version(python: &str) -> Result<(), String> {
    let mut numbers = python.split(' ').map_while(|word| word.parse::<u32>().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= OLDEST {
        return Ok(());
    }
    Err(format!("Python {}.{} or newer is needed; python3 is {}.{}", OLDEST.0, OLDEST.1, found.0, found.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(check_version("3 10 /usr 3.10.0").is_ok());
        assert!(check_version("3 14 /usr 3.14.1").is_ok());
        let error = check_version("3 9 /usr 3.9.18").expect_err("3.9 is older than 3.10");
        assert!(error.contains("3.10") && error.contains("3.9"), "{error}");
    }
}
