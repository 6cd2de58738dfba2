//! What the benchmark's threads do, and what comes out of it.

use std::sync::Barrier;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use moonrail::{Engine, Entry, Error, Opcode, Request};

/// The workload of all threads together.
pub(super) struct Load {
    pub(super) peer: String,
    pub(super) opcode: Opcode,
    pub(super) block: u64,
    pub(super) batch: u64,
    pub(super) threads: u64,
    pub(super) local: u64,
    pub(super) remote: u64,
}

/// What the threads share while they run.
pub(super) struct Shared {
    duration: Duration,
    begun: OnceLock<Instant>,
    failed: AtomicBool,
    /// Bytes moved so far.
    pub(super) bytes: AtomicU64,
    pub(super) start: OnceLock<Barrier>,
}

/// One thread's share of the result, or of all.
pub(super) struct Outcome {
    pub(super) batches: u64,
    /// Nanoseconds a batch.
    pub(super) latency: Histogram<u64>,
    /// From the common start to the end of the last batch.
    pub(super) time: Duration,
}

impl Shared {
    pub(super) fn new(duration: Duration) -> Self {
        Self {
            duration,
            begun: OnceLock::new(),
            failed: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            start: OnceLock::new(),
        }
    }

    /// Since the common start; zero before it.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    fn over(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.elapsed() >= self.duration
    }
}

impl Load {
    /// One thread: a batch that does not count, which connects and touches the far side's memory, then the rest.
    pub(super) fn work(&self, thread: u64, engine: &Engine, shared: &Shared) -> Result<Outcome, Error> {
        let request = self.request(thread);
        let warm = engine.transfer(&request);
        if warm.is_err() {
            shared.failed.store(true, Ordering::Relaxed);
        }
        shared.start.get_or_init(|| Barrier::new(self.threads as usize)).wait();
        let begun = *shared.begun.get_or_init(Instant::now);
        warm?;
        let mut outcome = Outcome { batches: 0, latency: histogram(), time: Duration::ZERO };
        while !shared.over() {
            let started = Instant::now();
            if let Err(error) = engine.transfer(&request) {
                shared.failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
            outcome.latency.saturating_record(started.elapsed().as_nanos() as u64);
            outcome.batches += 1;
            shared.bytes.fetch_add(self.block * self.batch, Ordering::Relaxed);
        }
        outcome.time = begun.elapsed();
        Ok(outcome)
    }

    /// The batch of one thread; the blocks of all threads lie side by side.
    fn request(&self, thread: u64) -> Request {
        let entry = |index: u64| {
            let offset = (thread * self.batch + index) * self.block;
            Entry { local: self.local + offset, remote: self.remote + offset, len: self.block }
        };
        Request::new(self.peer.clone(), self.opcode, (0..self.batch).map(entry).collect())
    }
}

impl Outcome {
    /// All threads' outcomes as one, or the first failure.
    pub(super) fn merge(parts: Vec<Result<Outcome, Error>>) -> Result<Outcome, Error> {
        let mut all = Outcome { batches: 0, latency: histogram(), time: Duration::ZERO };
        for part in parts {
            let part = part?;
            all.batches += part.batches;
            all.latency.add(&part.latency).expect("invariant: every histogram has the same bounds");
            all.time = all.time.max(part.time);
        }
        Ok(all)
    }
}

/// 1 us to 1 hour, three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1000, 3_600_000_000_000, 3).expect("invariant: the bounds are in order")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_all_threads_cover_the_buffer_once() {
        let load = Load {
            peer: "x:1".to_owned(),
            opcode: Opcode::Write,
            block: 4096,
            batch: 7,
            threads: 3,
            local: 1 << 20,
            remote: 1 << 30,
        };
        let entries: Vec<Entry> = (0..3).flat_map(|thread| load.request(thread).entries).collect();
        assert_eq!(entries.len(), 21);
        for (index, entry) in entries.iter().enumerate() {
            let offset = index as u64 * 4096;
            assert_eq!(
                (entry.local, entry.remote, entry.len),
                ((1 << 20) + offset, (1 << 30) + offset, 4096)
            );
        }
    }
}
