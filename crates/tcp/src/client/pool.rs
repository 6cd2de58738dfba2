//! The lanes of one peer: who may use them, when they are opened and when they are no longer trusted.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use moonrail_transport::{Code, Control, Dialect, Failure, Retry, Stage, Target, WAIT_SLICE, Work};
use parking_lot::{Condvar, Mutex};

use super::failure::{self, Reached};
use super::growth::Growth;
use super::guards::Guards;
use super::lane::Lane;

/// What a v1 server does with the connection after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ClosingRule {
    /// Not learnt yet.
    #[default]
    Unknown,
    /// It closes (up to 0.3.9).
    ClosesEach,
    /// It keeps it open (from 0.3.10).
    KeepsOpen,
}

/// Up to `max` lanes to one data endpoint.
pub(super) struct Pool {
    max: usize,
    guards: Guards,
    state: Mutex<State>,
    freed: Condvar,
    growth: Mutex<Growth>,
}

#[derive(Default)]
struct State {
    idle: Vec<Lane>,
    /// Idle and lent lanes together.
    open: usize,
    /// Lanes lent to bulk batches.
    bulk: usize,
    /// A lane was lost: descriptors of an older generation may name a process that is gone.
    trusted_from: u64,
    /// Calls that ended because the peer did not move.
    silences: u64,
    closed: bool,
    rule: ClosingRule,
}

impl Pool {
    /// Lanes that are open, lent ones included.
    pub(super) fn open(&self) -> usize {
        self.state.lock().open
    }

    pub(super) fn new(max: usize, guards: Guards) -> Self {
        let growth = Mutex::new(Growth::new(bulk_limit(max)));
        Self { max, guards, state: Mutex::default(), freed: Condvar::new(), growth }
    }

    /// Takes a lane: an idle one that still lives, else a new one, else the next that is given back.
    ///
    /// After a lane was lost no new one is opened on the same generation of the descriptor: the port may belong
    /// to another process by now. The failure says `stale` then, and the engine fetches the descriptor anew.
    pub(super) fn acquire(
        self: &Arc<Self>,
        target: &Target,
        work: &Work<'_>,
        bulk: bool,
        control: &Control<'_>,
    ) -> Result<Lent, Failure> {
        let mut state = self.state.lock();
        let silences = state.silences;
        loop {
            if !bulk || state.bulk < bulk_limit(self.max) {
                if let Some(lane) = pop_usable(&mut state) {
                    state.bulk += usize::from(bulk);
                    return Ok(self.lend(lane, target, bulk));
                }
                // A rail hello names the process that is meant, so a new lane is always safe to open.
                let identified = matches!(target.dialect, Dialect::Rail { .. });
                if !identified && target.generation < state.trusted_from {
                    return Err(lost(target));
                }
                if state.open < self.max {
                    state.open += 1;
                    state.bulk += usize::from(bulk);
                    break;
                }
            }
            if state.silences != silences {
                // It would be waited for once more, by one call after the other.
                let limit = control.progress.as_secs_f64();
                return Err(failure::stalled(target, work, Reached::NOTHING, limit));
            }
            if let Some(stop) = (control.stop)() {
                return Err(failure::stopped(target, work, Reached::NOTHING, stop));
            }
            let now = Instant::now();
            if control.expired(now) {
                return Err(failure::deadline(target, work, Reached::NOTHING, Stage::Connect));
            }
            self.freed.wait_for(&mut state, WAIT_SLICE.min(control.deadline.map_or(WAIT_SLICE, |d| d - now)));
        }
        drop(state);
        match Lane::open(target, work, control, &self.guards) {
            Ok(lane) => Ok(self.lend(lane, target, bulk)),
            Err(failure) => {
                self.give_back(None, bulk, None);
                Err(failure)
            }
        }
    }

    /// Takes note of how a call on one of the lanes failed: where the peer did not move, calls that wait for a lane end
    /// likewise.
    pub(super) fn learn_failure(&self, failure: &Failure) {
        if failure.error.code() == Code::PeerTimeout {
            self.state.lock().silences += 1;
            self.freed.notify_all();
        }
    }

    /// A further lane for a bulk batch that has one already, if there is one free or to be opened now.
    pub(super) fn acquire_another(
        self: &Arc<Self>,
        target: &Target,
        work: &Work<'_>,
        control: &Control<'_>,
    ) -> Option<Lent> {
        let mut state = self.state.lock();
        if state.bulk >= bulk_limit(self.max) {
            return None;
        }
        let idle = pop_usable(&mut state);
        if idle.is_none() && state.open >= self.max {
            return None;
        }
        state.open += usize::from(idle.is_none());
        state.bulk += 1;
        drop(state);
        match idle.map_or_else(|| Lane::open(target, work, control, &self.guards), Ok) {
            Ok(lane) => Some(self.lend(lane, target, true)),
            Err(_) => {
                self.give_back(None, true, None);
                None
            }
        }
    }

