//! What every path must do, whatever carries its bytes.
//!
//! A path's tests name the suite once: `moonrail_transport::conformance_suite!(make)`, where `make` builds a
//! [`Subject`] anew. What it can prove: bytes, order, refusals, fences between threads of one process. What it
//! cannot: behaviour under a lost network or a dying process; those are tests of the path's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moonrail_memory::RegionOptions;

use super::Side;
use crate::{Code, Control, Entry, Failure, Opcode, Path, Stop, Target, Work};

/// A path with a far side behind it.
pub struct Subject {
    /// The path under test.
    pub path: Box<dyn Path>,
    /// The far side, served to the path under `target`.
    pub far: Arc<Side>,
    /// How the path reaches `far`.
    pub target: Target,
    /// What must live as long as the subject (a server, say).
    pub keep: Box<dyn std::any::Any + Send + Sync>,
    /// Fetches of the descriptor that the suite plays, on top of the target's own generation.
    pub refreshed: AtomicU64,
}

/// Runs every check of the suite as a test of its own.
#[macro_export]
macro_rules! conformance_suite {
    ($make:expr) => {
        $crate::conformance_suite!(@ $make;
            bytes_arrive_and_their_neighbours_stay,
            entries_of_any_size_and_order,
            many_small_entries,
            nothing_to_move_is_a_success,
            a_refusal_names_its_entry_and_disturbs_nothing,
            ranges_that_wrap_are_refused,
            threads_share_the_path,
            a_passed_deadline_ends_the_call,
            a_stopped_call_is_over_when_it_says_so,
            unregister_is_a_fence,
        );
    };
    (@ $make:expr; $($check:ident,)*) => {
        $(
            #[test]
            fn $check() {
                $crate::testkit::conformance::$check(&$make());
            }
        )*
    };
}

impl Subject {
    fn execute(&self, near: &Side, opcode: Opcode, entries: &[Entry]) -> Result<(), Failure> {
        self.execute_until(near, opcode, entries, None)
    }

    fn execute_until(
        &self,
        near: &Side,
        opcode: Opcode,
        entries: &[Entry],
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        self.execute_with(near, opcode, entries, deadline, &|| None)
    }

    fn execute_with(
        &self,
        near: &Side,
        opcode: Opcode,
        entries: &[Entry],
        deadline: Option<Instant>,
        stop: &(dyn Fn() -> Option<Stop> + Sync),
    ) -> Result<(), Failure> {
        let want = match opcode {
            Opcode::Read => moonrail_memory::Want::Write,
            Opcode::Write => moonrail_memory::Want::Read,
        };
        let ranges = entries.iter().map(|entry| (entry.local, entry.len));
        let holds = near.regions.hold_all(ranges, want).expect("registered local memory");
        let limit = Duration::from_secs(5);
        let control = Control { deadline, connect: limit, progress: limit, stop };
        let mut target = self.target.clone();
        target.generation += self.refreshed.load(Ordering::Relaxed);
        self.path.execute(&target, &Work { opcode, entries, holds: &holds }, &control)
    }

