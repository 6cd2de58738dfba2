//! What the tests of this binary share: children, and calls of the path.

pub(crate) mod child;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use moonrail_memory::Want;
use moonrail_shm::ShmPath;
use moonrail_transport::testkit::Side;
use moonrail_transport::{Control, Dialect, Entry, Failure, Opcode, Path, Target, Work};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn target(contact: &str) -> Target {
    Target {
        name: "far".to_owned(),
        addresses: Vec::new(),
        dialect: Dialect::MooncakeV2,
        tls: None,
        generation: 1,
        same_host: Some(contact.to_owned()),
    }
}

pub(crate) fn execute(
    path: &ShmPath,
    target: &Target,
    near: &Side,
    opcode: Opcode,
    entries: &[Entry],
) -> Result<(), Failure> {
    let want = if opcode == Opcode::Read { Want::Write } else { Want::Read };
    let holds = near.regions.hold_all(entries.iter().map(|entry| (entry.local, entry.len)), want).unwrap();
    let limit = Duration::from_secs(5);
    let control = Control { deadline: None, connect: limit, progress: limit, stop: &|| None };
    path.execute(target, &Work { opcode, entries, holds: &holds }, &control)
}

/// The two ways that bytes are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the kernel.
    Across,
    /// Through memory that both processes have mapped.
    Mapped,
}

impl Way {
    /// What a child is told so that its memory is of the kind.
    pub(crate) fn fact(self) -> Option<(&'static str, String)> {
        (self == Self::Across).then(|| ("PRIVATE", "1".to_owned()))
    }
}

/// Seeded numbers that look random.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// This binary, started again in a role of [`child`]; killed when dropped.
pub(crate) struct Other {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub(crate) fn start(role: &str, facts: &[(&str, String)]) -> Self {
        Self::start_with(Command::new(std::env::current_exe().unwrap()), role, facts)
    }

    pub(crate) fn start_as(uid: u32, role: &str, facts: &[(&str, String)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.uid(uid).gid(uid);
        Self::start_with(command, role, facts)
    }

    pub(crate) fn start_with(mut command: Command, role: &str, facts: &[(&str, String)]) -> Self {
        command.args(["--exact", "child", "--nocapture"]).env("MOONRAIL_TEST_ROLE", role).current_dir("/");
        command.envs(facts.iter().map(|(key, value)| (key, value)));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, output: BufReader::new(output) }
    }

    /// The next line that begins with `key` behind its `@`.
    pub(crate) fn hear(&mut self, key: &str) -> String {
        let mark = format!("@{key} ");
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the child ended before it said {key}");
            if let Some(at) = line.find(&mark) {
                return line[at + mark.len()..].trim_end().to_owned();
            }
        }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Stops it, and returns once the kernel says that it stands still.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/task", self.pid());
        let stands = |task: &std::path::Path| {
            let text = std::fs::read_to_string(task.join("stat")).unwrap();
            text.rsplit_once(") ").unwrap().1.starts_with('T')
        };
        while !std::fs::read_dir(&stat).unwrap().all(|task| stands(&task.unwrap().path())) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