    /// What decides over how many lanes large transfers to this peer are striped.
    pub(super) fn growth(&self) -> &Mutex<Growth> {
        &self.growth
    }

    /// How this peer treats a v1 connection after a request, once learnt.
    pub(super) fn rule(&self) -> ClosingRule {
        self.state.lock().rule
    }

    pub(super) fn learn_rule(&self, rule: ClosingRule) {
        self.state.lock().rule = rule;
    }

    pub(super) fn shed_idle(&self) {
        let mut state = self.state.lock();
        state.open -= state.idle.len();
        state.idle.clear();
    }

    /// No lane is kept any more; lent ones are closed when they come back.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.shed_idle();
    }

    fn lend(self: &Arc<Self>, mut lane: Lane, target: &Target, bulk: bool) -> Lent {
        lane.generation = lane.generation.max(target.generation);
        lane.in_step = false;
        Lent { pool: Arc::clone(self), lane: Some(lane), bulk, keep: false }
    }

    fn give_back(&self, lane: Option<Lane>, bulk: bool, lost_generation: Option<u64>) {
        let mut state = self.state.lock();
        state.bulk -= usize::from(bulk);
        match lane {
            Some(lane) if !state.closed => state.idle.push(lane),
            _ => state.open -= 1,
        }
        if let Some(generation) = lost_generation {
            state.trusted_from = state.trusted_from.max(generation + 1);
        }
        drop(state);
        self.freed.notify_one();
    }
}

/// Bulk batches never take the last lane of several.
fn bulk_limit(max: usize) -> usize {
    max.saturating_sub(1).max(1)
}

fn pop_usable(state: &mut State) -> Option<Lane> {
    while let Some(lane) = state.idle.pop() {
        if !lane.unusable() {
            return Some(lane);
        }
        state.open -= 1;
        state.trusted_from = state.trusted_from.max(lane.generation + 1);
    }
    None
}

fn lost(target: &Target) -> Failure {
    let error = moonrail_transport::Error::new(
        Code::PeerGone,
        Stage::Connect,
        Retry::Safe,
        "the connection to the peer was lost since its descriptor was fetched",
    )
    .with_peer(&target.name);
    Failure { error, untouched: true, stale: true }
}

/// A lane lent to one call. Dropped without [`Lent::keep`] it is ended by reset.
pub(super) struct Lent {
    pool: Arc<Pool>,
    lane: Option<Lane>,
    bulk: bool,
    keep: bool,
}

impl Lent {
    /// The exchange ended in step: the lane may serve the next call.
    pub(super) fn keep(mut self) {
        self.keep = true;
    }
}

impl Deref for Lent {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        self.lane.as_ref().expect("invariant: a lent lane is only taken by drop")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Lane {
        self.lane.as_mut().expect("invariant: a lent lane is only taken by drop")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(lane) = self.lane.take() else { return };
        if self.keep || lane.in_step {
            self.pool.give_back(Some(lane), self.bulk, None);
        } else {
            let generation = lane.generation;
            drop(lane);
            self.pool.give_back(None, self.bulk, Some(generation));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use moonrail_memory::HoldSet;
    use moonrail_transport::Opcode;

    use super::*;

    #[test]
    fn a_lane_that_ended_one_call_in_step_must_end_the_next_one_so_too() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pool = Arc::new(Pool::new(1, Guards::default()));
        let target = Target {
            name: "far".to_owned(),
            addresses: vec![listener.local_addr().unwrap()],
            dialect: Dialect::Rail { epoch: 7 },
            tls: None,
            generation: 1,
            same_host: None,
        };
        let work = Work { opcode: Opcode::Write, entries: &[], holds: &HoldSet::default() };
        let limit = Duration::from_secs(5);
        let control = Control { deadline: None, connect: limit, progress: limit, stop: &|| None };
        let lend = || pool.acquire(&target, &work, false, &control).unwrap();
        lend().in_step = true;
        assert_eq!(pool.state.lock().idle.len(), 1);
        // This call broke before its exchange had begun, as when a token finds no answer.
        drop(lend());
        assert_eq!(pool.state.lock().idle.len(), 0);
    }
}
