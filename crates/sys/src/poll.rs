//! Waiting for one descriptor with `poll(2)`.
//!
//! Owns the translation of readiness bits and timeouts. It must not know what the descriptor is for.
//!
//! A wait that a signal cut short is reported as [`Ready::Interrupted`] and not restarted: the caller may have to look
//! at pending signals (Ctrl-C in an interpreter) before it goes on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::Waker;

/// Which kinds of readiness are asked for. Errors and hang-ups are always reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Interest {
    /// Only errors and hang-ups.
    None,
    /// Bytes (or an end of stream, or a connection to accept) can be read.
    Read,
    /// Bytes can be written.
    Write,
    /// Either.
    Both,
}

impl Interest {
    /// The interest in reading and/or writing.
    pub fn of(read: bool, write: bool) -> Interest {
        match (read, write) {
            (false, false) => Interest::None,
            (true, false) => Interest::Read,
            (false, true) => Interest::Write,
            (true, true) => Interest::Both,
        }
    }

    /// Whether readability is asked for.
    pub fn reads(self) -> bool {
        matches!(self, Interest::Read | Interest::Both)
    }

    /// Whether writability is asked for.
    pub fn writes(self) -> bool {
        matches!(self, Interest::Write | Interest::Both)
    }
}

/// What a descriptor is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// A read would not block: there are bytes, or the end of the stream, or an error to collect.
    pub readable: bool,
    /// A write would not block: there is room, or an error to collect.
    pub writable: bool,
    /// The peer closed its writing half or the whole connection, or the socket is in error.
    pub closed: bool,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// The descriptor is ready.
    Ready(Readiness),
    /// The [`Waker`] given was woken. It is left awake: [`Waker::drain`] puts it back to sleep.
    Woken,
    /// The timeout passed.
    TimedOut,
    /// A signal handler ran; nothing is known about the descriptor.
    Interrupted,
}

/// Waits until `fd` can be read. `None` waits without limit.
///
/// # Errors
/// Those of `poll(2)`: out of memory, or a bad descriptor.
pub fn wait_readable(fd: impl AsFd, timeout: Option<Duration>) -> io::Result<Ready> {
    wait(fd, Interest::Read, timeout)
}

/// Waits until `fd` can be written. `None` waits without limit.
///
/// # Errors
/// As [`wait_readable`].
pub fn wait_writable(fd: impl AsFd, timeout: Option<Duration>) -> io::Result<Ready> {
    wait(fd, Interest::Write, timeout)
}

/// Waits until `fd` is ready for `interest`. A zero `timeout` only looks; `None` waits without limit.
///
/// # Errors
/// As [`wait_readable`].
pub fn wait(fd: impl AsFd, interest: Interest, timeout: Option<Duration>) -> io::Result<Ready> {
    let fd = fd.as_fd();
    let mut fds = [PollFd::from_borrowed_fd(fd, flags(interest))];
    let ended = poll(&mut fds, timeout)?;
    Ok(ended.unwrap_or(Ready::Ready(readiness(fds[0].revents())?)))
}

/// Waits for `fd` and for `waker` at once. When both are ready the waker wins, so that a busy socket cannot hide a
/// cancellation.
///
/// # Errors
/// As [`wait_readable`].
pub fn wait_or_woken(
    fd: impl AsFd,
    interest: Interest,
    waker: &Waker,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    let (fd, waker): (BorrowedFd<'_>, BorrowedFd<'_>) = (fd.as_fd(), waker.as_fd());
    let mut fds =
        [PollFd::from_borrowed_fd(fd, flags(interest)), PollFd::from_borrowed_fd(waker, PollFlags::IN)];
    if let Some(ended) = poll(&mut fds, timeout)? {
        return Ok(ended);
    }
    if !fds[1].revents().is_empty() {
        return Ok(Ready::Woken);
    }
    Ok(Ready::Ready(readiness(fds[0].revents())?))
}

/// `Some` when the wait ended without a ready descriptor.
fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<Option<Ready>> {
    let timeout = timeout.map(timespec);
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(0) => Ok(Some(Ready::TimedOut)),
        Ok(_) => Ok(None),
        Err(rustix::io::Errno::INTR) => Ok(Some(Ready::Interrupted)),
        Err(error) => Err(error.into()),
    }
}

fn flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    if interest.reads() {
        flags |= PollFlags::IN | PollFlags::RDHUP;
    }
    if interest.writes() {
        flags |= PollFlags::OUT;
    }
    flags
}

fn readiness(seen: PollFlags) -> io::Result<Readiness> {
    if seen.contains(PollFlags::NVAL) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let broken = seen.intersects(PollFlags::ERR | PollFlags::HUP);
    Ok(Readiness {
        readable: broken || seen.intersects(PollFlags::IN | PollFlags::RDHUP),
        writable: broken || seen.contains(PollFlags::OUT),
        closed: broken || seen.contains(PollFlags::RDHUP),
    })
}

/// A timeout as the kernel wants it; one beyond the kernel's range becomes its largest (centuries).
pub(crate) fn timespec(timeout: Duration) -> Timespec {
    // A century: some kernels refuse far larger values with EINVAL.
    const LONGEST_SECONDS: u64 = 100 * 365 * 24 * 3600;
    if timeout.as_secs() >= LONGEST_SECONDS {
        return Timespec { tv_sec: LONGEST_SECONDS as i64, tv_nsec: 0 };
    }
    Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) }
}
