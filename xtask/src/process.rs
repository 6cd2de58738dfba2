//! Running other programs: shown before they run, their failure told in one line.

use crate::workspace::Workspace;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A command that runs in the checkout's root, with nothing of the developer's own Python settings in the way.
pub(crate) fn command(workspace: &Workspace, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(workspace.root())
        .env_remove("PYTHONPATH")
        .env_remove("PYTHONHOME")
        .stdin(Stdio::null());
    command
}

/// cargo, the one that runs us.
pub(crate) fn cargo(workspace: &Workspace) -> Command {
    command(workspace, std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs it with its output on ours.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    eprintln!("$ {}", show(command));
    let status = command.status().map_err(|e| cannot_run(command, &e))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", name(command))) }
}

/// Runs it and gives what it printed; what it complained of is in the error.
pub(crate) fn read(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| cannot_run(command, &e))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let last = complaint.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(format!("{}: {}: {}", name(command), output.status, last.trim()))
}

/// Becomes that program, so that it has the terminal, the signals and the exit status for itself.
pub(crate) fn replace_with(command: &mut Command) -> Result<(), String> {
    eprintln!("$ {}", show(command));
    let error = command.stdin(Stdio::inherit()).exec();
    Err(cannot_run(command, &error))
}

/// Whether a program of that name is on the path.
pub(crate) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn name(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned()
}

fn cannot_run(command: &Command, error: &std::io::Error) -> String {
    format!("cannot run {}: {error}", command.get_program().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_command_can_be_pasted_into_a_shell() {
        let mut command = Command::new("echo");
        command.args(["a b", "it's", "", "--x=1"]);
        let shell = read(Command::new("sh").arg("-c").arg(show(&command))).expect("sh is there");
        assert_eq!(shell, "a b it's  --x=1");
    }

    #[test]
    fn a_failure_names_the_program_and_its_last_words() {
        let error = read(Command::new("/bin/sh").args(["-c", "echo first >&2; echo last >&2; exit 3"]));
        let error = error.expect_err("it exits with 3");
        assert!(error.starts_with("sh: ") && error.contains('3') && error.ends_with("last"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = read(&mut Command::new("/no/such/program")).expect_err("it is not there");
        assert!(error.contains("/no/such/program"), "{error}");
    }
}
