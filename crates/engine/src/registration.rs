//! Registering memory, and telling the metadata server.

use moonrail_memory::{AllocateError, FreeError, HugePages, MemoryRange, RegionOptions, UnregisterError};
use moonrail_transport::{Code, Error, Retry, Stage};

use crate::engine::{Engine, Inner};
use crate::errors;

impl Engine {
    /// Makes memory reachable for peers and usable as the local side of transfers, until it is unregistered.
    ///
    /// Regions may touch but not overlap. With a metadata server this waits for the server.
    ///
    /// # Errors
    /// [`Code::AddressOverlapped`]; [`Code::Metadata`] when the server does not take it (nothing is registered then).
    pub fn register(&self, range: MemoryRange, options: RegionOptions) -> Result<(), Error> {
        self.register_batch(vec![(range, options)])
    }

    /// Registers all of `regions` or none. O(n log n), and one message to a metadata server.
    ///
    /// # Errors
    /// As [`Engine::register`], naming the region's index.
    pub fn register_batch(&self, regions: Vec<(MemoryRange, RegionOptions)>) -> Result<(), Error> {
        let inner = self.usable()?;
        let starts: Vec<u64> = regions.iter().map(|(range, _)| range.addr()).collect();
        let lens: Vec<u64> = regions.iter().map(|(range, _)| range.len()).collect();
        let count = regions.len();
        inner.regions.register_batch(regions).map_err(|(index, error)| {
            let error = errors::register(&error);
            if count > 1 { error.with_index(index) } else { error }
        })?;
        inner.publish().inspect_err(|_| {
            // Peers could not learn of it yet, so nothing can be using it.
            let _ = inner.regions.unregister_batch(&starts, inner.config.timeouts.unregister);
        })?;
        if let Some(collapse) = &inner.collapse {
            collapse.add(starts.into_iter().zip(lens));
        }
        Ok(())
    }

    /// Ends the registration that starts at `addr`. Once this returns no peer can touch that memory.
    ///
    /// # Errors
    /// [`Code::AddressNotRegistered`]; [`Code::RegionBusy`] when transfers still hold the memory after the time
    /// limit: the memory must not be freed then.
    pub fn unregister(&self, addr: u64) -> Result<(), Error> {
        self.unregister_batch(&[addr])
    }

    /// Ends the registrations that start at `addrs`; goes on after a failure and reports the first.
    ///
    /// # Errors
    /// As [`Engine::unregister`], naming the index.
    pub fn unregister_batch(&self, addrs: &[u64]) -> Result<(), Error> {
        let inner = self.usable()?;
        let patience = inner.config.timeouts.unregister;
        let outcome = inner.regions.unregister_batch(addrs, patience);
        if matches!(outcome, Err((_, UnregisterError::NotRegistered { .. }))) {
            // One address is wrong and nothing was changed: the right ones are to go all the same.
            for addr in addrs {
                let _ = inner.regions.unregister(*addr, patience);
            }
        }
        let published = inner.publish();
        outcome.map_err(|(index, error)| {
            let error = errors::unregister(&error);
            if addrs.len() > 1 { error.with_index(index) } else { error }
        })?;
        published
    }

    /// Allocates `len` bytes of zeroed, registered memory, whole pages; 0 is legal. Returns its address.
    ///
    /// # Errors
    /// [`Code::ResourceLimit`] when the kernel has no memory for it; those of [`Engine::register`].
    pub fn allocate(&self, len: u64) -> Result<u64, Error> {
        self.allocate_with(len, RegionOptions::default())
    }

    /// [`Engine::allocate`] with a name or other options.
    ///
    /// # Errors
    /// As [`Engine::allocate`].
    pub fn allocate_with(&self, len: u64, options: RegionOptions) -> Result<u64, Error> {
        let inner = self.usable()?;
        let (addr, _) =
            inner.managed.allocate_with(len, options).map_err(|error| allocate_error(len, &error))?;
        inner.publish_buffer(addr)?;
        Ok(addr)
    }

    /// [`Engine::allocate_with`] of huge pages, if they are to be had; says which. All of the memory is taken at once then, and
    /// that takes time (about 3 ms for each MiB).
    ///
    /// # Errors
    /// As [`Engine::allocate`]; that there are no huge pages is none.
    pub fn allocate_huge(&self, len: u64, options: RegionOptions) -> Result<(u64, HugePages), Error> {
        let inner = self.usable()?;
        let (range, pages) =
            inner.managed.allocate_huge(len, options).map_err(|error| allocate_error(len, &error))?;
        inner.publish_buffer(range.addr())?;
        Ok((range.addr(), pages))
    }

    /// Gives back what [`Engine::allocate`] returned, and ends every registration inside it.
    ///
    /// # Errors
    /// [`Code::AddressNotRegistered`] when `addr` is no such memory; [`Code::RegionBusy`] as in
    /// [`Engine::unregister`].
    pub fn free(&self, addr: u64) -> Result<(), Error> {
        let inner = self.usable()?;
        inner.managed.free(addr, inner.config.timeouts.unregister).map_err(|error| match &error {
            FreeError::Busy(error) => errors::unregister(error),
            _ => Error::new(Code::AddressNotRegistered, Stage::Register, Retry::AfterFix, error.to_string()),
        })?;
        inner.publish()
    }
}

impl Inner {
    /// Tells the metadata server of a new managed buffer, or frees it again.
    fn publish_buffer(&self, addr: u64) -> Result<(), Error> {
        self.publish().inspect_err(|_| {
            let _ = self.managed.free(addr, self.config.timeouts.unregister);
        })
    }

    /// Tells the metadata server what is registered now. In P2P mode peers ask us.
    pub(crate) fn publish(&self) -> Result<(), Error> {
        if self.directory.is_p2p() {
            return Ok(());
        }
        // Two registrations at once must not publish in the wrong order.
        let _one_at_a_time = self.publishing.lock();
        self.directory.publish(&self.own.full()).map_err(|error| errors::publish(Stage::Register, &error))
    }
}

fn allocate_error(len: u64, error: &AllocateError) -> Error {
    let message = format!("cannot allocate {len} bytes: {error}");
    Error::new(Code::ResourceLimit, Stage::Register, Retry::AfterFix, message)
}
