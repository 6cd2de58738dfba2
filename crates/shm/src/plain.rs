//! Copies through memory that both processes have mapped.
//!
//! Owns the way from entries to pieces of blocks. It must not know the fence: its caller is inside an entry, and has checked
//! the batch against the mirror's version.

use moonrail_memory::Want;
use moonrail_memory::far::{Piece, Stores};
use moonrail_transport::{Opcode, Work};

use crate::blocks::Mapped;
use crate::link::Link;
use crate::view::Found;

/// The rest of a batch from an entry on.
pub(crate) struct Plain<'a> {
    pub(crate) link: &'a Link,
    pub(crate) mapped: &'a Mapped,
    pub(crate) work: &'a Work<'a>,
    pub(crate) index: usize,
    /// Bytes of that entry that are copied already.
    pub(crate) offset: u64,
    /// The mirror's version that the batch was checked against.
    pub(crate) version: u64,
    /// The region that its remote range lies in.
    pub(crate) region: Found,
    pub(crate) stores: Stores,
}

/// Why copying came to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The batch is done, or enough for one piece.
    Enough,
    /// The target's regions have changed: the rest must be checked anew.
    Changed,
    /// The next entry cannot be copied this way.
    NotPlain,
}

impl Plain<'_> {
    /// Copies up to `limit` bytes, in order; how many, and why no more.
    pub(crate) fn copy(mut self, limit: u64) -> (Stopped, u64) {
        let (mut left, mut hint) = (limit, 0);
        let stopped = loop {
            let Some(entry) = self.work.entries.get(self.index) else { break Stopped::Enough };
            let len = (entry.len - self.offset).min(left);
            if len > 0 {
                if !self.region.contains(entry.remote, entry.len)
                    && let Err(stopped) = self.turn_to(entry.remote, entry.len)
                {
                    break stopped;
                }
                let local = entry.local.wrapping_add(self.offset);
                if !self.one(local, entry.remote + self.offset, len, &mut hint) {
                    break Stopped::NotPlain;
                }
                left -= len;
            }
            if self.offset + len < entry.len {
                break Stopped::Enough;
            }
            (self.index, self.offset) = (self.index + 1, 0);
        };
        (stopped, limit - left)
    }

    /// Finds the region of the next entry.
    fn turn_to(&mut self, remote: u64, len: u64) -> Result<(), Stopped> {
        let seen = self.link.seen();
        if seen.view.version() != self.version {
            return Err(Stopped::Changed);
        }
        // Access and generation have been checked, at this version.
        self.region = seen.view.find(remote, len, Want::Read, u64::MAX).map_err(|_| Stopped::Changed)?;
        Ok(())
    }

    /// Copies one piece inside the region; whether it could be.
    #[inline]
    fn one(&self, local: u64, remote: u64, len: u64, hint: &mut usize) -> bool {
        let Some((block, from)) = self.region.backing else { return false };
        let Some(far) = self.mapped.get(block) else { return false };
        let Some(hold) = self.work.holds.find(local, len, hint) else { return false };
        let piece = Piece { local, offset: from + (remote - self.region.start), len };
        let copied = match self.work.opcode {
            Opcode::Write => far.write(hold, piece, self.stores),
            Opcode::Read => far.read(hold, piece, self.stores),
        };
        copied.is_ok()
    }
}
