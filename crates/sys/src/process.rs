//! Facts about this process: whether it was forked, which thread it began with, how many cores and descriptors it may have.
//!
//! It must not know which objects are guarded or counted.

use std::cell::Cell;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use rustix::thread::{gettid, sched_getaffinity};

use crate::fork_mark::process_id;

/// Remembers the process it was made in, so that objects with threads and sockets can refuse to work in a forked child.
///
/// A question costs one load ([`fork_mark`](crate::fork_mark)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkGuard {
    process: u32,
}

impl ForkGuard {
    /// Remembers the calling process.
    pub fn new() -> ForkGuard {
        ForkGuard { process: process_id() }
    }

    /// Whether the caller is in another process than the one that made this guard.
    #[inline]
    pub fn forked(&self) -> bool {
        process_id() != self.process
    }
}

impl Default for ForkGuard {
    fn default() -> ForkGuard {
        ForkGuard::new()
    }
}

thread_local! {
    /// The process in which this thread asked last, and the answer there: a fork makes its thread the child's first.
    static FIRST_THREAD: Cell<(u32, bool)> = const { Cell::new((0, false)) };
}

/// Whether the caller is the thread that this process began with (after a fork: the one that forked). One system call
/// the first time a thread asks.
pub fn on_first_thread() -> bool {
    let process = process_id();
    let (asked_in, answer) = FIRST_THREAD.get();
    if asked_in == process {
        return answer;
    }
    let answer = gettid().as_raw_nonzero().get().unsigned_abs() == process;
    FIRST_THREAD.set((process, answer));
    answer
}

/// Cores that the calling thread may run on; threads that it starts inherit them. 1 when the kernel does not say.
pub fn usable_cores() -> usize {
    sched_getaffinity(None).map_or(1, |cores| cores.count() as usize)
}

/// Gives the calling thread the lowest priority, for good. That the kernel refuses does not matter.
pub fn give_way() {
    // On Linux this is the thread's own.
    let _ = setpriority_process(None, 19);
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
