//! Waking a thread that waits in `poll` or `epoll`, with an `eventfd`.
//!
//! Owns one descriptor. It must not know who waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// A wake-up call that stays raised until it is drained. Any thread may call any method.
#[derive(Debug)]
pub struct Waker {
    fd: OwnedFd,
}

impl Waker {
    /// Makes a waker at rest.
    ///
    /// # Errors
    /// The process or the system is out of descriptors or memory.
    pub fn new() -> io::Result<Waker> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { fd })
    }

    /// Wakes every thread that waits for this waker, now or later, until [`Waker::drain`]. Never blocks, never fails.
    pub fn wake(&self) {
        // The only error that can come back is EAGAIN, when the counter is full: then the waker is awake already.
        while let Err(Errno::INTR) = rustix::io::write(&self.fd, &1_u64.to_ne_bytes()) {}
    }

    /// Puts the waker to rest; whether it was awake. Wake-ups that came since the last drain count as one.
    pub fn drain(&self) -> bool {
        let mut count = [0_u8; 8];
        loop {
            match rustix::io::read(&self.fd, &mut count) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
