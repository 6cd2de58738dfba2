//! Limits for single peers: a rate that is kept, and transfers in the background that give way and still move.
#![allow(clippy::unwrap_used, missing_docs)]

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use moonrail::{Code, Config, Engine, Entry, Limit, Opcode, Request, Retry};

const LEN: u64 = 16 << 20;

struct Pair {
    near: Engine,
    far: Engine,
    local: u64,
    remote: u64,
}

impl Pair {
    fn new(shm: bool, limit: Limit) -> Self {
        let engine = |limit| {
            let mut config = Config::new("127.0.0.1", "P2PHANDSHAKE");
            config.paths.shm = shm;
            config.limit = limit;
            Engine::start(config).unwrap()
        };
        let (near, far) = (engine(limit), engine(Limit::default()));
        let (local, remote) = (near.allocate(LEN).unwrap(), far.allocate(LEN).unwrap());
        Self { near, far, local, remote }
    }

    fn request(&self, op: Opcode, lens: &[u64]) -> Request {
        let mut at = 0;
        let entries = lens.iter().map(|&len| {
            let entry = Entry { local: self.local + at, remote: self.remote + at, len };
            at += len;
            entry
        });
        Request::new(self.far.name(), op, entries.collect::<Vec<_>>())
    }
}

fn rate(bytes_per_second: u64) -> Limit {
    Limit { bytes_per_second: NonZeroU64::new(bytes_per_second), background: false }
}

const BACKGROUND: Limit = Limit { bytes_per_second: None, background: true };

fn timed(call: impl FnOnce()) -> Duration {
    let start = Instant::now();
    call();
    start.elapsed()
}

#[test]
fn a_rate_is_kept_on_either_path_by_one_large_call_and_by_many_small_ones() {
    for shm in [true, false] {
        let pair = Pair::new(shm, rate(20_000_000));
        for op in [Opcode::Write, Opcode::Read] {
            // The first slice need not wait.
            let took = timed(|| pair.near.transfer(&pair.request(op, &[5_000_000, 5_000_000])).unwrap());
            assert!((0.45..2.0).contains(&took.as_secs_f64()), "{took:?}");
        }
        let small = pair.request(Opcode::Write, &[10_000]);
        let took = timed(|| {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..200).for_each(|_| pair.near.transfer(&small).unwrap()));
                }
            });
        });
        assert!((0.35..2.0).contains(&took.as_secs_f64()), "{took:?}");
    }
}

