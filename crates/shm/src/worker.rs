//! One thread's part in a batch, piece by piece: docs/same-host.md, "The fence", the initiator's side.
//!
//! Owns the pieces, the check of remote ranges, how each is copied, and what the kernel's errors mean. Per descriptor it takes no lock,
//! allocates nothing, and makes no system call but the copy itself.

use std::io;
use std::sync::Arc;

use moonrail_memory::Want;
use moonrail_memory::cross::{HeldCopy, MAX_PIECES, read_exact};
use moonrail_sys::errno;
use moonrail_transport::{Opcode, Stage};

use crate::batch::Batch;
use crate::blocks::Mapped;
use crate::connect::ESRCH;
use crate::entry_page::Entry as PageEntry;
use crate::failure::{Case, Trouble, WhyNot, is_forbidden};
use crate::link::Link;
use crate::plain::{Plain, Stopped};
use crate::view::{Found, Miss, View};

/// A byte of a batch: so far into one entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) offset: u64,
}

#[derive(Clone)]
pub(crate) struct Worker<'a> {
    link: &'a Link,
    /// With the first entry that is not copied whole.
    pub(crate) case: Case<'a>,
    /// Bytes of that entry that are copied.
    offset: u64,
    /// Bytes of the piece in hand that are not copied yet.
    left: u64,
    /// The version that the rest of the batch was last checked at.
    checked: Option<u64>,
    /// Regions younger than this did not exist when the batch began.
    born_by: u64,
    /// The last block that was asked for.
    asked: Option<u32>,
}

/// How what is next is copied.
enum Way {
    /// With the processor's own loads and stores, beginning in this region.
    Plain(Found, Arc<Mapped>),
    /// By the kernel.
    Across,
    /// Plainly, once this block is mapped here.
    Ask(u32),
}

/// Why no more of a piece was copied.
enum Halt {
    /// It is copied.
    Done,
    /// The target's regions have changed: what is left is to be looked at anew.
    Stale,
    /// This block is to be asked for first.
    Ask(u32),
}

impl<'a> Worker<'a> {
    /// One that has done nothing yet.
    pub(crate) fn new(batch: &Batch<'a>) -> Self {
        let (link, case) = (batch.link, batch.case);
        Self { link, case, offset: 0, left: 0, checked: None, born_by: u64::MAX, asked: None }
    }

    /// Where it is; after a failure, the first byte not known to be copied.
    pub(crate) fn place(&self) -> Place {
        Place { index: self.case.index, offset: self.offset }
    }

    /// Enters, checks what has to be checked, takes and copies up to `most` bytes, leaves. Whether there is more.
    pub(crate) fn piece(
        &mut self,
        batch: &Batch<'a>,
        entry: &PageEntry<'_>,
        list: &mut HeldCopy<'a>,
        most: u64,
    ) -> Result<bool, Trouble> {
        let inside = entry.enter(batch.low, batch.high, self.link.version());
        self.look(batch)?;
        let more = self.take(&mut batch.next.lock(), most);
        let halt = self.go_on(batch, list)?;
        drop(inside);
        self.finish(halt, batch, entry, list)?;
        Ok(more)
    }

    /// The same for a batch that is one piece, if what the target has registered is known without a wait.
    pub(crate) fn only_piece(
        &mut self,
        batch: &mut Batch<'a>,
        entry: &PageEntry<'_>,
        list: &mut HeldCopy<'a>,
    ) -> Option<Result<(), Trouble>> {
        let inside = entry.enter(batch.low, batch.high, self.link.version());
        let seen = self.link.seen_now()?;
        self.check(0, &seen.view).ok()?;
        drop(seen);
        let more = self.take(batch.next.get_mut(), u64::MAX);
        debug_assert!(!more, "the caller has seen to the number of entries");
        let halt = match self.go_on(batch, list) {
            Ok(Halt::Stale | Halt::Ask(_)) if !self.case.started => return None,
            Ok(halt) => halt,
            Err(trouble) => return Some(Err(trouble)),
        };
        drop(inside);
        Some(self.finish(halt, batch, entry, list))
    }

    /// Copies what is left of the piece in hand after it came to a halt.
    fn finish(
        &mut self,
        mut halt: Halt,
        batch: &Batch<'a>,
        entry: &PageEntry<'_>,
        list: &mut HeldCopy<'a>,
    ) -> Result<(), Trouble> {
        loop {
            match halt {
                Halt::Done => return Ok(()),
                Halt::Stale => {}
                Halt::Ask(block) => {
                    // Outside of the entry: nobody is to wait for this thread meanwhile.
                    self.link.fetch(block);
                    self.asked = Some(block);
                }
            }
            let _inside = entry.enter(batch.low, batch.high, self.link.version());
            self.look(batch)?;
            halt = self.go_on(batch, list)?;
        }
    }

    /// Looks at the target's regions as they are now. If they have changed, checks the piece in hand and all that nobody has
    /// taken yet.
    fn look(&mut self, batch: &Batch<'a>) -> Result<(), Trouble> {
        let seen = self.link.seen_at(self.link.version());
        let seen = seen.map_err(|bad| self.case.nonsense(&bad.to_string()))?;
        if self.checked == Some(seen.view.version()) {
            return Ok(());
        }
        let first = if self.left > 0 { self.case.index } else { batch.next.lock().index };
        self.check(first, &seen.view)
    }

