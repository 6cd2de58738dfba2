//! Large transfers between Moonrails, over one lane or striped over several.
//!
//! Owns the cutting into parts, one thread a part, and what their outcomes mean for the whole: it succeeds when every part
//! was acknowledged, and a part that fails stops the others before the failure is reported. Over how many lanes is
//! for [`Growth`](super::growth::Growth) to say.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use moonrail_access::Wallet;
use moonrail_transport::{Control, Failure, Opcode, Retry, Stop, Target, WAIT_SLICE, Work};
use moonrail_wire::TraceContext;
use parking_lot::Mutex;

use super::drive;
use super::failure;
use super::growth::Sample;
use super::joining;
use super::pool::{Lent, Pool};
use super::presenting;
use super::rail::{Part, Position};

/// Least bytes of a part: less is over before another thread has begun.
const LEAST: u64 = 4 << 20;
/// Lengths of parts are multiples of this, so that pages of large requests stay whole.
const ALIGN: u64 = 64 << 10;

/// Whether a transfer is large enough to be striped.
pub(super) fn worth_it(bytes: u64) -> bool {
    bytes >= 2 * LEAST
}

pub(super) fn execute(
    pool: &Arc<Pool>,
    wallet: &Wallet,
    trace: Option<TraceContext>,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Failure> {
    let wanted = pool.growth().lock().lanes(Instant::now());
    let sample = over(pool, wallet, trace, target, work, control, wanted)?;
    pool.growth().lock().saw(Instant::now(), sample);
    Ok(())
}

/// Over `wanted` lanes, or as many of them as it is worth and are free.
fn over(
    pool: &Arc<Pool>,
    wallet: &Wallet,
    trace: Option<TraceContext>,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
    wanted: usize,
) -> Result<Sample, Failure> {
    let could_use = usize::try_from(work.bytes() / LEAST).unwrap_or(usize::MAX);
    let wanted = wanted.min(could_use);
    let mut lanes = vec![pool.acquire(target, work, true, control)?];
    while lanes.len() < wanted
        && let Some(lane) = pool.acquire_another(target, work, control)
    {
        lanes.push(lane);
    }
    let mut sample = Sample { lanes: lanes.len(), could_use, bytes: work.bytes(), took: Duration::ZERO };
    sample.took =
        on(lanes, wallet, trace, target, work, control).inspect_err(|failure| pool.learn_failure(failure))?;
    Ok(sample)
}

/// Over these lanes; how long it took.
fn on(
    mut lanes: Vec<Lent>,
    wallet: &Wallet,
    trace: Option<TraceContext>,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<Duration, Failure> {
    for lane in &mut lanes {
        presenting::catch_up(lane, wallet, target, work, control)?;
        joining::join(lane, trace, target, work, control)?;
    }
    let began = Instant::now();
    match lanes.pop() {
        Some(mut only) if lanes.is_empty() => {
            drive::run(&mut only, target, work, control)?;
            only.keep();
        }
        last => Striped { target, work, control, stopped: Mutex::default() }
            .execute(lanes.into_iter().chain(last).collect())?,
    }
    Ok(began.elapsed())
}

/// One transfer over several lanes.
struct Striped<'a> {
    target: &'a Target,
    work: &'a Work<'a>,
    control: &'a Control<'a>,
    stopped: Mutex<Stopped>,
}

/// Why the parts are to end early.
#[derive(Default)]
struct Stopped {
    /// What the caller said, or for the sake of a part that failed.
    stop: Option<Stop>,
    /// The part that failed first.
    cause: Option<usize>,
}

/// How a part failed.
struct Ended {
    failure: Failure,
    /// Every entry of the part in front of this one is known to be applied.
    applied: usize,
}

impl Striped<'_> {
    fn execute(&self, lanes: Vec<Lent>) -> Result<(), Failure> {
        let parts = cut(self.work, self.work.bytes(), lanes.len());
        let (report, reports) = channel();
        let mut outcomes: Vec<Option<Ended>> = parts.iter().map(|_| None).collect();
        thread::scope(|scope| {
            let mut jobs = parts.iter().copied().zip(lanes).enumerate();
            let own = jobs.next();
            let mut left_over = Vec::new();
            for (nth, (part, lane)) in jobs {
                // The lane waits in the slot, so that it is not lost with a thread that cannot be made.
                let slot = Arc::new(Mutex::new(Some(lane)));
                let (theirs, report) = (Arc::clone(&slot), report.clone());
                let job = move || self.helper(nth, part, &theirs, &report);
                if thread::Builder::new().name("moonrail-lane".to_owned()).spawn_scoped(scope, job).is_err() {
                    left_over.extend(slot.lock().take().map(|lane| (nth, (part, lane))));
                }
            }
            drop(report);
            for (nth, (part, lane)) in own.into_iter().chain(left_over) {
                let stop = || self.ask();
                outcomes[nth] = self.part(nth, part, lane, &stop).err();
            }
            loop {
                match reports.recv_timeout(WAIT_SLICE) {
                    Ok((nth, outcome)) => outcomes[nth] = outcome,
                    Err(RecvTimeoutError::Timeout) => drop(self.ask()),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        self.verdict(outcomes)
    }

    fn helper(
        &self,
        nth: usize,
        part: Part,
        lane: &Mutex<Option<Lent>>,
        report: &Sender<(usize, Option<Ended>)>,
    ) {
        let Some(lane) = lane.lock().take() else { return };
        // Only the caller's own thread may ask the caller.
        let outcome = self.part(nth, part, lane, &|| self.stopped.lock().stop).err();
        let _ = report.send((nth, outcome));
    }

    /// Carries out one part. The lane is back, or reset, when this returns.
    fn part(
        &self,
        nth: usize,
        part: Part,
        mut lane: Lent,
        stop: &(dyn Fn() -> Option<Stop> + Sync),
    ) -> Result<(), Ended> {
        let control = Control { stop, ..*self.control };
        match drive::run_rail(&mut lane, self.target, self.work, &control, Some(part)) {
            Ok(()) => lane.keep(),
            Err((failure, applied)) => {
                let mut stopped = self.stopped.lock();
                stopped.cause.get_or_insert(nth);
                stopped.stop.get_or_insert(Stop::Cancelled);
                return Err(Ended { failure, applied });
            }
        }
        Ok(())
    }

    /// Asks the caller, and passes it on to every part.
    fn ask(&self) -> Option<Stop> {
        let said = (self.control.stop)();
        let mut stopped = self.stopped.lock();
        stopped.stop = stopped.stop.or(said);
        stopped.stop
    }

    /// The whole's outcome: that of the part that failed first, with what is known of all.
    fn verdict(&self, mut outcomes: Vec<Option<Ended>>) -> Result<(), Failure> {
        let all_untouched =
            outcomes.iter().all(|outcome| outcome.as_ref().is_some_and(|ended| ended.failure.untouched));
        // The parts in front of the first that failed are applied whole.
        let applied = outcomes.iter().flatten().next().map(|ended| ended.applied);
        let cause = self.stopped.lock().cause;
        let Some(Ended { mut failure, .. }) = cause.and_then(|nth| outcomes[nth].take()) else {
            return Ok(());
        };
        failure.untouched = all_untouched || self.work.opcode == Opcode::Read;
        if !failure.untouched && failure.error.retry() == Retry::Safe {
            failure.error = failure.error.with_retry(Retry::Unsafe);
        }
        if let Some(count) = applied.filter(|_| self.work.entries.len() > 1) {
            failure.error = failure.error.with_note(failure::applied(count, self.work));
        }
        Err(failure)
    }
}

/// Cuts the batch into parts of about the same length, in order.
fn cut(work: &Work<'_>, bytes: u64, count: usize) -> Vec<Part> {
    let each = bytes / count as u64 / ALIGN * ALIGN;
    let mut parts = Vec::with_capacity(count);
    let (mut begin, mut left) = (Position { index: 0, offset: 0 }, bytes);
    for nth in 1..=count {
        let length = if nth == count { left } else { each };
        parts.push(Part { begin, bytes: length });
        left -= length;
        begin = forward(work, begin, length);
    }
    parts
}

/// The place `bytes` further on.
fn forward(work: &Work<'_>, mut at: Position, mut bytes: u64) -> Position {
    while let Some(entry) = work.entries.get(at.index) {
        let rest = entry.len - at.offset;
        if bytes < rest {
            return Position { offset: at.offset + bytes, ..at };
        }
        bytes -= rest;
        at = Position { index: at.index + 1, offset: 0 };
    }
    at
}

#[cfg(test)]
mod tests;
