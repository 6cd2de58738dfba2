//! Starting this same program again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How this program is started.
#[derive(Debug)]
pub(crate) struct Program {
    executable: PathBuf,
    before: Vec<OsString>,
}

impl Program {
    /// The running executable. Where that is a Python interpreter, whose script `args0` is, it is the interpreter with
    /// the `moonrail` module.
    pub(crate) fn of(args0: Option<&OsString>) -> Self {
        let named = || args0.map_or_else(|| PathBuf::from("moonrail"), PathBuf::from);
        let executable = std::env::current_exe().unwrap_or_else(|_| named());
        let before = if is_python(&executable) { vec!["-m".into(), "moonrail".into()] } else { Vec::new() };
        Self { executable, before }
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(&self.before);
        command
    }
}

fn is_python(executable: &Path) -> bool {
    executable.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_told_from_the_command() {
        assert!(is_python(Path::new("/usr/bin/python3.12")));
        assert!(!is_python(Path::new("/usr/local/bin/moonrail")));
    }
}
