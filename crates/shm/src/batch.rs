//! Carrying out one batch over a link: who copies, and until when.
//!
//! Owns the batch as a whole: its bounds, what is next, the second thread, deadlines. The copying is a [`Worker`]'s.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moonrail_memory::cross::HeldCopy;
use moonrail_memory::far::Stores;
use moonrail_sys::clock::coarse;
use moonrail_transport::{Control, Stage, Target, WAIT_SLICE, Work};
use parking_lot::Mutex;

use crate::entry_page::{Entry as PageEntry, Seat};
use crate::failure::{Case, Trouble};
use crate::helper::{Helper, Turn};
use crate::link::Link;
use crate::worker::{Place, Worker};

/// Most bytes copied between two looks at the mirror: about a millisecond, which is what an unregister waits for.
const PIECE: u64 = 4 << 20;
/// The same where two threads share a batch: both are to end at about the same time.
const SHARED_PIECE: u64 = 1 << 20;
/// What is copied before a second thread is started. It brings every failure that comes before the first byte.
const FIRST_PIECE: u64 = 64 << 10;

/// Bytes that one thread copies in a nanosecond, and nanoseconds that each descriptor costs besides; roughly.
const BYTES_IN_NANOSECOND: u64 = 24;
const NANOSECONDS_EACH: u64 = 350;

/// A batch that is being carried out.
pub(crate) struct Batch<'a> {
    pub(crate) link: &'a Link,
    pub(crate) case: Case<'a>,
    /// Bounds of all remote addresses.
    pub(crate) low: u64,
    pub(crate) high: u64,
    bytes: u64,
    /// How copies without the kernel are stored.
    pub(crate) stores: Stores,
    /// What nobody has taken yet.
    pub(crate) next: Mutex<Place>,
    /// A thread has failed: the other one takes nothing more.
    given_up: AtomicBool,
}

