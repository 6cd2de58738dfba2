//! One peer of a soak: writes to a place of its own in every other peer's memory, reads it back, and compares.

use std::collections::{BTreeMap, HashMap};
use std::io::{Write, stdin, stdout};
use std::process;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use moonrail::{Config, Engine, Entry, Error, Opcode, Request};
use serde::{Deserialize, Serialize};

use crate::content::Tag;
use crate::dice::Dice;

/// Bytes of memory that each peer has in every other's, and what stands behind them.
const PLACE: u64 = 16 << 10;
const GUARD: u64 = 256;
const GUARD_BYTE: u8 = 0xa5;
/// A call that takes longer than this is stuck: far more than all of its limits together.
const STUCK: Duration = Duration::from_secs(20);
/// Threads that make calls.
const CALLERS: u64 = 2;

/// Who there is.
#[derive(Serialize, Deserialize)]
pub(super) struct Roster {
    pub names: Vec<String>,
    /// Rounds a second.
    pub rate: u64,
}

/// What a peer says every second: of the time since it last did.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Word {
    pub rounds: u64,
    pub bytes: u64,
    pub failed: BTreeMap<String, u64>,
    pub slowest_micros: u64,
    pub findings: Vec<String>,
}

struct Shared {
    nth: usize,
    roster: Roster,
    engine: Engine,
    own: u64,
    word: Mutex<Word>,
    /// When each caller's call began.
    calls: Mutex<HashMap<u64, Instant>>,
}

/// Runs until it is killed.
pub(crate) fn run(nth: usize) {
    let mut line = String::new();
    if stdin().read_line(&mut line).is_err() {
        return;
    }
    let roster: Roster = serde_json::from_str(&line).expect("the harness writes a roster");
    let peers = roster.names.len() as u64;
    let mut config = Config::new(roster.names[nth].clone(), "P2PHANDSHAKE");
    // Half of them over TCP only.
    config.paths.shm = nth.is_multiple_of(2);
    config.lanes_per_peer = 2;
    config.timeouts.connect = Duration::from_secs(2);
    config.timeouts.handshake = Duration::from_secs(2);
    config.timeouts.progress = Duration::from_secs(2);
    let Ok(engine) = Engine::start(config) else { process::exit(3) };
    let len = peers * (PLACE + GUARD);
    let own = engine.allocate(len).expect("memory for the places");
    // Every page is there from the beginning, so that what grows later is not this.
    engine.write_local(own, &vec![0; len as usize]).expect("it is registered");
    for place in 0..peers {
        let guard = [GUARD_BYTE; GUARD as usize];
        engine.write_local(own + place * (PLACE + GUARD) + PLACE, &guard).expect("it is registered");
    }
    let shared =
        Arc::new(Shared { nth, roster, engine, own, word: Mutex::default(), calls: Mutex::default() });
    for caller in 0..CALLERS {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.call_for_ever(caller));
    }
    loop {
        thread::sleep(Duration::from_secs(1));
        shared.look_at_guards();
        shared.look_for_stuck_calls();
        let word = std::mem::take(&mut *shared.word.lock().expect("no holder panics"));
        let mut line = serde_json::to_vec(&word).expect("it can be written");
        line.push(b'\n');
        // The harness is gone: so is this process.
        if stdout().lock().write_all(&line).is_err() {
            process::exit(0);
        }
    }
}

impl Shared {
    fn call_for_ever(&self, caller: u64) {
        let mut dice = Dice::new((self.nth as u64) << 32 | u64::from(process::id()) << 8 | caller);
        let local = self.engine.allocate(2 * PLACE).expect("memory for calls");
        let mut bases: HashMap<usize, u64> = HashMap::new();
        let pause = Duration::from_micros(1_000_000 * CALLERS / self.roster.rate.max(1));
        for number in 0.. {
            let peer = dice.below(self.roster.names.len() as u64) as usize;
            if peer != self.nth {
                let tag = Tag { schedule: process::id() << 4 | caller as u32, transfer: number as u8 };
                if let Err(error) = self.round(&mut dice, caller, peer, tag, local, &mut bases) {
                    bases.remove(&peer);
                    let mut word = self.word.lock().expect("no holder panics");
                    *word.failed.entry(error.code().to_string()).or_default() += 1;
                }
            }
            thread::sleep(pause.mul_f64(dice.between(50, 150) as f64 / 100.0));
        }
    }

    fn round(
        &self,
        dice: &mut Dice,
        caller: u64,
        peer: usize,
        tag: Tag,
        local: u64,
        bases: &mut HashMap<usize, u64>,
    ) -> Result<(), Error> {
        let name = &self.roster.names[peer];
        let base = match bases.get(&peer) {
            Some(base) => *base,
            None => self.timed(caller, || self.engine.first_buffer(name))?,
        };
        bases.insert(peer, base);
        // Each caller has a half of the place.
        let half = PLACE / CALLERS;
        let len = dice.between(1, half);
        let place = base + self.nth as u64 * (PLACE + GUARD) + caller * half + dice.below(half - len + 1);
        let bytes = tag.bytes(0, len as usize);
        self.engine.write_local(local, &bytes)?;
        self.engine.write_local(local + PLACE, &vec![0; len as usize])?;
        let request =
            |opcode, local| Request::new(name.clone(), opcode, vec![Entry { local, remote: place, len }]);
        let background = dice.chance(30);
        let transfer = |request: Request| {
            self.timed(caller, || {
                if !background {
                    return self.engine.transfer(&request);
                }
                let completion = self.engine.submit(request.clone())?;
                completion.wait(None).unwrap_or(Ok(()))
            })
        };
        transfer(request(Opcode::Write, local))?;
        transfer(request(Opcode::Read, local + PLACE))?;
        let mut back = vec![0; len as usize];
        self.engine.read_local(local + PLACE, &mut back)?;
        let mut word = self.word.lock().expect("no holder panics");
        word.rounds += 1;
        word.bytes += 2 * len;
        // A peer that was killed in between is back with zeros.
        if back != bytes && back.iter().any(|&byte| byte != 0) {
            let at = back.iter().zip(&bytes).position(|(is, must)| is != must).unwrap_or(0);
            word.findings.push(format!("wrong bytes from {name}, {len} bytes, at {at}"));
        }
        Ok(())
    }

    fn timed<T>(&self, caller: u64, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        self.calls.lock().expect("no holder panics").insert(caller, began);
        let outcome = call();
        self.calls.lock().expect("no holder panics").remove(&caller);
        let mut word = self.word.lock().expect("no holder panics");
        word.slowest_micros = word.slowest_micros.max(began.elapsed().as_micros() as u64);
        outcome
    }

    fn look_for_stuck_calls(&self) {
        let calls = self.calls.lock().expect("no holder panics");
        if calls.values().any(|began| began.elapsed() > STUCK) {
            self.word
                .lock()
                .expect("no holder panics")
                .findings
                .push(format!("a call takes more than {STUCK:?}"));
        }
    }

    fn look_at_guards(&self) {
        for place in 0..self.roster.names.len() as u64 {
            let mut guard = [0; GUARD as usize];
            let at = self.own + place * (PLACE + GUARD) + PLACE;
            let seen = self.engine.read_local(at, &mut guard);
            if seen.is_err() || guard != [GUARD_BYTE; GUARD as usize] {
                let text = format!("the guard behind the place of peer {place} was written to");
                self.word.lock().expect("no holder panics").findings.push(text);
            }
        }
    }
}
