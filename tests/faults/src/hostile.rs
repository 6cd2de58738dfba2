//! Hostile messages at the live ports of one process, while honest clients use it.
//!
//! Owns the threads that throw, the honest clients, and the judgement. What is thrown: [`messages`]; the process: [`target`].

mod messages;
mod target;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use moonrail::{Config, Engine, Entry, Error, Opcode, Request};
use rustix::net::{AddressFamily, SocketType};

use crate::content::Tag;
use crate::dice::Dice;

use messages::{Port, throw};
pub(crate) use target::run as run_target;
use target::{HONEST, Up};

#[derive(Args)]
pub(crate) struct HostileArgs {
    /// Messages in all
    #[arg(long, default_value_t = 20_000)]
    messages: u64,
    /// Threads that throw them, each over a connection of its own
    #[arg(long, default_value_t = 8)]
    threads: usize,
    /// Where the dice begins
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Before a tenth of the messages, or so many of them where that is more, the process is warming up.
const WARM: u64 = 10_000;
/// How much more memory it may have at the end than when it was warm.
const GROWTH_KIB: u64 = 8 << 10;
/// An honest call that takes longer has been delayed by the others.
const STUCK: Duration = Duration::from_secs(5);
/// Descriptors that are not yet closed shortly after the last message, and threads that are not yet gone.
const LEFT: usize = 24;
/// Lines that the process may write: each of a few kinds of warning is told 16 times, then ever more rarely.
const LOG_LINES: usize = 200;
/// Bytes that an honest client writes at most, and where each has its place.
const PLACE: u64 = 256 << 10;
const CLIENTS: u64 = 2;

/// Throws them, and says what came of it.
pub(crate) fn run(args: &HostileArgs) -> ExitCode {
    let mut process = match Target::start() {
        Ok(process) => process,
        Err(why) => {
            println!("FAILED: the process under test did not come up: {why}");
            return ExitCode::FAILURE;
        }
    };
    let up = process.up;
    let shared = Shared::default();
    let began = Instant::now();
    let warm = thread::scope(|scope| {
        let (shared, up) = (&shared, &up);
        for client in 0..CLIENTS {
            scope.spawn(move || shared.be_honest(client, up));
        }
        for nth in 0..args.threads.max(1) {
            scope.spawn(move || shared.throw_all(nth as u64, args, up));
        }
        let mut warm = None;
        let warm_at = (args.messages / 10).max(WARM).min(args.messages / 2);
        while shared.thrown.load(Ordering::Relaxed) < args.messages && !shared.over() {
            thread::sleep(Duration::from_millis(20));
            if warm.is_none() && shared.thrown.load(Ordering::Relaxed) > warm_at {
                warm = process.facts();
            }
            if let Ok(Some(status)) = process.child.try_wait() {
                shared.finding(format!("the process ended: {status}\n{}", process.log()));
            }
        }
        shared.done.store(true, Ordering::Relaxed);
        warm
    });
    let took = began.elapsed();
    // Half-open clients are closed after their time limits at the latest.
    let mut end = process.facts();
    let settled = Instant::now();
    while let (Some(warm), Some(now)) = (warm, end)
        && (now.files > warm.files.min(process.base.files + LEFT)
            || now.threads > process.base.threads + LEFT)
        && settled.elapsed() < Duration::from_secs(20)
    {
        thread::sleep(Duration::from_millis(200));
        end = process.facts();
    }
    shared.judge(&process, warm, end);
    shared.print(args, took, &process, warm, end)
}

/// The process under test.
struct Target {
    child: Child,
    up: Up,
    base: Facts,
    log: std::sync::Arc<Mutex<Vec<String>>>,
}

#[derive(Debug, Clone, Copy)]
struct Facts {
    resident_kib: u64,
    files: usize,
    threads: usize,
}

impl Target {
    fn start() -> Result<Self, String> {
        let mut child = Command::new("/proc/self/exe")
            .arg("hostile-target")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let (output, errors) = child.stdout.take().zip(child.stderr.take()).ok_or("no pipes")?;
        let log = std::sync::Arc::new(Mutex::new(Vec::new()));
        let kept = std::sync::Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                kept.lock().expect("no holder panics").push(line);
            }
        });
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let up = serde_json::from_str(&line).map_err(|error| format!("it said {line:?}: {error}"))?;
        let none = Facts { resident_kib: 0, files: 0, threads: 0 };
        let mut target = Self { child, up, base: none, log };
        target.base = target.facts().ok_or("it died at once")?;
        Ok(target)
    }

    fn facts(&self) -> Option<Facts> {
        let pid = self.child.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        Some(Facts {
            resident_kib: field("VmRSS:")?,
            files: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count(),
            threads: field("Threads:")? as usize,
        })
    }

    /// The last lines of its log.
    fn log(&self) -> String {
        let log = self.log.lock().expect("no holder panics");
        log[log.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Default)]
