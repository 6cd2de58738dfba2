//! A run of bytes that lies in pieces of held memory, on its way to or from a socket.
//!
//! Owns the place in the list and the two walks over it: naming what comes next, and counting what was moved. Must not
//! know which protocol moves it. A walk begins where the last one ended, and names no more than a call can move.

use std::io;

use moonrail_memory::HoldSet;
use moonrail_memory::io::HeldIov;
use moonrail_transport::Entry;
use moonrail_wire::rail::Range;

/// Memory of this process: one item of a list that a run goes over. May be empty.
pub(crate) trait Piece {
    fn addr(&self) -> u64;
    fn bytes(&self) -> u64;
}

/// The local side of a batch.
impl Piece for Entry {
    fn addr(&self) -> u64 {
        self.local
    }

    fn bytes(&self) -> u64 {
        self.len
    }
}

/// What a peer asked for.
impl Piece for Range {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn bytes(&self) -> u64 {
        self.len
    }
}

/// What is still to be moved: `left` bytes, from byte `offset` of the piece at `index` on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Run {
    pub index: usize,
    pub offset: u64,
    pub left: u64,
}

/// How much one walk may name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// Vectors in the list, with those that are there already.
    pub vectors: usize,
    /// Bytes from which on nothing more is added.
    pub bytes: u64,
}

/// How much one receive is likely to give: naming more would be named again the next time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expect(u64);

impl Expect {
    const LEAST: u64 = 128 << 10;
    const MOST: u64 = 4 << 20;

    /// In bytes.
    pub(crate) fn bytes(self) -> u64 {
        self.0
    }

    /// A receive gave `got` of `named` bytes.
    pub(crate) fn learn(&mut self, named: u64, got: u64) {
        let next = if got < named {
            got + got / 4
        } else if named >= self.0 {
            self.0 * 2
        } else {
            return;
        };
        self.0 = next.clamp(Self::LEAST, Self::MOST);
    }
}

impl Default for Expect {
    fn default() -> Self {
        Self(Self::LEAST)
    }
}

impl Run {
    /// Adds what comes next to the list; returns its length in bytes. `hint` remembers the region between walks.
    pub(crate) fn gather<'a>(
        &self,
        pieces: &[impl Piece],
        holds: &'a HoldSet,
        hint: &mut usize,
        limit: Limit,
        list: &mut HeldIov<'a>,
    ) -> io::Result<u64> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let end = self.left.min(limit.bytes);
        let (mut offset, mut gathered) = (self.offset, 0);
        for piece in pieces.get(self.index..).unwrap_or_default() {
            if gathered >= end || list.len() >= limit.vectors {
                break;
            }
            let len = (piece.bytes() - offset).min(self.left - gathered);
            if len > 0 {
                let addr = piece.addr() + offset;
                let hold = holds.find(addr, len, hint).ok_or_else(invalid)?;
                list.push_held(hold, addr, len).map_err(|_| invalid())?;
                gathered += len;
            }
            offset = 0;
        }
        Ok(gathered)
    }

    /// Counts `moved` bytes, at most `left`.
    pub(crate) fn advance(&mut self, pieces: &[impl Piece], mut moved: u64) {
        self.left -= moved;
        while moved > 0 {
            let rest = pieces[self.index].bytes() - self.offset;
            if moved < rest {
                self.offset += moved;
                return;
            }
            moved -= rest;
            self.index += 1;
            self.offset = 0;
        }
    }
}
