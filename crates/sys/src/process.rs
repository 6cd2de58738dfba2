//! Facts about this process: whether it was forked, and how many descriptors it may have.
//!
//! It must not know which objects are guarded or counted.

use std::io;

use rustix::process::{Pid, Resource, Rlimit, getpid, getrlimit, setrlimit};

/// Remembers the process it was made in, so that objects with threads and sockets can refuse to work in a forked child.
///
/// One `getpid` a question (about 50 ns): ask per call, not per descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkGuard {
    pid: Pid,
}

impl ForkGuard {
    /// Remembers the calling process.
    pub fn new() -> ForkGuard {
        ForkGuard { pid: getpid() }
    }

    /// Whether the caller is in another process than the one that made this guard.
    pub fn forked(&self) -> bool {
        getpid() != self.pid
    }
}

impl Default for ForkGuard {
    fn default() -> ForkGuard {
        ForkGuard::new()
    }
}

/// The limit on open descriptors: `soft` holds now, and may be raised to `hard`. `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NofileLimit {
    /// The limit in force.
    pub soft: Option<u64>,
    /// How far this process may raise it.
    pub hard: Option<u64>,
}

/// The limit on open descriptors of this process.
pub fn nofile_limit() -> NofileLimit {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    NofileLimit { soft: current, hard: maximum }
}

/// Raises the limit on open descriptors as far as this process may; returns the limit then in force.
///
/// # Errors
/// `setrlimit(2)` refused, which a sandbox may do; the old limit stays.
pub fn raise_nofile_limit() -> io::Result<NofileLimit> {
    let limit = nofile_limit();
    if limit.soft != limit.hard {
        setrlimit(Resource::Nofile, Rlimit { current: limit.hard, maximum: limit.hard })?;
    }
    Ok(nofile_limit())
}