struct Shared {
    thrown: AtomicU64,
    connections: AtomicU64,
    bytes: AtomicU64,
    rounds: AtomicU64,
    slowest_micros: AtomicU64,
    done: AtomicBool,
    findings: Mutex<Vec<String>>,
}

impl Shared {
    fn finding(&self, text: String) {
        self.findings.lock().expect("no holder panics").push(text);
    }

    fn over(&self) -> bool {
        self.done.load(Ordering::Relaxed) || !self.findings.lock().expect("no holder panics").is_empty()
    }

    /// One thread of hostile clients: a connection, some messages, an end.
    fn throw_all(&self, nth: u64, args: &HostileArgs, up: &Up) {
        let mut dice = Dice::new(args.seed << 16 | nth);
        while !self.over() {
            let port = dice.pick(&[
                Port::Data,
                Port::Data,
                Port::Data,
                Port::Handshake,
                Port::Handshake,
                Port::Http,
            ]);
            let Ok(mut stream) = connect(nth, up.of(port)) else {
                // The kernel's queue of connections is full, or all ports of this address wait.
                thread::sleep(Duration::from_millis(2));
                continue;
            };
            self.connections.fetch_add(1, Ordering::Relaxed);
            let count = if dice.chance(30) { dice.between(2, 12) } else { 1 };
            for _ in 0..count {
                let bytes = throw(&mut dice, port, up);
                if send(&mut stream, &bytes, &mut dice).is_err() {
                    break;
                }
                self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                if self.thrown.fetch_add(1, Ordering::Relaxed) + 1 >= args.messages {
                    return;
                }
            }
            if dice.chance(25) {
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read(&mut [0; 4096]);
            }
        }
    }

    /// An honest client: writes, reads back, compares; every now and then as a new engine.
    fn be_honest(&self, client: u64, up: &Up) {
        let mut dice = Dice::new(0x600d << 32 | client);
        let mut round = 0_u32;
        while !self.over() {
            let outcome = Honest::start(up, client).and_then(|honest| {
                for _ in 0..200 {
                    if self.over() {
                        break;
                    }
                    let len = if dice.chance(80) { dice.between(1, 8 << 10) } else { dice.between(1, PLACE) };
                    let tag = Tag { schedule: (client as u32) << 28 | round, transfer: 0 };
                    round += 1;
                    let began = Instant::now();
                    honest.round(len, tag)?;
                    let took = began.elapsed();
                    self.rounds.fetch_add(1, Ordering::Relaxed);
                    self.slowest_micros.fetch_max(took.as_micros() as u64, Ordering::Relaxed);
                    if took > STUCK {
                        self.finding(format!("an honest round of {len} bytes took {took:?}"));
                    }
                }
                Ok(())
            });
            if let Err(why) = outcome {
                self.finding(format!("an honest client failed: {why}"));
            }
        }
    }

    fn judge(&self, process: &Target, warm: Option<Facts>, end: Option<Facts>) {
        let (Some(warm), Some(end)) = (warm, end) else {
            return self.finding("the process could not be looked at".to_owned());
        };
        if end.resident_kib > warm.resident_kib + GROWTH_KIB {
            self.finding(format!("it has grown from {} to {} KiB", warm.resident_kib, end.resident_kib));
        }
        if end.files > process.base.files + LEFT {
            self.finding(format!("it had {} descriptors, now {}", process.base.files, end.files));
        }
        if end.threads > process.base.threads + LEFT {
            self.finding(format!("it had {} threads, now {}", process.base.threads, end.threads));
        }
        let lines = process.log.lock().expect("no holder panics").len();
        if lines > LOG_LINES {
            self.finding(format!("it wrote {lines} log lines, the last of them\n{}", process.log()));
        }
        match target::guards_hold(process.child.id(), &process.up) {
            Ok(true) => {}
            Ok(false) => self.finding("memory beside the registered regions was written to".to_owned()),
            Err(error) => self.finding(format!("its memory cannot be read: {error}")),
        }
    }

