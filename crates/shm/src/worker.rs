//! One thread's part in a batch, piece by piece: docs/same-host.md, "The fence", the initiator's side.
//!
//! Owns the pieces, the check of remote ranges, and what the kernel's errors mean. Per descriptor it takes no lock,
//! allocates nothing, and makes no system call but the copy itself.

use std::io;

use moonrail_memory::Want;
use moonrail_memory::cross::{HeldCopy, read_exact};
use moonrail_sys::errno;
use moonrail_transport::{Opcode, Stage};

use crate::batch::Batch;
use crate::connect::ESRCH;
use crate::entry_page::Entry as PageEntry;
use crate::failure::{Case, Trouble, WhyNot, is_forbidden};
use crate::link::Link;
use crate::view::{Miss, View};

/// A byte of a batch: so far into one entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) offset: u64,
}

#[derive(Clone)]
pub(crate) struct Worker<'a> {
    link: &'a Link,
    /// With the first entry of the piece in hand that is not copied whole.
    pub(crate) case: Case<'a>,
    /// Bytes of that entry that are copied.
    offset: u64,
    /// Behind the piece in hand.
    end: Place,
    /// The version that the rest of the batch was last checked at.
    checked: Option<u64>,
    /// Regions younger than this did not exist when the batch began.
    born_by: u64,
}

impl<'a> Worker<'a> {
    /// One that has done nothing yet.
    pub(crate) fn new(batch: &Batch<'a>) -> Self {
        let (link, case) = (batch.link, batch.case);
        Self { link, case, offset: 0, end: Place::default(), checked: None, born_by: u64::MAX }
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
        let view =
            self.link.view_at(self.link.version()).map_err(|bad| self.case.nonsense(&bad.to_string()))?;
        if self.checked != Some(view.version()) {
            self.check(batch.next.lock().index, &view)?;
        }
        drop(view);
        let more = self.take(&mut batch.next.lock(), list, most)?;
        self.copy(list)?;
        drop(inside);
        Ok(more)
    }

    /// The same for a batch that is one piece, if what the target has registered is known without a wait.
    pub(crate) fn only_piece(
        &mut self,
        batch: &mut Batch<'a>,
        entry: &PageEntry<'_>,
        list: &mut HeldCopy<'a>,
    ) -> Option<Result<(), Trouble>> {
        let _inside = entry.enter(batch.low, batch.high, self.link.version());
        let view = self.link.view_now()?;
        self.check(0, &view).ok()?;
        drop(view);
        let more = self.take(batch.next.get_mut(), list, u64::MAX).ok()?;
        debug_assert!(!more, "the caller has seen to the number of entries");
        Some(self.copy(list))
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
                Ok(region) => (start, end) = region,
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

    /// Takes what is `next` into the list: as many entries as one call copies, `most` bytes. Whether there is more.
    fn take(&mut self, next: &mut Place, list: &mut HeldCopy<'a>, most: u64) -> Result<bool, Trouble> {
        list.clear();
        let Case { work, .. } = self.case;
        (self.case.index, self.offset) = (next.index, next.offset);
        let (mut room, mut hint) = (most, 0);
        while let Some(entry) = work.entries.get(next.index) {
            if room == 0 || list.is_full() {
                break;
            }
            let left = entry.len - next.offset;
            let len = left.min(room);
            if len > 0 {
                let local = entry.local.wrapping_add(next.offset);
                let hold = work.holds.find(local, len, &mut hint);
                hold.and_then(|hold| list.push(hold, local, entry.remote + next.offset, len).ok())
                    .ok_or_else(|| Case { index: next.index, ..self.case }.not_held())?;
            }
            room -= len;
            *next = if len == left {
                Place { index: next.index + 1, offset: 0 }
            } else {
                Place { offset: next.offset + len, ..*next }
            };
        }
        self.end = *next;
        Ok(next.index < work.entries.len())
    }

    /// Copies the list.
    fn copy(&mut self, list: &mut HeldCopy<'a>) -> Result<(), Trouble> {
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
                    self.skip(done);
                    // A fault that the kernel does not name yet is named when it is asked again; should it not be, this
                    // ends.
                    return Err(other.map_or_else(|error| self.kernel(&error), |_| self.fault()));
                }
            }
        }
        (self.case.index, self.offset) = (self.end.index, self.end.offset);
        Ok(())
    }

    /// Goes on to the first byte behind the next `count`.
    fn skip(&mut self, count: u64) {
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