#[test]
fn a_limit_can_be_lifted_and_is_for_one_peer() {
    let pair = Pair::new(true, rate(1_000_000));
    let other = Engine::start(Config::new("127.0.0.1", "P2PHANDSHAKE")).unwrap();
    pair.near.limit(other.name(), rate(1)).unwrap();
    pair.near.limit(pair.far.name(), Limit::default()).unwrap();
    let took = timed(|| pair.near.transfer(&pair.request(Opcode::Write, &[LEN])).unwrap());
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn the_bytes_of_a_limited_batch_are_right_in_both_directions() {
    for shm in [true, false] {
        let pair = Pair::new(shm, BACKGROUND);
        let lens = [3 << 20, 0, 17, (1 << 20) - 17, 1, 5 << 20];
        let total: u64 = lens.iter().sum();
        let pattern: Vec<u8> = (0..total).map(|at| (at % 251) as u8).collect();
        let held = |engine: &Engine, addr, len| {
            let mut bytes = vec![1; len as usize];
            engine.read_local(addr, &mut bytes).unwrap();
            bytes
        };
        pair.near.write_local(pair.local, &pattern).unwrap();
        pair.near.transfer(&pair.request(Opcode::Write, &lens)).unwrap();
        assert!(held(&pair.far, pair.remote, total) == pattern);
        assert!(held(&pair.far, pair.remote + total, LEN - total).iter().all(|&byte| byte == 0));
        pair.near.write_local(pair.local, &vec![0; total as usize]).unwrap();
        pair.near.transfer(&pair.request(Opcode::Read, &lens)).unwrap();
        assert!(held(&pair.near, pair.local, total) == pattern);
    }
}

#[test]
fn a_call_that_waits_for_its_turn_ends_in_time_and_says_what_was_applied() {
    let pair = Pair::new(false, rate(1_000_000));
    let mut request = pair.request(Opcode::Write, &[100_000, 8_000_000]);
    request.timeout = Some(Duration::from_millis(500));
    let mut error = None;
    let took = timed(|| error = pair.near.transfer(&request).err());
    let error = error.unwrap();
    assert!((0.45..1.5).contains(&took.as_secs_f64()), "{took:?}");
    assert_eq!(
        (error.code(), error.retry(), error.index()),
        (Code::DeadlineExceeded, Retry::Unsafe, Some(1))
    );
    assert!(error.message().contains("a limit is set for this peer"), "{error}");
    // What it had asked for is not owed by the next call.
    let took = timed(|| pair.near.transfer(&pair.request(Opcode::Write, &[20_000])).unwrap());
    assert!(took < Duration::from_millis(300), "{took:?}");

    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            stopped.store(true, Ordering::Relaxed);
        });
        let request = pair.request(Opcode::Read, &[8_000_000]);
        let took = timed(|| {
            let outcome = pair.near.transfer_interruptible(&request, &|| stopped.load(Ordering::Relaxed));
            assert_eq!(outcome.unwrap_err().code(), Code::Interrupted);
        });
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn the_usual_time_limit_does_not_count_while_a_rate_holds_a_call_back() {
    let mut config = Config::new("127.0.0.1", "P2PHANDSHAKE");
    config.timeouts.call = Some(Duration::from_millis(300));
    config.limit = rate(4_000_000);
    let near = Engine::start(config).unwrap();
    let far = Engine::start(Config::new("127.0.0.1", "P2PHANDSHAKE")).unwrap();
    let (local, remote) = (near.allocate(LEN).unwrap(), far.allocate(LEN).unwrap());
    let entry = Entry { local, remote, len: 4_000_000 };
    near.transfer(&Request::new(far.name(), Opcode::Write, vec![entry])).unwrap();
}

#[test]
fn a_refusal_in_a_later_slice_names_the_descriptor_of_the_whole_batch() {
    let pair = Pair::new(false, BACKGROUND);
    let mut request = pair.request(Opcode::Write, &[2 << 20, 2 << 20, 2 << 20]);
    // Told of at first; gone when its turn comes.
    pair.near.transfer(&request).unwrap();
    let gone = pair.far.allocate(1 << 20).unwrap();
    pair.near.peer(pair.far.name()).unwrap();
    pair.far.free(gone).unwrap();
    request.entries[2] = Entry { remote: gone, len: 1 << 20, ..request.entries[2] };
    let error = pair.near.transfer(&request).unwrap_err();
    assert_eq!((error.index(), error.retry()), (Some(2), Retry::AfterFix), "{error}");
    assert!(error.message().contains("all before it is applied"), "{error}");
}

#[test]
fn the_background_gives_way_and_still_moves() {
    let pair = Pair::new(false, BACKGROUND);
    let busy = Pair::new(false, Limit::default());
    // One engine, two peers: the one it copies to in the background, and one that it is busy with.
    let (near, done) = (&pair.near, &AtomicBool::new(false));
    near.limit(busy.far.name(), Limit::default()).unwrap();
    let entry = Entry { local: pair.local, remote: busy.remote, len: LEN };
    let urgent = Request::new(busy.far.name(), Opcode::Write, vec![entry]);
    let late = pair.request(Opcode::Write, &[4 << 20]);
    near.transfer(&late).unwrap();
    near.transfer(&urgent).unwrap();
    let alone = timed(|| near.transfer(&late).unwrap());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    near.transfer(&urgent).unwrap();
                }
            });
        }
        thread::sleep(Duration::from_millis(100));
        let behind = timed(|| near.transfer(&late).unwrap());
        done.store(true, Ordering::Relaxed);
        // Each of four slices waits up to 100 ms, since two threads leave no moment without a transfer for long.
        assert!(behind > alone + Duration::from_millis(50), "{behind:?} behind others, {alone:?} alone");
        assert!(behind < Duration::from_secs(5), "{behind:?}");
    });
}
