//! Carrying out one batch over a link: docs/same-host.md, "The fence", the initiator's side.
//!
//! Owns the pieces, the check of remote ranges, and what the kernel's errors mean. Per descriptor it takes no lock,
//! allocates nothing, and makes no system call but the copy itself.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_memory::Want;
use moonrail_memory::cross::{CrossStorage, HeldCopy, read_exact};
use moonrail_memory::far::Stores;
use moonrail_sys::errno;
use moonrail_transport::{Control, Opcode, Stage, Target, WAIT_SLICE, Work};

use crate::blocks::Mapped;
use crate::connect::ESRCH;
use crate::entry_page::Entry as PageEntry;
use crate::failure::{Case, Trouble, WhyNot, is_forbidden};
use crate::link::{Link, Seen};
use crate::plain::{Plain, Stopped};
use crate::view::{Found, Miss, View};

/// Most bytes copied between two looks at the mirror: about a millisecond, which is what an unregister waits for.
const PIECE: u64 = 4 << 20;

/// Copies the whole batch.
pub(crate) fn carry_out(
    link: &Link,
    target: &Target,
    work: &Work<'_>,
    control: &Control<'_>,
) -> Result<(), Trouble> {
    let Some(Bounds { low, high, bytes }) = bounds(work) else { return Ok(()) };
    let mut batch = Batch {
        link,
        case: Case { target, work, index: 0, started: false },
        low,
        high,
        offset: 0,
        checked: None,
        born_by: u64::MAX,
        stores: Stores::for_bytes(bytes),
        asked: None,
    };
    let began = Instant::now();
    if control.expired(began) {
        return Err(batch.case.deadline(Stage::Transfer));
    }
    if !link.alive() {
        return Err(batch.gone());
    }
    let mut entry = batch.claim(control)?;
    let mut list = HeldCopy::from_storage(entry.take_storage());
    let outcome = batch.run(&entry, &mut list, control, began);
    let storage: CrossStorage = list.into_storage();
    entry.give_storage(storage);
    outcome?;
    // Only a target that is alive now can have been the one that the copies reached.
    if link.alive() { Ok(()) } else { Err(batch.gone()) }
}

/// The bounds of all remote addresses, and all bytes.
struct Bounds {
    low: u64,
    high: u64,
    bytes: u64,
}

/// `None` when there is nothing to move.
fn bounds(work: &Work<'_>) -> Option<Bounds> {
    let mut bounds = Bounds { low: u64::MAX, high: 0, bytes: 0 };
    for entry in work.entries.iter().filter(|entry| entry.len > 0) {
        bounds.low = bounds.low.min(entry.remote);
        bounds.high = bounds.high.max(entry.remote.saturating_add(entry.len));
        bounds.bytes = bounds.bytes.saturating_add(entry.len);
    }
    (bounds.bytes > 0).then_some(bounds)
}

struct Batch<'a> {
    link: &'a Link,
    /// With the first entry that is not copied whole.
    case: Case<'a>,
    low: u64,
    high: u64,
    /// Bytes of that entry that are copied.
    offset: u64,
    /// The version that the rest of the batch was last checked at.
    checked: Option<u64>,
    /// Regions younger than this did not exist when the batch began.
    born_by: u64,
    /// How plain copies are stored.
    stores: Stores,
    /// The last block that was asked for.
    asked: Option<u32>,
}

/// How the next piece is copied.
enum Way {
    /// With the processor's own loads and stores, beginning in this region.
    Plain(Found),
    /// By the kernel.
    Across,
    /// Plainly, once this block is mapped here.
    Ask(u32),
}

