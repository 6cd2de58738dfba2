//! The two ends of a transfer: processes of this test program, which get their collector from the environment as users' do.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use moonrail::{Config, Engine, Entry, Opcode, Request};

/// What the target and the initiator allocate.
const SIZE: u64 = 32 << 20;

/// One call of the initiator: `write` or `read`, or a write `outside` of the target's memory.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) op: &'static str,
    pub(crate) entries: u64,
    pub(crate) len: u64,
    /// The caller's `traceparent`; empty for none.
    pub(crate) trace: String,
}

pub(crate) struct End {
    child: Child,
    output: BufReader<ChildStdout>,
    /// What it said first: for a target its session and the address of its memory.
    said: String,
}

impl End {
    pub(crate) fn target(collector: Option<String>, paths: &str) -> Self {
        Self::start("ends::target", "target", collector, paths, &[])
    }

    pub(crate) fn initiator(collector: Option<String>, paths: &str, target: &End, calls: &[Call]) -> Self {
        let calls: Vec<String> = calls
            .iter()
            .map(|Call { op, entries, len, trace }| format!("{op} {entries} {len} {trace}"))
            .collect();
        let environment = [("TEST_TARGET", target.said.clone()), ("TEST_CALLS", calls.join("\n"))];
        Self::start("ends::initiator", "initiator", collector, paths, &environment)
    }

    fn start(
        test: &str,
        service: &str,
        collector: Option<String>,
        paths: &str,
        environment: &[(&str, String)],
    ) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--ignored", "--nocapture"]);
        command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT").env_remove("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        command.envs(collector.map(|url| ("OTEL_EXPORTER_OTLP_ENDPOINT", url)));
        command.env("OTEL_SERVICE_NAME", service).env("MOONRAIL_PATHS", paths);
        command.envs(environment.iter().map(|(name, value)| (*name, value.as_str())));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let said = loop {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "{test} ended early");
            if let Some((_, said)) = line.split_once("SAYS ") {
                break said.trim_end().to_owned();
            }
        };
        Self { child, output, said }
    }

    /// Lets it end its engine, and waits for that.
    pub(crate) fn finish(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start() -> (Engine, u64) {
    let engine = Engine::start(Config::new("127.0.0.1", "P2PHANDSHAKE").with_environment().unwrap()).unwrap();
    let memory = engine.allocate(SIZE).unwrap();
    (engine, memory)
}

/// Says something, waits until nobody needs this process any more, and ends the engine.
fn serve(engine: &Engine, said: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "SAYS {said}").unwrap();
    drop(out);
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    engine.shutdown();
}

#[test]
#[ignore = "a process of the other tests"]
fn target() {
    let (engine, memory) = start();
    serve(&engine, &format!("{} {memory}", engine.name()));
}

#[test]
#[ignore = "a process of the other tests"]
fn initiator() {
    let (engine, memory) = start();
    let target = std::env::var("TEST_TARGET").unwrap();
    let (peer, remote) = target.split_once(' ').unwrap();
    let remote: u64 = remote.parse().unwrap();
    for call in std::env::var("TEST_CALLS").unwrap().lines() {
        let [op, entries, len, trace] = call.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let (entries, len): (u64, u64) = (entries.parse().unwrap(), len.parse().unwrap());
        let from = if op == "outside" { 1 << 12 } else { remote };
        let entry = |index| Entry { local: memory + index * len, remote: from + index * len, len };
        let opcode = if op == "read" { Opcode::Read } else { Opcode::Write };
        let mut request = Request::new(peer, opcode, (0..entries).map(entry).collect());
        request.trace = trace.parse().ok();
        assert_eq!(engine.transfer(&request).is_ok(), op != "outside");
    }
    serve(&engine, "done");
}
