//! This process's registered memory by address, for callers that have no reference to it.

use std::io;

use moonrail_memory::{Hold, Want};
use moonrail_transport::{Code, Error, Retry, Stage};

use crate::engine::Engine;
use crate::errors;

impl Engine {
    /// Copies registered memory at `addr` into `into`. What a peer writes there meanwhile may be seen in part.
    ///
    /// # Errors
    /// [`Code::LocalNotRegistered`] when the range is not inside one region; [`Code::MemoryFault`] when the memory
    /// is no longer mapped.
    pub fn read_local(&self, addr: u64, into: &mut [u8]) -> Result<(), Error> {
        let hold = self.hold_one(addr, into.len() as u64, Want::Read)?;
        hold.copy_out(addr, into).map_err(|error| fault(addr, &error))
    }

    /// Copies `from` to registered memory at `addr`.
    ///
    /// # Errors
    /// As [`Engine::read_local`]; the region may be read-only.
    pub fn write_local(&self, addr: u64, from: &[u8]) -> Result<(), Error> {
        let hold = self.hold_one(addr, from.len() as u64, Want::Write)?;
        hold.copy_in(addr, from).map_err(|error| fault(addr, &error))
    }

    fn hold_one(&self, addr: u64, len: u64, want: Want) -> Result<Hold, Error> {
        self.usable()?.regions.hold(addr, len, want).map_err(|error| errors::local(0, 1, &error))
    }
}

fn fault(addr: u64, error: &io::Error) -> Error {
    let message = format!("cannot copy at {addr:#x}: {error}");
    Error::new(Code::MemoryFault, Stage::Arguments, Retry::AfterFix, message)
}
