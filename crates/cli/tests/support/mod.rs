//! Running the built command.

#![allow(clippy::unwrap_used, dead_code)]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// The command, away from the repository's files and from the developer's settings.
pub(crate) fn moonrail(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moonrail"));
    command.args(args).current_dir(std::env::temp_dir());
    for name in [
        "MC_TCP_BIND_ADDRESS",
        "MC_METADATA_CLUSTER_ID",
        "MOONRAIL_METRICS",
        "MOONRAIL_ALLOW",
        "MOONRAIL_KEY",
        "MOONRAIL_KEY_FILE",
        "MOONRAIL_LISTEN",
        "MOONRAIL_STRICT",
    ] {
        command.env_remove(name);
    }
    // A target counts what comes over sockets; the same-host path passes it by.
    command.env("MOONRAIL_PATHS", "tcp");
    command
}

/// Runs it to its end.
pub(crate) fn finish(args: &[&str]) -> Output {
    moonrail(args).output().unwrap()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn json(output: &Output) -> Value {
    assert_eq!(code(output), 0, "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A port that nobody listens on.
pub(crate) fn dead_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &process.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// A command that runs until it is stopped.
pub(crate) struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Running {
        let mut child = moonrail(args).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn json_line(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