/// Copies the whole batch.
pub(crate) fn carry_out(
    link: &Link,
    helper: &Helper,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Trouble> {
    let Some(batch) = Batch::new(link, target, work) else { return Ok(()) };
    let began = Instant::now();
    if control.expired(began) {
        return Err(batch.case.deadline(Stage::Transfer));
    }
    if !link.alive(coarse()) {
        return Err(batch.case.over());
    }
    let seat = Seat::own();
    let mut entry = batch.claim(seat, control)?;
    let mut list = HeldCopy::from_storage(entry.take_storage());
    let outcome = match helper.turn(batch.nanoseconds()) {
        None => batch.drive(&mut Worker::new(&batch), &entry, &mut list, PIECE, control, began),
        Some(turn) => batch.share(turn, seat, &entry, &mut list, control, began),
    };
    entry.give_storage(list.into_storage());
    outcome?;
    // Only a target that is alive now can have been the one that the copies reached.
    if link.alive(coarse()) { Ok(()) } else { Err(Case { started: true, ..batch.case }.over()) }
}

/// Copies a small batch if nothing makes that wait; `None`: nothing was applied.
pub(crate) fn at_once(link: &Link, target: &Target, work: &Work<'_>) -> Option<Result<(), Trouble>> {
    let mut batch = Batch::new(link, target, work)?;
    let began = coarse();
    if link.slow(began) || !link.alive(began) {
        return None;
    }
    let mut entry = link.entries.claim(Seat::own(), Duration::ZERO)?;
    let mut list = HeldCopy::from_storage(entry.take_storage());
    let outcome = Worker::new(&batch).only_piece(&mut batch, &entry, &mut list);
    entry.give_storage(list.into_storage());
    let ended = coarse();
    link.took(began, ended);
    let outcome = match outcome? {
        Ok(()) if !link.alive(ended) => Err(Case { started: true, ..batch.case }.over()),
        outcome => outcome,
    };
    // What left no trace is the caller's to try again, with all that belongs to it.
    match outcome {
        Err(trouble) if trouble.failure.untouched => None,
        outcome => Some(outcome),
    }
}

impl<'a> Batch<'a> {
    /// `None` when there is nothing to move.
    fn new(link: &'a Link, target: &'a Target, work: &'a Work<'a>) -> Option<Self> {
        let (mut low, mut high, mut bytes) = (u64::MAX, 0, 0_u64);
        for entry in work.entries {
            bytes = bytes.saturating_add(entry.len);
            if entry.len > 0 {
                low = low.min(entry.remote);
                high = high.max(entry.remote.saturating_add(entry.len));
            }
        }
        (bytes > 0).then(|| Self {
            link,
            case: Case::begun(target, work),
            low,
            high,
            bytes,
            stores: Stores::for_bytes(bytes),
            next: Mutex::new(Place::default()),
            given_up: AtomicBool::new(false),
        })
    }

    /// What it takes one thread.
    fn nanoseconds(&self) -> u64 {
        self.bytes / BYTES_IN_NANOSECOND + self.case.work.entries.len() as u64 * NANOSECONDS_EACH
    }

    fn claim(&self, seat: Seat, control: &Control<'_>) -> Result<PageEntry<'a>, Trouble> {
        if let Some(entry) = self.link.entries.claim(seat, Duration::ZERO) {
            return Ok(entry);
        }
        let limit = Instant::now() + control.progress;
        loop {
            if let Some(stop) = (control.stop)() {
                return Err(self.case.stopped(Stage::Transfer, stop));
            }
            let now = Instant::now();
            let patience = match control.slice(now, limit) {
                Some(slice) => slice,
                None if control.expired(now) => return Err(self.case.deadline(Stage::Transfer)),
                None => return Err(self.case.crowded()),
            };
            if let Some(entry) = self.link.entries.claim(seat, patience) {
                return Ok(entry);
            }
        }
    }

    /// Copies what is left, piece by piece, until there is nothing more or time is up.
    fn drive(
        &self,
        worker: &mut Worker<'a>,
        entry: &PageEntry<'_>,
        list: &mut HeldCopy<'a>,
        piece: u64,
        control: &Control<'_>,
        began: Instant,
    ) -> Result<(), Trouble> {
        let mut looked = began;
        while !self.given_up.load(Ordering::Relaxed) && worker.piece(self, entry, list, piece)? {
            let now = Instant::now();
            if control.expired(now) {
                return Err(worker.case.deadline(Stage::Transfer));
            }
            if now.saturating_duration_since(looked) >= WAIT_SLICE {
                looked = now;
                if let Some(stop) = (control.stop)() {
                    return Err(worker.case.stopped(Stage::Transfer, stop));
                }
            }
            if !self.link.alive(coarse()) {
                return Err(worker.case.over());
            }
        }
        Ok(())
    }

    /// Copies the batch on two threads, each with an entry of its own. Both are done when this returns.
    fn share(
        &self,
        turn: Turn<'_>,
        seat: Seat,
        entry: &PageEntry<'_>,
        list: &mut HeldCopy<'a>,
        control: &Control<'_>,
        began: Instant,
    ) -> Result<(), Trouble> {
        let mut worker = Worker::new(self);
        if !worker.piece(self, entry, list, FIRST_PIECE)? {
            return Ok(());
        }
        let mut second = worker.clone();
        let own = || {
            let outcome = self.drive(&mut worker, entry, list, SHARED_PIECE, control, began);
            self.ended(worker.place(), outcome)
        };
        let other = || {
            let outcome = self.help(&mut second, seat.opposite());
            self.ended(second.place(), outcome)
        };
        let (own, other) = turn.both(own, other);
        // The failure that comes first in the batch.
        match (own, other.unwrap_or(Ok(()))) {
            (Err((at, _)), Err((earlier, trouble))) if earlier < at => Err(trouble),
            (Err((_, trouble)), _) | (Ok(()), Err((_, trouble))) => Err(trouble),
            (Ok(()), Ok(())) => Ok(()),
        }
    }

    /// What the second thread does. The calling thread looks at deadlines for both.
    fn help(&self, worker: &mut Worker<'a>, seat: Seat) -> Result<(), Trouble> {
        let Some(mut entry) = self.link.entries.claim(seat, Duration::ZERO) else { return Ok(()) };
        let mut list = HeldCopy::from_storage(entry.take_storage());
        let mut go_on = || {
            let mut more = true;
            while more && !self.given_up.load(Ordering::Relaxed) {
                more = worker.piece(self, &entry, &mut list, SHARED_PIECE)?;
            }
            Ok(())
        };
        let outcome = go_on();
        entry.give_storage(list.into_storage());
        outcome
    }

    fn ended(&self, at: Place, outcome: Result<(), Trouble>) -> Result<(), (Place, Trouble)> {
        outcome.map_err(|trouble| {
            self.given_up.store(true, Ordering::Relaxed);
            (at, trouble)
        })
    }
}
