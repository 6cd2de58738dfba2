//! How many lanes one large transfer is striped over: more only while that makes it faster.
//!
//! Owns the decision, from measured goodput to a number of lanes. It must not know sockets, nor read a clock.
//!
//! A number of lanes is judged by windows of busy time. One lane more is tried when a transfer could use it, and kept if
//! two windows in a row are clearly better than the last one before; else the next trial waits, twice as long each time.
//! Now and then one lane fewer is tried the same way, and kept if it is as good. An idle peer starts again with one.

use std::time::{Duration, Instant};

/// Busy time and bytes of one window; both must be reached.
const WINDOW: Duration = Duration::from_millis(50);
const WINDOW_BYTES: u64 = 32 << 20;
/// Windows that must agree before a trial is won.
const AGREE: u32 = 2;
/// A lane more must give at least this factor, or half of what it would add if all lanes were equally fast.
const BETTER: f64 = 1.15;
const FAIR_SHARE: f64 = 0.5;
/// A lane fewer must keep at least this factor.
const AS_GOOD: f64 = 0.97;
/// Pause after a trial that was lost, doubled each time up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// How long a number of lanes stays before one fewer is tried.
const SHRINK_AFTER: Duration = Duration::from_secs(10);
/// Without a large transfer for this long, what was learnt is out of date.
const FORGET_AFTER: Duration = Duration::from_secs(10);

/// One large transfer that has ended well.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Lanes it was striped over.
    pub lanes: usize,
    /// Lanes it was long enough for.
    pub could_use: usize,
    pub bytes: u64,
    pub took: Duration,
}

/// The controller for one peer.
#[derive(Debug)]
pub(super) struct Growth {
    max: usize,
    lanes: usize,
    window: Window,
    trial: Option<Trial>,
    pause: Duration,
    /// No trial before.
    rest_until: Option<Instant>,
    /// When the present number was settled on.
    since: Option<Instant>,
    last: Option<Instant>,
}

#[derive(Debug, Default)]
struct Window {
    bytes: u64,
    busy: Duration,
    could_use: usize,
}

/// Another number of lanes, on probation.
#[derive(Debug)]
struct Trial {
    /// What it is compared with.
    before: f64,
    from: usize,
    /// The first window pays for new connections; it does not count.
    warm: bool,
    won: u32,
}

