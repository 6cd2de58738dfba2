//! A process, held by descriptor so that its number cannot come to mean another one.
//!
//! It must not know why anybody cares.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::poll::{Interest, Ready, wait};

/// A handle of one process, alive or dead.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
}

impl PidFd {
    /// The process that has this number now, as a thread-group leader.
    ///
    /// # Errors
    /// ESRCH when there is none; EINVAL for a number that cannot be; ENOSYS before Linux 5.3 or in a sandbox.
    pub fn open(pid: u32) -> io::Result<PidFd> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        Ok(PidFd { fd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// From a descriptor that is known to be a pidfd.
    pub fn from_fd(fd: OwnedFd) -> PidFd {
        PidFd { fd }
    }

    /// Whether the process has ended with all its threads, so that none of them runs or is inside a system call. One
    /// system call; an error of it counts as alive.
    pub fn is_dead(&self) -> bool {
        matches!(wait(&self.fd, Interest::Read, Some(Duration::ZERO)), Ok(Ready::Ready(_)))
    }
}

/// Whether `process` has ended, or `socket`'s other end was closed. One system call; an error of it counts as neither.
pub fn ended_or_hung_up(process: &PidFd, socket: impl AsFd) -> bool {
    let socket = socket.as_fd();
    let mut fds = [PollFd::new(process, PollFlags::IN), PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_process_is_seen_before_and_after_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = PidFd::open(child.id()).unwrap();
        assert!(!pidfd.is_dead());
        child.kill().unwrap();
        assert!(matches!(wait(&pidfd, Interest::Read, None), Ok(Ready::Ready(_))));
        assert!(pidfd.is_dead());
        child.wait().unwrap();
        assert!(pidfd.is_dead());
        assert!(PidFd::open(0).is_err());
        assert!(PidFd::open(u32::MAX).is_err());
    }
}
