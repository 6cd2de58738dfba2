//! A piece of memory under watch: where it is, and what it must hold.

use std::io;
use std::sync::{Arc, Mutex};

use crate::remote::{self, Remote};
use crate::shadow::{Shadow, Wrong};

pub(crate) struct Area {
    home: Home,
    pub shadow: Shadow,
}

enum Home {
    /// At an address of a process.
    Process { pid: u32, at: u64 },
    /// In the harness, under an address that it made up.
    Here { bytes: Arc<Mutex<Vec<u8>>>, at: u64 },
}

/// Why an area cannot be judged, or what is wrong with it.
pub(crate) enum Look {
    /// The process is gone.
    Gone,
    Wrong(Wrong),
}

impl Area {
    pub(crate) fn of_process(pid: u32, at: u64, len: usize) -> Self {
        Self { home: Home::Process { pid, at }, shadow: Shadow::new(len) }
    }

    pub(crate) fn of_harness(bytes: Arc<Mutex<Vec<u8>>>, at: u64) -> Self {
        let len = bytes.lock().map_or(0, |bytes| bytes.len());
        Self { home: Home::Here { bytes, at }, shadow: Shadow::new(len) }
    }

    /// The address of byte `offset`, as its owner counts.
    pub(crate) fn address(&self, offset: usize) -> u64 {
        let (Home::Process { at, .. } | Home::Here { at, .. }) = &self.home;
        at + offset as u64
    }

    /// Stores bytes, which are certain then.
    pub(crate) fn put(&mut self, remote: &Remote, offset: usize, bytes: &[u8]) -> io::Result<()> {
        match &self.home {
            Home::Process { pid, at } => remote.write(*pid, at + offset as u64, bytes)?,
            Home::Here { bytes: all, .. } => {
                all.lock().expect("no holder panics")[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
        }
        self.shadow.set(offset, bytes);
        Ok(())
    }

    /// What stands there now.
    pub(crate) fn get(&self, offset: usize, len: usize) -> io::Result<Vec<u8>> {
        match &self.home {
            Home::Process { pid, at } => remote::read(*pid, at + offset as u64, len),
            Home::Here { bytes, .. } => {
                Ok(bytes.lock().expect("no holder panics")[offset..offset + len].to_vec())
            }
        }
    }

    /// Compares what stands there with the model.
    pub(crate) fn look(&self, offset: usize, len: usize, newest: u32) -> Result<Vec<u8>, Look> {
        let actual = self.get(offset, len).map_err(|_| Look::Gone)?;
        self.shadow.compare(offset, &actual, newest).map_err(Look::Wrong)?;
        Ok(actual)
    }

    /// Compares, and takes what stands there as certain.
    pub(crate) fn look_and_adopt(&mut self, offset: usize, len: usize, newest: u32) -> Result<(), Look> {
        let actual = self.look(offset, len, newest)?;
        self.shadow.adopt(offset, &actual);
        Ok(())
    }
}
