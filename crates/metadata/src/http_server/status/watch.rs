//! The reports of engines, asked for only while somebody looks, and what has changed between two of them.
//!
//! Owns when engines are asked, how many at once, and how long what they said is kept. Knows no page.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::asking::Asker;
use super::report::{Report, Totals};

/// Engines asked at the same time.
pub(crate) const FETCHES: usize = 16;
/// A round ends after this, whoever has not answered yet: what comes later is shown by the next.
const ROUND: Duration = Duration::from_millis(1000);
/// Engines asked at all: what is kept of one may come to a hundred kilobytes.
pub(super) const AT_MOST: usize = 1024;
/// An engine that does not answer is asked again after this.
const REST: Duration = Duration::from_secs(3);
/// How long a failure or a figure is of interest.
pub(super) const WINDOW: Duration = Duration::from_secs(300);
/// Two figures further apart than this have no rate between them that is worth a point: nobody was looking.
const GAP: Duration = Duration::from_secs(15);
/// Points of the plots: a round takes at least a second.
const POINTS: usize = 300;

/// One engine to ask.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// The segment's key.
    pub(super) key: String,
    pub(super) url: String,
    /// The segment's, as its report has to have it.
    pub(super) epoch: String,
}

#[derive(Debug)]
pub(super) struct Watch {
    asker: Asker,
    places: Arc<Semaphore>,
    engines: Arc<Mutex<HashMap<String, Watched>>>,
    points: Mutex<VecDeque<Point>>,
}

/// What is known of one engine.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    url: String,
    asked: Instant,
    /// Its latest report and when it came.
    pub(super) report: Option<(Instant, Arc<Report>)>,
    /// Why the latest question had no answer.
    pub(super) trouble: Option<String>,
    /// Since when it has not answered.
    troubled: Option<Instant>,
    pub(super) rate: Option<Rate>,
    /// Bytes a second, read and written, for a small plot.
    pub(super) history: VecDeque<(Instant, f64)>,
    /// By peer, the rate of each.
    pub(super) peers: HashMap<String, Rate>,
}

/// Between two reports, a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) read: f64,
    pub(super) written: f64,
    pub(super) failures: f64,
}

/// The whole cluster's rate at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) at: Instant,
    pub(super) rate: Rate,
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch {
            asker: Asker::new(),
            places: Arc::new(Semaphore::new(FETCHES)),
            engines: Arc::default(),
            points: Mutex::default(),
        }
    }

    /// Asks these engines (the first [`AT_MOST`]), those that were not asked for longest first, and forgets all others. Takes about a second at most; must be called inside a runtime, and
    /// not twice at a time.
    pub(super) async fn round(&self, targets: Vec<Target>) {
        let started = Instant::now();
        let due = self.due(targets, started);
        let mut asking = JoinSet::new();
        for target in due {
            let (places, engines, asker) =
                (Arc::clone(&self.places), Arc::clone(&self.engines), self.asker.clone());
            asking.spawn(async move {
                let Ok(place) = places.acquire_owned().await else { return };
                // What has begun is brought to its end, in its own time, although the round is over.
                let _ = tokio::task::spawn_blocking(move || {
                    let _place = place;
                    let answer = asker.ask(&target.url);
                    if let Some(watched) = engines.lock().get_mut(&target.key) {
                        watched.take(answer, &target.epoch, Instant::now());
                    }
                })
                .await;
            });
        }
        let all = async { while asking.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(ROUND, all).await;
        self.add_point(started);
    }

    /// What is known of all engines that are asked, by their segments' keys.
    pub(super) fn engines(&self) -> HashMap<String, Watched> {
        self.engines.lock().clone()
    }

    /// The cluster's rates, the oldest first.
    pub(super) fn points(&self) -> Vec<Point> {
        self.points.lock().iter().copied().collect()
    }

    fn due(&self, mut targets: Vec<Target>, now: Instant) -> Vec<Target> {
        targets.truncate(AT_MOST);
        let mut engines = self.engines.lock();
        let urls: HashMap<&str, &str> =
            targets.iter().map(|target| (target.key.as_str(), target.url.as_str())).collect();
        engines.retain(|key, watched| urls.get(key.as_str()) == Some(&watched.url.as_str()));
        let asked = |target: &Target| engines.get(&target.key).map(|watched| watched.asked);
        let rests = |target: &Target| {
            engines
                .get(&target.key)
                .is_some_and(|w| w.trouble.is_some() && now.duration_since(w.asked) < REST)
        };
        let mut due: Vec<(Option<Instant>, Target)> = targets
            .into_iter()
            .filter(|target| !rests(target))
            .map(|target| (asked(&target), target))
            .collect();
        due.sort_by_key(|(asked, _)| *asked);
        for (_, target) in &due {
            let watched = engines.entry(target.key.clone()).or_insert_with(|| Watched::new(&target.url, now));
            watched.asked = now;
        }
        due.into_iter().map(|(_, target)| target).collect()
    }

    fn add_point(&self, round: Instant) {
        let mut sum = Rate::default();
        let mut any = false;
        for watched in self.engines.lock().values() {
            let recent = watched.report.as_ref().is_some_and(|(at, _)| *at >= round);
            if let Some(rate) = watched.rate.filter(|_| recent) {
                any = true;
                sum.read += rate.read;
                sum.written += rate.written;
                sum.failures += rate.failures;
            }
        }
        let mut points = self.points.lock();
        while points.front().is_some_and(|point| round.duration_since(point.at) > WINDOW)
            || points.len() >= POINTS
        {
            points.pop_front();
        }
        if any {
            points.push_back(Point { at: Instant::now(), rate: sum });
        }
    }
}

