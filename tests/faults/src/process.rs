//! A node as the harness holds it: the process, its pipes, and what the kernel says of it.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::orders::{EngineUp, Order, Said, Setup};

/// Lines of its log that are kept for a report.
const KEPT: usize = 60;

/// A running node; killed when dropped.
pub(crate) struct Node {
    child: Child,
    input: ChildStdin,
    said: Receiver<Said>,
    log: Arc<Mutex<VecDeque<String>>>,
    pub engines: Vec<EngineUp>,
    /// What it had when it had just come up.
    pub base: Facts,
    files: Option<Rlimit>,
    memory: Option<Rlimit>,
}

/// What a process has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts {
    pub files: usize,
    pub threads: usize,
    pub resident_kib: u64,
    pub virtual_kib: u64,
}

impl Node {
    /// Starts this program as a node by `prefix`, a command that runs it (empty: directly).
    pub(crate) fn start(setup: &Setup, prefix: &[&str]) -> Result<Self, String> {
        // Not by its path, where a newer build may stand by now.
        let program = "/proc/self/exe";
        let mut command = match prefix.split_first() {
            None => Command::new(program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(format!("/proc/{}/exe", std::process::id()));
                command
            }
        };
        command.arg("node").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("a node cannot be started: {error}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let ((input, output), errors) = pipes.ok_or("a node has no pipes")?;
        let (say, said) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(word) = serde_json::from_str(&line) else { return };
                if say.send(word).is_err() {
                    return;
                }
            }
        });
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                let Ok(mut log) = kept.lock() else { return };
                if log.len() == KEPT {
                    log.pop_front();
                }
                log.push_back(line);
            }
        });
        let mut node = Self {
            child,
            input,
            said,
            log,
            engines: Vec::new(),
            base: Facts::default(),
            files: None,
            memory: None,
        };
        let line = serde_json::to_string(setup).map_err(|error| error.to_string())?;
        writeln!(node.input, "{line}").map_err(|error| format!("a new node takes no setup: {error}"))?;
        match node.said.recv_timeout(Duration::from_secs(20)) {
            Ok(Said::Up { engines }) => node.engines = engines,
            Ok(Said::Failed { why }) => return Err(format!("a node did not come up: {why}")),
            other => return Err(format!("a node did not come up: {other:?}; {}", node.log())),
        }
        node.base = node.facts().map_err(|error| format!("a node died at once: {error}"))?;
        Ok(node)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it something. A node that is gone is found out elsewhere.
    pub(crate) fn tell(&mut self, order: &Order) {
        let line = serde_json::to_string(order).expect("orders can be written");
        let _ = writeln!(self.input, "{line}");
    }

    /// What it says within `patience`.
    pub(crate) fn hear(&self, patience: Duration) -> Option<Said> {
        match self.said.recv_timeout(patience) {
            Ok(said) => Some(said),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(patience);
                None
            }
        }
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends it and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Something that sends it a signal from another thread.
    pub(crate) fn signaller(&self) -> impl Fn(Signal) + Send + 'static {
        let pid = Pid::from_child(&self.child);
        // The child is waited for only by this value, so the number is its own, or a zombie's.
        move |signal| {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits until the kernel says that every thread of it stands still.
    pub(crate) fn wait_stopped(&self, patience: Duration) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let states = task_states(self.pid());
            if states.as_ref().is_ok_and(|states| states.iter().all(|state| *state == 'T')) {
                return Ok(());
            }
            if began.elapsed() > patience || states.is_err() {
                return Err(format!("its threads' states are {states:?}"));
            }
            thread::sleep(Duration::from_micros(300));
        }
    }

    /// Lets it open only `more` descriptors more.
    pub(crate) fn limit_files(&mut self, more: u64) {
        let have = self.facts().map_or(0, |facts| facts.files as u64);
        self.files = self.limit(Resource::Nofile, have + more);
    }

    /// Lets it map only `more` bytes more.
    pub(crate) fn limit_memory(&mut self, more: u64) {
        let have = self.facts().map_or(0, |facts| facts.virtual_kib << 10);
        self.memory = self.limit(Resource::As, have + more);
    }

    pub(crate) fn lacks_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn lift_limits(&mut self) {
        for (resource, old) in [(Resource::Nofile, self.files.take()), (Resource::As, self.memory.take())] {
            if let Some(old) = old {
                let _ = prlimit(Some(Pid::from_child(&self.child)), resource, old);
            }
        }
    }

    fn limit(&self, resource: Resource, soft: u64) -> Option<Rlimit> {
        let pid = Some(Pid::from_child(&self.child));
        let nothing = prlimit_get(pid, resource)?;
        let new = Rlimit { current: Some(soft), maximum: nothing.maximum };
        prlimit(pid, resource, new).ok()
    }

    pub(crate) fn facts(&self) -> io::Result<Facts> {
        let pid = self.pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        Ok(Facts {
            files: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: field("Threads") as usize,
            resident_kib: field("VmRSS"),
            virtual_kib: field("VmSize"),
        })
    }

    /// The last lines of its log.
    pub(crate) fn log(&self) -> String {
        // What it wrote last may still be in the pipe.
        thread::sleep(Duration::from_millis(20));
        self.log
            .lock()
            .map_or_else(|_| String::new(), |log| log.iter().cloned().collect::<Vec<_>>().join("\n    "))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The limit in force, from `/proc`: rustix cannot ask for another process's without setting it.
fn prlimit_get(pid: Option<Pid>, resource: Resource) -> Option<Rlimit> {
    let name = match resource {
        Resource::Nofile => "Max open files",
        _ => "Max address space",
    };
    let pid = pid?.as_raw_nonzero();
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace();
    let mut number = || words.next().map(|word| word.parse().ok());
    Some(Rlimit { current: number()?, maximum: number()? })
}

fn task_states(pid: u32) -> io::Result<Vec<char>> {
    let mut states = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let Ok(text) = fs::read_to_string(task?.path().join("stat")) else { continue };
        let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        states.push(state.unwrap_or('?'));
    }
    Ok(states)
}