    /// Checks the remote range of every entry from `first` on.
    fn check(&mut self, first: usize, view: &View) -> Result<(), Trouble> {
        if view.closed() {
            return Err(self.case.over());
        }
        let Case { work, .. } = self.case;
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
                Err(miss @ Miss::ReadOnly { .. }) => {
                    return Err(Case { index, ..self.case }.barred(&miss.to_string()));
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

    /// Takes what is `next`: `most` bytes, in as many entries as one system call copies. Whether there is more.
    fn take(&mut self, next: &mut Place, most: u64) -> bool {
        let entries = self.case.work.entries;
        (self.case.index, self.offset) = (next.index, next.offset);
        let (mut room, mut pieces) = (most, MAX_PIECES);
        while let Some(entry) = entries.get(next.index) {
            if room == 0 || pieces == 0 {
                break;
            }
            let left = entry.len - next.offset;
            let len = left.min(room);
            (room, pieces) = (room - len, pieces - usize::from(len > 0));
            *next = if len == left {
                Place { index: next.index + 1, offset: 0 }
            } else {
                Place { offset: next.offset + len, ..*next }
            };
        }
        self.left = most - room;
        next.index < entries.len()
    }

    /// Copies the piece in hand, inside of an entry, as far as what was checked goes.
    fn go_on(&mut self, batch: &Batch<'a>, list: &mut HeldCopy<'a>) -> Result<Halt, Trouble> {
        while self.left > 0 {
            self.skip_empty();
            match self.way() {
                None => return Ok(Halt::Stale),
                Some(Way::Ask(block)) => return Ok(Halt::Ask(block)),
                Some(Way::Across) => self.copy_across(list)?,
                Some(Way::Plain(region, mapped)) => {
                    let (work, version) = (self.case.work, self.checked.unwrap_or(0));
                    let Place { index, offset } = self.place();
                    let (link, stores) = (self.link, batch.stores);
                    let plain = Plain { link, mapped: &mapped, work, index, offset, version, region, stores };
                    let (stopped, copied) = plain.copy(self.left);
                    self.advance(copied);
                    match stopped {
                        Stopped::Changed => return Ok(Halt::Stale),
                        Stopped::NotPlain if copied == 0 => self.copy_across(list)?,
                        Stopped::NotPlain | Stopped::Enough => {}
                    }
                }
            }
        }
        Ok(Halt::Done)
    }

    /// How the first entry that is left can be copied; `None` if the target's regions are not those that were checked.
    #[inline]
    fn way(&self) -> Option<Way> {
        let Case { work, index, .. } = self.case;
        let Some(entry) = work.entries.get(index) else { return Some(Way::Across) };
        let near = work.holds.find(entry.local, entry.len, &mut 0);
        if near.is_none_or(|hold| hold.region().backing.is_none()) {
            return Some(Way::Across);
        }
        let seen = self.link.seen();
        if self.checked != Some(seen.view.version()) {
            return None;
        }
        let found = seen.view.find(entry.remote, entry.len, Want::Read, u64::MAX);
        let Some((found, (block, _))) = found.ok().and_then(|found| Some((found, found.backing?))) else {
            return Some(Way::Across);
        };
        Some(if seen.mapped.get(block).is_some() {
            Way::Plain(found, Arc::clone(&seen.mapped))
        } else if self.asked == Some(block) {
            Way::Across
        } else {
            Way::Ask(block)
        })
    }

    /// Has the kernel copy what is left of the piece in hand.
    fn copy_across(&mut self, list: &mut HeldCopy<'a>) -> Result<(), Trouble> {
        let behind = self.fill(list)?;
        let mut done = 0;
        while list.bytes() > 0 {
            let copied = match self.case.work.opcode {
                Opcode::Read => list.read_from(self.link.pid),
                Opcode::Write => list.write_to(self.link.pid),
            };
            match copied {
                Ok(count @ 1..) => {
                    self.case.started = true;
                    done += count as u64;
                    list.advance(count);
                }
                other => {
                    self.advance(done);
                    // A fault that the kernel does not name yet is named when it is asked again; should it not be, this
                    // ends.
                    return Err(other.map_or_else(|error| self.kernel(&error), |_| self.fault()));
                }
            }
        }
        (self.case.index, self.offset, self.left) = (behind.index, behind.offset, 0);
        Ok(())
    }

    /// Lists the piece in hand; what is behind it.
    fn fill(&self, list: &mut HeldCopy<'a>) -> Result<Place, Trouble> {
        list.clear();
        let Case { work, .. } = self.case;
        let Place { mut index, mut offset } = self.place();
        let (mut room, mut hint) = (self.left, 0);
        while room > 0 {
            let Some(entry) = work.entries.get(index) else { break };
            let left = entry.len - offset;
            let len = left.min(room);
            if len > 0 {
                let local = entry.local.wrapping_add(offset);
                let hold = work.holds.find(local, len, &mut hint);
                hold.and_then(|hold| list.push(hold, local, entry.remote + offset, len).ok())
                    .ok_or_else(|| Case { index, ..self.case }.not_held())?;
            }
            room -= len;
            (index, offset) = if len == left { (index + 1, 0) } else { (index, offset + len) };
        }
        Ok(Place { index, offset })
    }

    /// Counts the next `count` bytes as copied.
    fn advance(&mut self, count: u64) {
        self.case.started |= count > 0;
        self.left -= count;
        let mut left = count;
        while let Some(entry) = self.case.work.entries.get(self.case.index) {
            let rest = entry.len - self.offset;
            if left < rest {
                self.offset += left;
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

    fn kernel(&self, error: &io::Error) -> Trouble {
        if error.raw_os_error() == Some(ESRCH) || self.link.gone() {
            self.case.over()
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
