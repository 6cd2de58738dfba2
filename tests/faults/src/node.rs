//! A process under test: engines with memory, told what to do by the harness.
//!
//! A panic anywhere in it ends it, so that the harness sees every one.

use std::collections::HashMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::panic;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use moonrail::{Completion, Config, Engine, Entry, Error, MemoryRange, Opcode, RegionOptions, Request};
use moonrail_transport::testkit::Side;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::orders::{AREA, EngineSetup, EngineUp, MARGIN, Order, Refusal, Said, Setup, Transfer};

/// Threads that make the blocking calls.
const CALLERS: usize = 12;

/// Serves until standard input ends.
pub(crate) fn run() {
    let told = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        told(what);
        process::abort();
    }));
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    // One that stands still does not see that standard input has ended.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut lines = stdin().lock().lines();
    let Some(Ok(first)) = lines.next() else { return };
    let setup: Setup = serde_json::from_str(&first).expect("the harness writes a setup");
    let node = match Node::start(&setup) {
        Ok((node, engines)) => {
            say(&Said::Up { engines });
            node
        }
        Err(error) => return say(&Said::Failed { why: error.to_string() }),
    };
    for line in lines {
        let Ok(line) = line else { break };
        node.carry_out(serde_json::from_str(&line).expect("the harness writes orders"));
    }
    // Without a farewell to the threads that are inside calls.
    process::exit(0);
}

fn say(said: &Said) {
    let mut line = serde_json::to_vec(said).expect("all of it can be written");
    line.push(b'\n');
    let mut out = stdout().lock();
    // The harness may be gone; then so is this process soon.
    let _ = out.write_all(&line).and_then(|()| out.flush());
}

struct Hosted {
    engine: Engine,
    /// The registered part of the memory that the node brought.
    own: MemoryRange,
}

struct Node {
    engines: Vec<Hosted>,
    calls: Mutex<Sender<Call>>,
    running: Arc<Mutex<HashMap<u8, Running>>>,
    /// Keeps the memory that the node brought.
    _side: Side,
}

struct Call {
    engine: Engine,
    transfer: u8,
    request: Request,
    stop: Arc<AtomicBool>,
}

enum Running {
    Call(Arc<AtomicBool>),
    Background(Completion),
}

impl Node {
    fn start(setup: &Setup) -> Result<(Self, Vec<EngineUp>), Error> {
        let side = Side::new();
        let (mut engines, mut up) = (Vec::new(), Vec::new());
        for each in &setup.engines {
            let engine = Engine::start(config(each, setup))?;
            let whole = side.range(AREA);
            let own = whole.part(MARGIN, AREA - 2 * MARGIN).expect("it is larger than its margins");
            engine.register(own, RegionOptions::default())?;
            let managed = engine.allocate(AREA)?;
            // Every page is there from the beginning, so that what grows later is not this.
            Side::poke(whole, &vec![0; AREA as usize]);
            engine.write_local(managed, &vec![0; AREA as usize])?;
            up.push(EngineUp { data_port: engine.report()?.data.port(), own: whole.addr(), managed });
            engines.push(Hosted { engine, own });
        }
        let (calls, waiting) = channel();
        let running = Arc::default();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..CALLERS {
            let (waiting, running) = (Arc::clone(&waiting), Arc::clone(&running));
            thread::spawn(move || call_on(&waiting, &running));
        }
        Ok((Self { engines, calls: Mutex::new(calls), running, _side: side }, up))
    }

    fn carry_out(&self, order: Order) {
        match order {
            Order::Transfer(transfer) => self.transfer(transfer),
            Order::Cancel { transfer, after } => {
                let running = Arc::clone(&self.running);
                thread::sleep(Duration::from_micros(after));
                match running.lock().expect("no holder panics").get(&transfer) {
                    Some(Running::Call(stop)) => stop.store(true, Ordering::Release),
                    Some(Running::Background(completion)) => completion.cancel(),
                    None => {}
                }
            }
            Order::Unregister { engine } => {
                let Hosted { engine, own } = &self.engines[engine];
                let (engine, at) = (engine.clone(), own.addr());
                thread::spawn(move || carried(|| engine.unregister(at)));
            }
            Order::Register { engine } => {
                let Hosted { engine, own } = &self.engines[engine];
                carried(|| engine.register(*own, RegionOptions::default()));
            }
            Order::Allocate { engine, len } => {
                let engine = &self.engines[engine].engine;
                carried(|| engine.allocate(len).and_then(|at| engine.free(at)));
            }
        }
    }

