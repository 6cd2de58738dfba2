//! The fork guard in a really forked child. In a test binary of its own, as a fork copies every thread's locks.
#![allow(clippy::unwrap_used)]

use moonrail_sys::process::ForkGuard;

#[test]
fn a_forked_child_is_told_apart() {
    let guard = ForkGuard::new();
    assert!(!guard.forked());
    // SAFETY: the child calls nothing but getpid and _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let inherited = guard.forked();
        let fresh = ForkGuard::new().forked();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(if inherited && !fresh { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: writes one int, and waits for this test's own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0);
    assert!(!guard.forked(), "the parent is still itself");
    assert!(!std::thread::spawn(move || guard.forked()).join().unwrap(), "a thread is no fork");
}
