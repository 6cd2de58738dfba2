//! The memory of the processes under test, read and written without their help: also while they are stopped.

use std::io;

use moonrail_memory::cross::{CrossStorage, HeldCopy, read_exact};
use moonrail_memory::{Hold, MemoryRange, Want};
use moonrail_transport::testkit::Side;

/// Where the bytes of a write stand while the kernel copies them.
pub(crate) struct Remote {
    scratch: MemoryRange,
    _side: Side,
}

impl Remote {
    /// One that can write up to `len` bytes at once.
    pub(crate) fn new(len: u64) -> Self {
        let side = Side::new();
        Self { scratch: side.range(len), _side: side }
    }

    /// Stores `bytes` at `at` in process `pid`.
    pub(crate) fn write(&self, pid: u32, at: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let part = self.scratch.part(0, bytes.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        Side::poke(part, bytes);
        let hold = Hold::unlisted(part, Want::Read);
        let mut list = HeldCopy::from_storage(CrossStorage::default());
        list.push(&hold, part.addr(), at, part.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        while list.bytes() > 0 {
            let count = list.write_to(number(pid)?)?;
            list.advance(count);
        }
        Ok(())
    }
}

/// The bytes at `at` in process `pid`.
pub(crate) fn read(pid: u32, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    if len > 0 {
        read_exact(number(pid)?, at, &mut bytes)?;
    }
    Ok(bytes)
}

fn number(pid: u32) -> io::Result<i32> {
    i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput.into())
}
