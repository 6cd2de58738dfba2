//! Whether this process was forked since, for the price of one load.
//!
//! Owns a page that the kernel wipes in a forked child (`MADV_WIPEONFORK`). For questions per call, where the `getpid` of
//! [`process::ForkGuard`](crate::process::ForkGuard) costs too much.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{Advice, madvise};

use crate::mapping::AnonymousMapping;

/// Remembers the process it was made in.
#[derive(Debug)]
pub struct ForkMark {
    page: AnonymousMapping,
}

impl ForkMark {
    /// Remembers the calling process.
    ///
    /// # Errors
    /// No memory for a page; EINVAL before Linux 4.14.
    pub fn new() -> io::Result<ForkMark> {
        let mark = ForkMark { page: AnonymousMapping::new(1)? };
        let start = std::ptr::with_exposed_provenance_mut(mark.page.addr() as usize);
        // SAFETY: the mapping is this value's own; the advice only matters in a child, which finds it zeroed.
        unsafe { madvise(start, mark.page.len(), Advice::LinuxWipeOnFork)? };
        mark.byte().store(1, Ordering::Relaxed);
        Ok(mark)
    }

    /// Whether the caller is in another process than the one that made this mark.
    #[inline]
    pub fn forked(&self) -> bool {
        self.byte().load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn byte(&self) -> &AtomicU8 {
        let start = std::ptr::with_exposed_provenance::<AtomicU8>(self.page.addr() as usize);
        // SAFETY: the mapping is at least one byte long, lives as long as `self`, and is reached only here.
        unsafe { &*start }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_that_it_is_one() {
        let mark = ForkMark::new().unwrap();
        assert!(!mark.forked());
        // SAFETY: the child calls nothing but `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let code = if mark.forked() { 42 } else { 1 };
            // SAFETY: ends the child without running what the parent's threads left half done.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42);
        assert!(!mark.forked());
    }
}