    /// Plays the engine, which fetches the descriptor anew after a failure.
    fn refresh(&self) {
        self.refreshed.fetch_add(1, Ordering::Relaxed);
    }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// A write and a read in the middle of a buffer change exactly what they name.
pub fn bytes_arrive_and_their_neighbours_stay(subject: &Subject) {
    let near = Side::new();
    for len in [1, 24, 4096, 65_537, 3 << 20] {
        let ours = pattern(len + 200, 1);
        let theirs = pattern(len + 200, 2);
        let (local, remote) = (near.buffer(&ours), subject.far.buffer(&theirs));
        let entry = Entry { local: local + 100, remote: remote + 100, len: len as u64 };
        subject.execute(&near, Opcode::Write, &[entry]).expect("a legal write");
        let mut expected = theirs.clone();
        expected[100..100 + len].copy_from_slice(&ours[100..100 + len]);
        assert!(subject.far.get(remote, len + 200) == expected, "write of {len}");
        let (local, remote) = (near.buffer(&ours), subject.far.buffer(&theirs));
        let entry = Entry { local: local + 100, remote: remote + 100, len: len as u64 };
        subject.execute(&near, Opcode::Read, &[entry]).expect("a legal read");
        let mut expected = ours.clone();
        expected[100..100 + len].copy_from_slice(&theirs[100..100 + len]);
        assert!(near.get(local, len + 200) == expected, "read of {len}");
    }
}

/// Zero, odd and large lengths in one batch, scattered the other way round at the far side.
pub fn entries_of_any_size_and_order(subject: &Subject) {
    let near = Side::new();
    let sizes: Vec<u64> = [0, 1, 65_535, 3, 65_536, 0, 65_537, 1 << 20, 4096, 0].repeat(4);
    let total: u64 = sizes.iter().sum();
    let (local, remote) =
        (near.buffer(&pattern(total as usize, 3)), subject.far.buffer(&vec![0; total as usize]));
    let (mut from, mut to) = (local, remote + total);
    let mut entries = Vec::new();
    for &len in &sizes {
        to -= len;
        entries.push(Entry { local: from, remote: to, len });
        from += len;
    }
    subject.execute(&near, Opcode::Write, &entries).expect("a legal batch");
    for entry in &entries {
        assert!(
            near.get(entry.local, entry.len as usize) == subject.far.get(entry.remote, entry.len as usize)
        );
    }
    let back = near.buffer(&vec![0; total as usize]);
    let reads: Vec<_> =
        entries.iter().map(|entry| Entry { local: entry.local - local + back, ..*entry }).collect();
    subject.execute(&near, Opcode::Read, &reads).expect("a legal batch");
    assert!(near.get(back, total as usize) == near.get(local, total as usize));
}

/// Far more entries than one system call or one window takes.
pub fn many_small_entries(subject: &Subject) {
    let (near, count, len) = (Side::new(), 20_000u64, 64u64);
    let total = (count * len) as usize;
    let (local, remote) = (near.buffer(&pattern(total, 4)), subject.far.buffer(&vec![0; total]));
    let entries: Vec<_> = (0..count)
        .map(|at| Entry { local: local + at * len, remote: remote + (at * 7919 % count) * len, len })
        .collect();
    subject.execute(&near, Opcode::Write, &entries).expect("a legal batch");
    let back = near.buffer(&vec![0; total]);
    let reads: Vec<_> =
        entries.iter().map(|entry| Entry { local: entry.local - local + back, ..*entry }).collect();
    subject.execute(&near, Opcode::Read, &reads).expect("a legal batch");
    assert!(near.get(back, total) == near.get(local, total));
}

/// No entries, and entries of length 0 wherever they point.
pub fn nothing_to_move_is_a_success(subject: &Subject) {
    let near = Side::new();
    for opcode in [Opcode::Read, Opcode::Write] {
        subject.execute(&near, opcode, &[]).expect("an empty batch");
        let nowhere = Entry { local: 0, remote: u64::MAX, len: 0 };
        subject.execute(&near, opcode, &[nowhere, nowhere]).expect("entries of length 0");
    }
}

/// The entry outside the far side's regions is named, its memory stays, and the next call works.
pub fn a_refusal_names_its_entry_and_disturbs_nothing(subject: &Subject) {
    let near = Side::new();
    let (local, remote) = (near.buffer(&pattern(8192, 5)), subject.far.buffer(&[0; 8192]));
    let good = Entry { local, remote, len: 4096 };
    let past_the_end = Entry { remote: remote + 8192 - 100, ..good };
    let nowhere = Entry { remote: 4096, ..good };
    for (bad, opcode) in [(past_the_end, Opcode::Write), (nowhere, Opcode::Write), (nowhere, Opcode::Read)] {
        let failure = subject.execute(&near, opcode, &[good, bad, good]).expect_err("a range outside");
        assert_eq!(failure.error.code(), Code::RemoteRefused, "{failure}");
        assert_eq!(failure.error.index(), Some(1), "{failure}");
        assert!(subject.far.get(remote + 8192 - 100, 100) == [0; 100]);
        // What a path gives up after a refusal, a fresh descriptor brings back.
        subject.refresh();
        let since = Instant::now();
        subject.execute(&near, Opcode::Write, &[good]).expect("a legal write behind a refused one");
        assert!(since.elapsed() < Duration::from_millis(500));
    }
}

/// `addr + len` beyond the address space.
pub fn ranges_that_wrap_are_refused(subject: &Subject) {
    let near = Side::new();
    let local = near.buffer(&[1; 4096]);
    for remote in [u64::MAX, u64::MAX - 4095, 0] {
        for opcode in [Opcode::Read, Opcode::Write] {
            let entry = Entry { local, remote, len: 4096 };
            let failure = subject.execute(&near, opcode, &[entry]).expect_err("a range that wraps");
            assert_eq!(failure.error.code(), Code::RemoteRefused, "{failure}");
            subject.refresh();
        }
    }
    assert!(near.get(local, 4096) == [1; 4096]);
}

/// Eight threads, each on its own slice, all at once.
pub fn threads_share_the_path(subject: &Subject) {
    let (near, threads, len) = (Side::new(), 8u64, 200_000u64);
    let total = (threads * len) as usize;
    let (local, remote) = (near.buffer(&pattern(total, 6)), subject.far.buffer(&vec![0; total]));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let entry = Entry { local: local + thread * len, remote: remote + thread * len, len };
            let near = &near;
            scope.spawn(move || {
                for _ in 0..10 {
                    subject.execute(near, Opcode::Write, &[entry]).expect("a legal write");
                    subject.execute(near, Opcode::Read, &[entry]).expect("a legal read");
                }
            });
        }
    });
    assert!(subject.far.get(remote, total) == near.get(local, total));
}