impl Watched {
    fn new(url: &str, now: Instant) -> Watched {
        Watched {
            url: url.to_owned(),
            asked: now,
            report: None,
            trouble: None,
            troubled: None,
            rate: None,
            history: VecDeque::new(),
            peers: HashMap::new(),
        }
    }

    /// Seconds for which it has not answered.
    pub(super) fn silent_for(&self) -> u64 {
        self.troubled.map_or(0, |since| since.elapsed().as_secs())
    }

    fn take(&mut self, answer: Result<Report, String>, epoch: &str, now: Instant) {
        let answer = answer.and_then(|report| {
            if report.epoch == epoch {
                Ok(report)
            } else {
                Err(format!("another engine answers there, of epoch {}", report.epoch))
            }
        });
        match answer {
            Err(why) => {
                self.trouble = Some(why);
                self.troubled.get_or_insert(now);
                self.rate = None;
                self.peers.clear();
            }
            Ok(report) => {
                let since = self.report.take().filter(|(at, _)| now.duration_since(*at) <= GAP);
                self.rate = since.as_ref().and_then(|(at, before)| {
                    Rate::between(before.totals, report.totals, now.duration_since(*at))
                });
                self.peers =
                    since.map(|(at, before)| peer_rates(&before, &report, now - at)).unwrap_or_default();
                if let Some(rate) = self.rate {
                    self.history.push_back((now, rate.read + rate.written));
                }
                while self.history.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW)
                    || self.history.len() > POINTS
                {
                    self.history.pop_front();
                }
                (self.trouble, self.troubled) = (None, None);
                self.report = Some((now, Arc::new(report)));
            }
        }
    }
}

fn peer_rates(before: &Report, after: &Report, took: Duration) -> HashMap<String, Rate> {
    let known: HashMap<&str, Totals> =
        before.peers.iter().map(|peer| (peer.name.as_str(), peer.totals)).collect();
    let rate = |name: &str, totals| Rate::between(*known.get(name)?, totals, took);
    after.peers.iter().filter_map(|peer| Some((peer.name.clone(), rate(&peer.name, peer.totals)?))).collect()
}

impl Rate {
    /// `None` where a counter went back: then it is not the same engine's.
    fn between(before: Totals, after: Totals, took: Duration) -> Option<Rate> {
        let seconds = took.as_secs_f64();
        let rate = |before: u64, after: u64| Some(after.checked_sub(before)? as f64 / seconds);
        if seconds <= 0.0 {
            return None;
        }
        Some(Rate {
            read: rate(before.read, after.read)?,
            written: rate(before.written, after.written)?,
            failures: rate(before.failures, after.failures)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_and_a_restart_has_none() {
        let at = |read, failures| Totals { read, failures, ..Totals::default() };
        let rate = Rate::between(at(100, 1), at(300, 2), Duration::from_secs(2));
        assert_eq!(rate, Some(Rate { read: 100.0, written: 0.0, failures: 0.5 }));
        assert_eq!(Rate::between(at(100, 1), at(50, 1), Duration::from_secs(2)), None);
        assert_eq!(Rate::between(at(1, 1), at(2, 1), Duration::ZERO), None);
    }

    #[test]
    fn another_engine_at_the_address_is_not_taken_for_this_one() {
        let now = Instant::now();
        let mut watched = Watched::new("http://h:1/report", now);
        let report = Report { epoch: "00000000000000aa".to_owned(), ..Report::default() };
        watched.take(Ok(report.clone()), "00000000000000bb", now);
        assert!(
            watched.trouble.is_some_and(|why| why.contains("another engine")) && watched.report.is_none()
        );
        let mut watched = Watched::new("http://h:1/report", now);
        watched.take(Ok(report), "00000000000000aa", now);
        assert!(watched.trouble.is_none() && watched.report.is_some());
        watched.take(Err("connection refused".to_owned()), "00000000000000aa", now);
        assert!(
            watched.trouble.is_some() && watched.report.is_some(),
            "its last failures are still of interest"
        );
    }
}
