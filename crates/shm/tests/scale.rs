//! As many regions, changes and threads as a large program has.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moonrail_memory::{Access, RegionOptions, Want};
use moonrail_shm::{ShmPath, ShmServer};
use moonrail_transport::testkit::Side;
use moonrail_transport::{Code, Control, Dialect, Entry, Failure, Opcode, Path, Target, Work};

struct Pair {
    near: Side,
    far: Side,
    path: ShmPath,
    target: Target,
    _server: ShmServer,
}

impl Pair {
    fn new() -> Self {
        let far = Side::new();
        let server = ShmServer::start(Arc::clone(&far.regions), 1).unwrap();
        let target = Target {
            name: "far".to_owned(),
            addresses: Vec::new(),
            dialect: Dialect::MooncakeV2,
            tls: None,
            generation: 1,
            same_host: Some(server.contact().to_string()),
        };
        Self { near: Side::new(), far, path: ShmPath::new(), target, _server: server }
    }

    fn execute(&self, opcode: Opcode, entries: &[Entry]) -> Result<(), Failure> {
        let want = if opcode == Opcode::Read { Want::Write } else { Want::Read };
        let ranges = entries.iter().map(|entry| (entry.local, entry.len));
        let holds = self.near.regions.hold_all(ranges, want).unwrap();
        let limit = Duration::from_secs(5);
        let control = Control { deadline: None, connect: limit, progress: limit, stop: &|| None };
        self.path.execute(&self.target, &Work { opcode, entries, holds: &holds }, &control)
    }
}

#[test]
fn a_hundred_thousand_regions() {
    const COUNT: u64 = 100_000;
    const LEN: u64 = 64;
    let pair = Pair::new();
    let whole = pair.far.range(COUNT * LEN);
    pair.far.regions.unregister(whole.addr(), Duration::ZERO).unwrap();
    let parts: Vec<_> =
        (0..COUNT).map(|at| (whole.part(at * LEN, LEN).unwrap(), RegionOptions::default())).collect();
    pair.far.regions.register_batch(parts.clone()).unwrap();
    let local = pair.near.buffer(&vec![5; (COUNT * LEN) as usize]);
    let entry =
        |at: u64, to: u64| Entry { local: local + at * LEN, remote: whole.addr() + to * LEN, len: LEN };
    let entries: Vec<_> = (0..COUNT).map(|at| entry(at, at * 7919 % COUNT)).collect();
    pair.execute(Opcode::Write, &entries).unwrap();
    assert!(Side::peek(whole).iter().all(|&byte| byte == 5));
    // A range over two of them is refused.
    let across = Entry { len: LEN + 1, ..entries[0] };
    assert_eq!(pair.execute(Opcode::Write, &[across]).unwrap_err().error.code(), Code::RemoteRefused);
    // Changes one by one are seen one by one, and cost an initiator no more for so many regions.
    let since = Instant::now();
    for at in (0..1000).map(|at| at * 97) {
        pair.far.regions.unregister(whole.addr() + at * LEN, Duration::ZERO).unwrap();
        let failure = pair.execute(Opcode::Write, &[entry(0, at)]).unwrap_err();
        assert_eq!(failure.error.code(), Code::RemoteRefused, "{failure}");
        pair.execute(Opcode::Write, &[entry(0, at + 1)]).unwrap();
        pair.far.regions.register(parts[at as usize].0, RegionOptions::default()).unwrap();
        pair.execute(Opcode::Write, &[entry(0, at)]).unwrap();
    }
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    // All at once: more changes than the ring holds.
    let starts: Vec<_> = parts.iter().map(|(range, _)| range.addr()).collect();
    pair.far.regions.unregister_batch(&starts, Duration::from_secs(5)).unwrap();
    let failure = pair.execute(Opcode::Write, &entries).unwrap_err();
    assert!(failure.untouched && failure.error.code() == Code::RemoteRefused, "{failure}");
}

#[test]
fn unregister_cuts_a_long_batch_short() {
    let pair = Pair::new();
    // Long enough to be cut into many pieces.
    let len = 64 << 20;
    let (local, range) = (pair.near.buffer(&vec![1; len as usize]), pair.far.range(len));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(6));
                let since = Instant::now();
                pair.far.regions.unregister(range.addr(), Duration::from_secs(10)).unwrap();
                assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
                pair.far.regions.register(range, RegionOptions::default()).unwrap();
            }
        });
        let (since, mut cut) = (Instant::now(), 0);
        while cut < 5 && since.elapsed() < Duration::from_secs(20) {
            let entry = Entry { local, remote: range.addr(), len };
            if let Err(failure) = pair.execute(Opcode::Write, &[entry]) {
                assert_eq!(failure.error.code(), Code::RemoteRefused, "{failure}");
                cut += u32::from(!failure.untouched);
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(cut > 0, "no batch was cut short");
    });
}

#[test]
fn a_read_only_region_is_read_only() {
    let pair = Pair::new();
    let range = pair.far.range(4096);
    pair.far.regions.unregister(range.addr(), Duration::ZERO).unwrap();
    let options = RegionOptions { access: Access::ReadOnly, ..RegionOptions::default() };
    pair.far.regions.register(range, options).unwrap();
    let entry = Entry { local: pair.near.buffer(&[3; 4096]), remote: range.addr(), len: 4096 };
    let failure = pair.execute(Opcode::Write, &[entry]).unwrap_err();
    assert_eq!(failure.error.code(), Code::PermissionDenied, "{failure}");
    assert!(failure.to_string().contains("read only"), "{failure}");
    pair.execute(Opcode::Read, &[entry]).unwrap();
}

#[test]
fn more_threads_than_entries() {
    let pair = Pair::new();
    let (threads, len) = (300_u64, 20_000_u64);
    let (local, remote) = (
        pair.near.buffer(&vec![8; (threads * len) as usize]),
        pair.far.buffer(&vec![0; (threads * len) as usize]),
    );
    std::thread::scope(|scope| {
        for at in (0..threads).map(|at| at * len) {
            let (pair, entry) = (&pair, Entry { local: local + at, remote: remote + at, len });
            scope.spawn(move || {
                for _ in 0..20 {
                    pair.execute(Opcode::Write, &[entry]).unwrap();
                }
            });
        }
    });
    assert!(pair.far.get(remote, (threads * len) as usize).iter().all(|&byte| byte == 8));
}
