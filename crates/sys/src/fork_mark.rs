//! The number of this process for the price of one load, right also in a forked child.
//!
//! Owns one page for the whole process that the kernel wipes in a forked child (`MADV_WIPEONFORK`). `getpid` itself is a
//! system call: 50 to 150 ns, too much for a question per call. It must not know who asks.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, madvise};
use rustix::process::getpid;

use crate::mapping::AnonymousMapping;

/// The page, or `None` where there can be none (no memory; before Linux 4.14).
static PAGE: OnceLock<Option<AnonymousMapping>> = OnceLock::new();

/// This process's number, as `getpid` gives it.
///
/// The first call in a process should come before its first fork (making a [`ForkGuard`](crate::process::ForkGuard) is
/// one).
#[inline]
pub fn process_id() -> u32 {
    let Some(page) = PAGE.get_or_init(|| wiped_on_fork().ok()) else { return ask() };
    let known = word(page).load(Ordering::Relaxed);
    if known != 0 { known } else { learn(page) }
}

#[cold]
fn learn(page: &AnonymousMapping) -> u32 {
    let id = ask();
    word(page).store(id, Ordering::Relaxed);
    id
}

fn ask() -> u32 {
    getpid().as_raw_nonzero().get().unsigned_abs()
}

fn wiped_on_fork() -> io::Result<AnonymousMapping> {
    let page = AnonymousMapping::new(size_of::<AtomicU32>())?;
    let start = std::ptr::with_exposed_provenance_mut(page.addr() as usize);
    // SAFETY: the mapping is this module's own; the advice only matters in a child, which finds it zeroed.
    unsafe { madvise(start, page.len(), Advice::LinuxWipeOnFork)? };
    Ok(page)
}

#[inline]
fn word(page: &AnonymousMapping) -> &AtomicU32 {
    let start = std::ptr::with_exposed_provenance::<AtomicU32>(page.addr() as usize);
    // SAFETY: the mapping is at least one page long, page-aligned, borrowed for as long as the result lives, and reached
    // only here, by atomic accesses.
    unsafe { &*start }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::process::ForkGuard;

    #[test]
    fn a_child_knows_that_it_is_one() {
        let guard = ForkGuard::new();
        assert!(!guard.forked());
        assert_eq!(process_id(), std::process::id());
        // SAFETY: the child calls nothing but `getpid` and `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let knows = guard.forked() && process_id() == ask() && !ForkGuard::new().forked();
            // SAFETY: ends the child without running what the parent's threads left half done.
            unsafe { libc::_exit(if knows { 42 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42);
        assert!(!guard.forked());
    }
}
