//! What is to be moved.

use moonrail_memory::HoldSet;

/// Direction of a transfer, seen from the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// From the peer's memory into local memory.
    Read,
    /// From local memory into the peer's memory.
    Write,
}

impl Opcode {
    /// `read` or `write`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// One descriptor of a batch: `len` bytes between local address `local` and the peer's address `remote`.
///
/// A length of 0 moves nothing and is always a success; its addresses are not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Virtual address in this process.
    pub local: u64,
    /// Virtual address in the target's process.
    pub remote: u64,
    /// Bytes.
    pub len: u64,
}

/// A batch that is ready to be carried out: its local ranges are held, so that no unregister can return
/// while it runs.
pub struct Work<'a> {
    /// Direction of all entries.
    pub opcode: Opcode,
    /// The descriptors, in the caller's order.
    pub entries: &'a [Entry],
    /// Holds on every local region that the entries touch.
    pub holds: &'a HoldSet,
}

impl Work<'_> {
    /// Sum of the entries' lengths; saturates.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.len))
    }
}