    fn print(
        &self,
        args: &HostileArgs,
        took: Duration,
        process: &Target,
        warm: Option<Facts>,
        end: Option<Facts>,
    ) -> ExitCode {
        let seconds = took.as_secs_f64();
        let number = |count: &AtomicU64| count.load(Ordering::Relaxed);
        println!(
            "hostile: {} messages (seed {}) over {} connections, {} MiB, in {seconds:.1} s",
            number(&self.thrown),
            args.seed,
            number(&self.connections),
            number(&self.bytes) >> 20
        );
        println!(
            "honest clients meanwhile: {} rounds of write, read back and compare; slowest {:.0} ms",
            number(&self.rounds),
            number(&self.slowest_micros) as f64 / 1e3
        );
        for (name, facts) in [("start", Some(process.base)), ("warm", warm), ("end", end)] {
            if let Some(Facts { resident_kib, files, threads }) = facts {
                println!("{name}: {resident_kib} KiB resident, {files} descriptors, {threads} threads");
            }
        }
        println!("the process wrote {} log lines", process.log.lock().expect("no holder panics").len());
        let findings = self.findings.lock().expect("no holder panics");
        println!("findings: {}", findings.len());
        findings.iter().for_each(|text| println!("  {text}"));
        if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// An engine of this process that uses the target as it is meant to be used.
struct Honest {
    engine: Engine,
    peer: String,
    local: u64,
    remote: u64,
}

impl Honest {
    fn start(up: &Up, client: u64) -> Result<Self, String> {
        let text = |error: Error| error.to_string();
        let mut config = Config::new("127.0.0.1", "P2PHANDSHAKE");
        // The same-host path has no port that could be thrown at.
        config.paths.shm = false;
        let engine = Engine::start(config).map_err(text)?;
        let local = engine.allocate(2 * PLACE).map_err(text)?;
        Ok(Self {
            engine,
            peer: up.handshake.to_string(),
            local,
            remote: up.honest + client * (HONEST / CLIENTS),
        })
    }

    fn round(&self, len: u64, tag: Tag) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let bytes = tag.bytes(0, len as usize);
        self.engine.write_local(self.local, &bytes).map_err(text)?;
        for (opcode, local) in [(Opcode::Write, self.local), (Opcode::Read, self.local + PLACE)] {
            let entry = Entry { local, remote: self.remote, len };
            self.engine.transfer(&Request::new(&*self.peer, opcode, vec![entry])).map_err(text)?;
        }
        let mut back = vec![0; len as usize];
        self.engine.read_local(self.local + PLACE, &mut back).map_err(text)?;
        if back == bytes { Ok(()) } else { Err(format!("{len} bytes came back changed")) }
    }
}

/// A connection that ends by reset, from an address of the thread's own: so the ports last.
fn connect(nth: u64, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    let from = Ipv4Addr::new(127, 1 + (nth / 250) as u8, 1 + (nth % 250) as u8, 1);
    rustix::net::bind(&socket, &SocketAddr::new(IpAddr::V4(from), 0))?;
    rustix::net::connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(Duration::from_millis(500)))?;
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    Ok(stream)
}

/// Sends the bytes whole, or in two parts; sometimes takes what comes back.
fn send(stream: &mut TcpStream, bytes: &[u8], dice: &mut Dice) -> std::io::Result<()> {
    let cut = if dice.chance(10) { dice.below(bytes.len() as u64 + 1) as usize } else { 0 };
    stream.write_all(&bytes[..cut])?;
    if cut > 0 {
        thread::yield_now();
    }
    stream.write_all(&bytes[cut..])?;
    if dice.chance(20) {
        let _ = stream.read(&mut [0; 4096]);
    }
    Ok(())
}