impl Growth {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            lanes: 1,
            window: Window::default(),
            trial: None,
            pause: PAUSE,
            rest_until: None,
            since: None,
            last: None,
        }
    }

    /// Lanes for a large transfer that begins now.
    pub(super) fn lanes(&mut self, now: Instant) -> usize {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > FORGET_AFTER) {
            *self = Self::new(self.max);
        }
        self.lanes
    }

    /// Takes in a transfer that ended at `now`. One that got other lanes than it should have says nothing.
    pub(super) fn saw(&mut self, now: Instant, sample: Sample) {
        self.last = Some(now);
        // A few transfers in a row are no reason to open connections.
        self.rest_until.get_or_insert(now + PAUSE);
        if sample.lanes != self.lanes.min(sample.could_use) {
            return;
        }
        self.window.bytes += sample.bytes;
        self.window.busy += sample.took;
        self.window.could_use = self.window.could_use.max(sample.could_use);
        if self.window.busy < WINDOW || self.window.bytes < WINDOW_BYTES {
            return;
        }
        let window = std::mem::take(&mut self.window);
        let goodput = window.bytes as f64 / window.busy.as_secs_f64();
        match self.trial.take() {
            Some(trial) => self.judge(now, trial, goodput),
            None => self.consider(now, window.could_use, goodput),
        }
    }

    fn consider(&mut self, now: Instant, could_use: usize, goodput: f64) {
        if self.rest_until.is_some_and(|until| now < until) {
            return;
        }
        let settled = *self.since.get_or_insert(now);
        let long_enough = now.saturating_duration_since(settled) >= SHRINK_AFTER;
        let next = if self.lanes > 1 && long_enough {
            self.lanes - 1
        } else if self.lanes < self.max.min(could_use) {
            self.lanes + 1
        } else {
            return;
        };
        self.trial = Some(Trial { before: goodput, from: self.lanes, warm: true, won: 0 });
        self.lanes = next;
    }

    fn judge(&mut self, now: Instant, mut trial: Trial, goodput: f64) {
        if std::mem::take(&mut trial.warm) {
            self.trial = Some(trial);
            return;
        }
        let grown = self.lanes > trial.from;
        let enough = if grown { BETTER.min(1.0 + FAIR_SHARE / trial.from as f64) } else { AS_GOOD };
        if goodput < trial.before * enough {
            self.lanes = trial.from;
            self.since = Some(now);
            self.rest_until = Some(now + self.pause);
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            return;
        }
        trial.won += 1;
        if trial.won < AGREE {
            self.trial = Some(trial);
            return;
        }
        self.since = Some(now);
        self.pause = PAUSE;
        // A smaller number that is as good is not left again at once.
        self.rest_until = Some(if grown { now } else { now + SHRINK_AFTER });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer whose goodput in bytes a second depends on the lanes; each transfer is 64 MiB.
    struct Peer {
        growth: Growth,
        now: Instant,
        rate: fn(usize) -> f64,
        could_use: usize,
        /// Transfers that were made with a number of lanes.
        used: Vec<usize>,
    }

    impl Peer {
        fn new(rate: fn(usize) -> f64) -> Self {
            Self { growth: Growth::new(8), now: Instant::now(), rate, could_use: 16, used: vec![0; 9] }
        }

        fn transfers(&mut self, count: usize) -> usize {
            for _ in 0..count {
                let lanes = self.growth.lanes(self.now).min(self.could_use);
                self.used[lanes] += 1;
                let bytes = 64 << 20;
                let took = Duration::from_secs_f64(bytes as f64 / (self.rate)(lanes));
                self.now += took;
                self.growth.saw(self.now, Sample { lanes, could_use: self.could_use, bytes, took });
            }
            self.growth.lanes
        }
    }

    #[test]
    fn lanes_grow_as_far_as_goodput_does() {
        // Each flow is held to 100 MB/s, the line carries 400.
        let mut peer = Peer::new(|lanes| 1e8 * lanes.min(4) as f64);
        assert_eq!(peer.transfers(40), 4);
        let mut line = Peer::new(|lanes| 1e8 * lanes as f64);
        assert_eq!(line.transfers(90), 8, "up to the most allowed");
    }

    #[test]
    fn where_one_lane_is_as_good_it_stays_one_and_trials_become_rare() {
        let mut peer = Peer::new(|lanes| 4e9 / lanes as f64);
        peer.transfers(20_000);
        assert_eq!(peer.growth.lanes, 1);
        assert!(peer.used[2] < 100, "{:?}", peer.used);
        assert_eq!(peer.used[3..].iter().sum::<usize>(), 0);
        let mut level = Peer::new(|_| 4e9);
        level.transfers(20_000);
        assert!(level.used[2] < 100, "{:?}", level.used);
    }

    #[test]
    fn a_lane_that_no_longer_pays_is_given_up() {
        let mut peer = Peer::new(|lanes| 1e8 * lanes.min(3) as f64);
        assert_eq!(peer.transfers(40), 3);
        peer.rate = |_| 1e8;
        peer.transfers(200);
        assert_eq!(peer.growth.lanes, 1);
    }

    #[test]
    fn short_transfers_and_other_lanes_ask_for_nothing() {
        let mut peer = Peer::new(|lanes| 1e8 * lanes as f64);
        peer.could_use = 1;
        assert_eq!(peer.transfers(50), 1);
        peer.could_use = 2;
        assert_eq!(peer.transfers(50), 2);
        let sample = Sample { lanes: 1, could_use: 16, bytes: 1 << 40, took: Duration::from_secs(1) };
        peer.growth.saw(peer.now, sample);
        assert_eq!(peer.growth.lanes, 2);
    }

    #[test]
    fn an_idle_peer_starts_again() {
        let mut peer = Peer::new(|lanes| 1e8 * lanes.min(4) as f64);
        assert_eq!(peer.transfers(40), 4);
        peer.now += FORGET_AFTER * 2;
        assert_eq!(peer.growth.lanes(peer.now), 1);
    }
}