/// A call whose deadline has passed ends at once; applied or not, it says which.
pub fn a_passed_deadline_ends_the_call(subject: &Subject) {
    let near = Side::new();
    let len = 8 << 20;
    let (local, remote) = (near.buffer(&vec![1; len]), subject.far.buffer(&vec![0; len]));
    let entry = Entry { local, remote, len: len as u64 };
    let since = Instant::now();
    let outcome = subject.execute_until(&near, Opcode::Write, &[entry], Some(since));
    assert!(since.elapsed() < Duration::from_secs(1));
    match outcome {
        Ok(()) => assert!(subject.far.get(remote, len) == vec![1; len]),
        Err(failure) => assert_eq!(failure.error.code(), Code::DeadlineExceeded, "{failure}"),
    }
}

/// A call stopped at its first wait: soon over, nothing of it moves afterwards, and the next call works.
pub fn a_stopped_call_is_over_when_it_says_so(subject: &Subject) {
    let near = Side::new();
    let len = 4 << 20;
    let (local, remote) = (near.buffer(&vec![1; len]), subject.far.buffer(&vec![0; len]));
    let entries: Vec<_> = (0..64)
        .map(|at| (at << 16, 1 << 16))
        .map(|(at, len)| Entry { local: local + at, remote: remote + at, len })
        .collect();
    for opcode in [Opcode::Write, Opcode::Read] {
        let since = Instant::now();
        let outcome = subject.execute_with(&near, opcode, &entries, None, &|| Some(Stop::Cancelled));
        assert!(since.elapsed() < Duration::from_secs(2));
        let after = (near.get(local, len), subject.far.get(remote, len));
        if let Err(failure) = &outcome {
            assert_eq!(failure.error.code(), Code::Cancelled, "{failure}");
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!((near.get(local, len), subject.far.get(remote, len)) == after);
        subject.refresh();
        subject.execute(&near, opcode, &entries).expect("a call behind a stopped one");
        assert!(near.get(local, len) == subject.far.get(remote, len));
    }
}

/// Once the far side's unregister has returned, no byte of that memory changes, whatever writers do.
pub fn unregister_is_a_fence(subject: &Subject) {
    let near = Side::new();
    let len = 1 << 20;
    let local = near.buffer(&vec![0xaa; len]);
    // It stays mapped after it is unregistered, so that it can be looked at.
    let range = subject.far.range(len as u64);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopped = StopAtEnd(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let entry = Entry { local, remote: range.addr(), len: len as u64 };
                if subject.execute(&near, Opcode::Write, &[entry]).is_err() {
                    subject.refresh();
                }
            }
        });
        for round in 0..20 {
            std::thread::sleep(Duration::from_millis(3));
            subject.far.regions.unregister(range.addr(), Duration::from_secs(10)).expect("a fence in time");
            let pattern = vec![round as u8; len];
            Side::poke(range, &pattern);
            std::thread::sleep(Duration::from_millis(2));
            assert!(Side::peek(range) == pattern, "round {round}: a byte changed behind the fence");
            subject.far.regions.register(range, RegionOptions::default()).expect("a free range");
        }
    });
}

/// Ends the writers when the check ends, also by a panic: the scope waits for them.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