    fn transfer(&self, order: Transfer) {
        let Transfer { transfer, engine, submit, peer, write, entries, timeout } = order;
        let engine = self.engines[engine].engine.clone();
        let entries = entries.into_iter().map(|(local, remote, len)| Entry { local, remote, len }).collect();
        let mut request = Request::new(peer, if write { Opcode::Write } else { Opcode::Read }, entries);
        request.timeout = timeout.map(Duration::from_millis);
        let mut running = self.running.lock().expect("no holder panics");
        if !submit {
            let stop = Arc::new(AtomicBool::new(false));
            running.insert(transfer, Running::Call(Arc::clone(&stop)));
            let call = Call { engine, transfer, request, stop };
            self.calls.lock().expect("no holder panics").send(call).expect("the callers live");
            return;
        }
        let began = Instant::now();
        match engine.submit(request) {
            Ok(completion) => {
                running.insert(transfer, Running::Background(completion.clone()));
                drop(running);
                let all = Arc::clone(&self.running);
                completion.on_done(Box::new(move |outcome| done(&all, transfer, outcome.clone(), began)));
            }
            Err(error) => {
                drop(running);
                done(&self.running, transfer, Err(error), began);
            }
        }
    }
}

fn call_on(waiting: &Mutex<Receiver<Call>>, running: &Mutex<HashMap<u8, Running>>) {
    loop {
        let next = waiting.lock().expect("no holder panics").recv();
        let Ok(Call { engine, transfer, request, stop }) = next else { return };
        let began = Instant::now();
        let outcome = engine.transfer_interruptible(&request, &|| stop.load(Ordering::Acquire));
        done(running, transfer, outcome, began);
    }
}

fn done(running: &Mutex<HashMap<u8, Running>>, transfer: u8, outcome: Result<(), Error>, began: Instant) {
    let micros = began.elapsed().as_micros() as u64;
    // First, as the harness may use the number again once it has heard of the end.
    running.lock().expect("no holder panics").remove(&transfer);
    say(&Said::Done { transfer, outcome: outcome.map_err(|error| refusal(&error)), micros });
}

fn carried(order: impl FnOnce() -> Result<(), Error>) {
    let began = Instant::now();
    let outcome = order().map_err(|error| refusal(&error));
    say(&Said::Carried { outcome, micros: began.elapsed().as_micros() as u64 });
}

fn refusal(error: &Error) -> Refusal {
    let applied =
        error.message().split_once(" descriptors are known to be applied").map_or("", |(front, _)| front);
    // "…; 3 of 20": the engine says so to people only.
    let applied = applied.rsplit_once(" of ").and_then(|(front, _)| front.rsplit(' ').next());
    Refusal {
        code: error.code().to_string(),
        stage: error.stage().as_str().to_owned(),
        applied: applied.and_then(|number| number.parse().ok()).unwrap_or(0),
        text: error.to_string(),
    }
}

fn config(engine: &EngineSetup, Setup { limits, lanes, sealing, .. }: &Setup) -> Config {
    let mut config = Config::new(engine.name.clone(), "P2PHANDSHAKE");
    config.listen = Some(engine.listen);
    config.paths.shm = engine.shm;
    config.lanes_per_peer = *lanes;
    config.timeouts.connect = Duration::from_millis(limits.connect);
    config.timeouts.handshake = Duration::from_millis(limits.handshake);
    config.timeouts.progress = Duration::from_millis(limits.progress);
    config.timeouts.unregister = Duration::from_millis(limits.unregister);
    sealing.configure(&mut config);
    config
}
