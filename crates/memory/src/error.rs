//! What can go wrong with regions, with what a user needs to find the cause.
//!
//! Owns the error types and their texts. It must not know error codes: those belong to the engine.

use std::fmt;
use std::time::Duration;

use crate::{MemoryRange, Want};

/// Where a region lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionSpan {
    /// The first address.
    pub addr: u64,
    /// The length in bytes.
    pub len: u64,
}

impl RegionSpan {
    /// The address behind the last byte.
    pub fn end(self) -> u64 {
        self.addr.saturating_add(self.len)
    }
}

impl From<MemoryRange> for RegionSpan {
    fn from(range: MemoryRange) -> RegionSpan {
        RegionSpan { addr: range.addr(), len: range.len() }
    }
}

impl fmt::Display for RegionSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the region {:#x}..{:#x} ({} bytes)", self.addr, self.end(), self.len)
    }
}

/// Why a range was not registered. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Some of the range is registered already (or stands earlier in the same batch).
    #[error("{range} overlaps {other}, which is registered already")]
    Overlap {
        /// The range refused.
        range: RegionSpan,
        /// The region in its way.
        other: RegionSpan,
    },
    /// Some of the range belongs to a region that is being unregistered but is still held by transfers.
    #[error("{range} overlaps {other}, which is being unregistered and is still held by {holds} transfers")]
    StillHeld {
        /// The range refused.
        range: RegionSpan,
        /// The region in its way.
        other: RegionSpan,
        /// Holds left on it.
        holds: u64,
    },
    /// Another region has the name.
    #[error("the name {name:?} belongs to {other}")]
    NameTaken {
        /// The name asked for.
        name: String,
        /// The region that has it.
        other: RegionSpan,
    },
}

/// Why a region was not unregistered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnregisterError {
    /// No region starts at the address. Nothing was changed.
    #[error("no region starts at {addr:#x}{}", Inside(.inside))]
    NotRegistered {
        /// The address given.
        addr: u64,
        /// The region that the address lies in, if any.
        inside: Option<RegionSpan>,
    },
    /// The region is out of the table, and no transfer can begin on it, but transfers still hold its memory, which must
    /// not be freed yet. Unregistering the same address again waits once more.
    #[error(
        "{region} is still held by {} after {} ms; its memory must not be freed yet",
        Holders(*.holds, *.outside), .waited.as_millis()
    )]
    Busy {
        /// The region.
        region: RegionSpan,
        /// Holds left on it in this process.
        holds: u64,
        /// A process of this host (its number) that is in the middle of a copy there, and does not end it.
        outside: Option<u32>,
        /// How long the holds were waited for.
        waited: Duration,
    },
}

struct Holders(u64, Option<u32>);

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Holders(holds, None) => write!(f, "{holds} transfers"),
            Holders(0, Some(pid)) => write!(f, "process {pid} of this host, which is stopped or slow"),
            Holders(holds, Some(pid)) => write!(f, "{holds} transfers and by process {pid} of this host"),
        }
    }
}

struct Inside<'a>(&'a Option<RegionSpan>);

impl fmt::Display for Inside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(region) => write!(f, "; it lies inside {region}"),
            None => Ok(()),
        }
    }
}

/// Why a range was not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {addr:#x} {miss}")]
pub struct HoldError {
    /// The address asked for.
    pub addr: u64,
    /// The length asked for, in bytes.
    pub len: u64,
    /// How the range misses.
    pub miss: HoldMiss,
}

/// How a range misses the registered regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldMiss {
    /// The range reaches beyond the address space.
    Wraps,
    /// Nothing is registered at all.
    NoRegions,
    /// The range lies in no region. `nearest` ends `gap` bytes below it, or begins `gap` bytes above its end.
    Outside {
        /// The nearest region.
        nearest: RegionSpan,
        /// Bytes between the two.
        gap: u64,
        /// Whether the region lies above the range.
        above: bool,
    },
    /// The range begins below a region and reaches into it.
    BeginsBelow {
        /// The region reached into.
        region: RegionSpan,
        /// Bytes of the range that lie below it.
        by: u64,
    },
    /// The range begins in a region and passes its end, into unregistered memory.
    PastEnd {
        /// The region begun in.
        region: RegionSpan,
        /// Bytes past its end.
        by: u64,
    },
    /// The range begins in a region and passes its end, into the adjacent region. A range lies in one region only.
    Straddles {
        /// The region begun in.
        region: RegionSpan,
        /// The region right behind it.
        next: RegionSpan,
    },
    /// The region may not be written.
    ReadOnly {
        /// The region.
        region: RegionSpan,
    },
    /// The region is being unregistered.
    Revoked {
        /// The region.
        region: RegionSpan,
    },
}

impl HoldMiss {
    /// The region that the text names.
    pub fn nearest(&self) -> Option<RegionSpan> {
        match *self {
            HoldMiss::Wraps | HoldMiss::NoRegions => None,
            HoldMiss::Outside { nearest: region, .. }
            | HoldMiss::BeginsBelow { region, .. }
            | HoldMiss::PastEnd { region, .. }
            | HoldMiss::Straddles { region, .. }
            | HoldMiss::ReadOnly { region }
            | HoldMiss::Revoked { region } => Some(region),
        }
    }
}

impl fmt::Display for HoldMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            HoldMiss::Wraps => f.write_str("reach beyond the address space"),
            HoldMiss::NoRegions => f.write_str("are not registered: nothing is"),
            HoldMiss::Outside { nearest, gap, above: true } => {
                write!(f, "are not registered: {nearest} begins {gap} bytes above them")
            }
            HoldMiss::Outside { nearest, gap, above: false } => {
                write!(f, "are not registered: {nearest} ends {gap} bytes below them")
            }
            HoldMiss::BeginsBelow { region, by } => write!(f, "begin {by} bytes below {region}"),
            HoldMiss::PastEnd { region, by } => write!(f, "pass the end of {region} by {by} bytes"),
            HoldMiss::Straddles { region, next } => {
                write!(f, "cross from {region} into {next}; a range must lie in one region")
            }
            HoldMiss::ReadOnly { region } => write!(f, "lie in {region}, which is read-only"),
            HoldMiss::Revoked { region } => write!(f, "lie in {region}, which is being unregistered"),
        }
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Want::Read => "read",
            Want::Write => "write",
        })
    }
}