impl<'a> Batch<'a> {
    fn claim(&self, control: &Control<'_>) -> Result<PageEntry<'a>, Trouble> {
        if let Some(entry) = self.link.entries.claim(Duration::ZERO) {
            return Ok(entry);
        }
        let limit = Instant::now() + control.progress;
        let mut patience = Duration::ZERO;
        loop {
            if let Some(entry) = self.link.entries.claim(patience) {
                return Ok(entry);
            }
            if let Some(stop) = (control.stop)() {
                return Err(self.case.stopped(Stage::Transfer, stop));
            }
            let now = Instant::now();
            match control.slice(now, limit) {
                Some(slice) => patience = slice,
                None if control.expired(now) => return Err(self.case.deadline(Stage::Transfer)),
                None => return Err(self.case.crowded()),
            }
        }
    }

    fn run(
        &mut self,
        entry: &PageEntry<'_>,
        list: &mut HeldCopy<'a>,
        control: &Control<'_>,
        began: Instant,
    ) -> Result<(), Trouble> {
        let mut looked = began;
        loop {
            self.piece(entry, list)?;
            if self.case.index >= self.case.work.entries.len() {
                return Ok(());
            }
            let now = Instant::now();
            if control.expired(now) {
                return Err(self.case.deadline(Stage::Transfer));
            }
            if now.saturating_duration_since(looked) >= WAIT_SLICE {
                looked = now;
                if let Some(stop) = (control.stop)() {
                    return Err(self.case.stopped(Stage::Transfer, stop));
                }
            }
            if !self.link.alive() {
                return Err(self.gone());
            }
        }
    }

    /// Enters, checks what has to be checked, copies one piece, leaves.
    fn piece(&mut self, entry: &PageEntry<'_>, list: &mut HeldCopy<'a>) -> Result<(), Trouble> {
        let inside = entry.enter(self.low, self.high, self.link.version());
        let seen =
            self.link.seen_at(self.link.version()).map_err(|bad| self.case.nonsense(&bad.to_string()))?;
        if self.checked != Some(seen.view.version()) {
            self.check(&seen.view)?;
        }
        self.skip_empty();
        match self.way(&seen) {
            Way::Plain(first) => {
                let mapped = Arc::clone(&seen.mapped);
                drop(seen);
                let (stopped, copied) = self.plain(&mapped, first).copy(PIECE);
                self.advance(copied);
                if copied == 0 && stopped == Stopped::NotPlain {
                    self.copy_across(list)?;
                }
            }
            Way::Across => {
                drop(seen);
                self.copy_across(list)?;
            }
            Way::Ask(block) => {
                drop(seen);
                // Nobody is to wait for this thread meanwhile.
                drop(inside);
                self.link.fetch(block);
                self.asked = Some(block);
                return Ok(());
            }
        }
        self.skip_empty();
        Ok(())
    }

    /// How the first entry that is left can be copied.
    fn way(&self, seen: &Seen) -> Way {
        let Case { work, index, .. } = self.case;
        let Some(entry) = work.entries.get(index) else { return Way::Across };
        let near = work.holds.find(entry.local, entry.len, &mut 0);
        if near.is_none_or(|hold| hold.region().backing.is_none()) {
            return Way::Across;
        }
        let found = seen.view.find(entry.remote, entry.len, Want::Read, u64::MAX);
        let Some((found, (block, _))) = found.ok().and_then(|found| Some((found, found.backing?))) else {
            return Way::Across;
        };
        if seen.mapped.get(block).is_some() {
            Way::Plain(found)
        } else if self.asked == Some(block) {
            Way::Across
        } else {
            Way::Ask(block)
        }
    }

    fn plain<'p>(&'p self, mapped: &'p Mapped, first: Found) -> Plain<'p> {
        let Case { work, index, .. } = self.case;
        let (link, version) = (self.link, self.checked.unwrap_or(0));
        Plain { link, mapped, work, index, offset: self.offset, version, region: first, stores: self.stores }
    }

    /// Has the kernel copy one list.
    fn copy_across(&mut self, list: &mut HeldCopy<'a>) -> Result<(), Trouble> {
        self.fill(list)?;
        while list.bytes() > 0 {
            let copied = match self.case.work.opcode {
                Opcode::Read => list.read_from(self.link.pid),
                Opcode::Write => list.write_to(self.link.pid),
            };
            match copied {
                Ok(count @ 1..) => {
                    self.advance(count as u64);
                    list.advance(count);
                }
                // A fault that the kernel does not name yet is named when it is asked again; should it not be, this ends.
                Ok(_) => return Err(self.fault()),
                Err(error) => return Err(self.kernel(&error)),
            }
        }
        Ok(())
    }

    /// Checks every remote range from here on.
    fn check(&mut self, view: &View) -> Result<(), Trouble> {
        if view.closed() {
            return Err(self.gone());
        }
        let Case { work, index: first, .. } = self.case;
        let want = match work.opcode {
            Opcode::Read => Want::Read,
            Opcode::Write => Want::Write,
        };
        let (mut start, mut end) = (0, 0);
        for (index, entry) in work.entries.iter().enumerate().skip(first) {
            let inside =
                entry.remote >= start && entry.remote.checked_add(entry.len).is_some_and(|last| last <= end);
            if inside || entry.len == 0 {
                continue;
            }
            match view.find(entry.remote, entry.len, want, self.born_by) {
                Ok(region) => (start, end) = (region.start, region.end),
                Err(Miss::Outside { .. }) if view.left_out() => {
                    return Err(Case { index, ..self.case }.not_listed());
                }
                Err(miss) => return Err(Case { index, ..self.case }.refused(&miss.to_string())),
            }
        }
        if self.checked.is_none() {
            self.born_by = view.newest();
        }
        self.checked = Some(view.version());
        Ok(())
    }

    /// Puts the next pieces into the list: as many as one call takes, [`PIECE`] bytes at most.
    fn fill(&self, list: &mut HeldCopy<'a>) -> Result<(), Trouble> {
        list.clear();
        let Case { work, index: first, .. } = self.case;
        let (mut offset, mut room, mut hint) = (self.offset, PIECE, 0);
        for (index, entry) in work.entries.iter().enumerate().skip(first) {
            if room == 0 || list.is_full() {
                break;
            }
            let len = (entry.len - offset).min(room);
            if len > 0 {
                let local = entry.local.wrapping_add(offset);
                let hold = work.holds.find(local, len, &mut hint);
                hold.and_then(|hold| list.push(hold, local, entry.remote + offset, len).ok())
                    .ok_or_else(|| Case { index, ..self.case }.not_held())?;
            }
            (offset, room) = (0, room - len);
        }
        Ok(())
    }

    /// Counts `count` bytes as copied.
    fn advance(&mut self, count: u64) {
        self.case.started |= count > 0;
        let mut left = count;
        while let Some(entry) = self.case.work.entries.get(self.case.index) {
            let rest = entry.len - self.offset;
            if left < rest {
                self.offset += left;
                return;
            }
            if left == 0 && rest > 0 {
                return;
            }
            left -= rest;
            (self.case.index, self.offset) = (self.case.index + 1, 0);
        }
    }

    fn skip_empty(&mut self) {
        let rest = self.case.work.entries.get(self.case.index..).unwrap_or_default();
        if self.offset == 0 {
            self.case.index += rest.iter().take_while(|entry| entry.len == 0).count();
        }
    }

    fn gone(&self) -> Trouble {
        self.case.gone(Stage::Transfer, "the peer's process, or its engine, has ended")
    }

    fn kernel(&self, error: &io::Error) -> Trouble {
        if error.raw_os_error() == Some(ESRCH) || self.link.gone() {
            self.gone()
        } else if errno::is_bad_address(error) {
            self.fault()
        } else if is_forbidden(error) {
            self.case.cannot(Stage::Transfer, WhyNot::forbidden(error))
        } else {
            self.case.system(Stage::Transfer, "the kernel's cross-memory copy", error)
        }
    }

    /// Finds out which side is not mapped: the source is read by itself.
    fn fault(&self) -> Trouble {
        let Case { work, index, .. } = self.case;
        let Some(entry) = work.entries.get(index) else { return self.case.local_fault() };
        let (local, remote) = (entry.local.wrapping_add(self.offset), entry.remote.wrapping_add(self.offset));
        let mut byte = [0];
        let source_is_there = match work.opcode {
            Opcode::Write => {
                work.holds.find(local, 1, &mut 0).is_some_and(|hold| hold.copy_out(local, &mut byte).is_ok())
            }
            Opcode::Read => read_exact(self.link.pid, remote, &mut byte).is_ok(),
        };
        if source_is_there == (work.opcode == Opcode::Write) {
            self.case.not_mapped()
        } else {
            self.case.local_fault()
        }
    }
}
