//! A word in shared memory that says whether a thread still lives, at the price of a load.
//!
//! Owns the entry in the thread's robust list (`set_robust_list(2)`): the kernel walks it when the thread ends, however it
//! ends, and marks the word. It must not know who reads the word.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the kernel sets (`FUTEX_OWNER_DIED`).
const DIED: u64 = 0x4000_0000;

/// Whether the thread that marked the word lives; `None` when none has marked it.
#[inline]
pub fn lives(word: u64) -> Option<bool> {
    if word == 0 { None } else { Some(word & DIED == 0) }
}

/// The kernel's `struct robust_list_head`.
#[repr(C)]
struct Head {
    first: *const Link,
    futex_offset: isize,
    pending: *const Link,
}

/// The kernel's `struct robust_list`.
#[repr(C)]
struct Link {
    next: *const Head,
}

/// Held by the thread that made it, until it ends.
#[derive(Debug)]
pub struct Life<'a> {
    word: &'a AtomicU64,
    /// The list's head, and its only entry: the kernel knows their addresses.
    list: *mut (Head, Link),
    /// The C library's list of this thread.
    before: (*mut libc::c_void, usize),
}

impl<'a> Life<'a> {
    /// Marks the word as the calling thread's. Dropping this, and the thread's end, mark it as dead. Until then the thread must
    /// not use robust mutexes of the C library.
    ///
    /// # Errors
    /// ENOSYS or EPERM in a sandbox; the word is as it was then.
    pub fn begin(word: &'a AtomicU64) -> io::Result<Life<'a>> {
        let mut before: (*mut libc::c_void, usize) = (ptr::null_mut(), 0);
        // SAFETY: both pointers are writable; 0 is the calling thread.
        let got =
            unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut before.0, &raw mut before.1) };
        if got != 0 {
            return Err(io::Error::last_os_error());
        }
        let list: *mut (Head, Link) = Box::into_raw(Box::new((
            Head { first: ptr::null(), futex_offset: 0, pending: ptr::null() },
            Link { next: ptr::null() },
        )));
        // The futex is the half of the word that holds small numbers.
        let futex = ptr::from_ref(word).addr() + if cfg!(target_endian = "big") { 4 } else { 0 };
        // SAFETY: the box was made above, and nobody else knows it.
        unsafe {
            let (head, link) = (&raw mut (*list).0, &raw mut (*list).1);
            (*link).next = head;
            (*head).first = link;
            (*head).futex_offset = futex.wrapping_sub(link.addr()) as isize;
        }
        word.store(rustix::thread::gettid().as_raw_nonzero().get() as u64, Ordering::Release);
        // SAFETY: the list has the layout that the kernel expects, and stays where it is until it is replaced by `before`
        // when this value is dropped, which happens on this thread, as it is not `Send`.
        let set = unsafe { libc::syscall(libc::SYS_set_robust_list, list, size_of::<Head>()) };
        if set != 0 {
            let error = io::Error::last_os_error();
            word.store(0, Ordering::Release);
            // SAFETY: it was made above by `Box::into_raw`; the kernel did not take it.
            drop(unsafe { Box::from_raw(list) });
            return Err(error);
        }
        Ok(Life { word, list, before })
    }
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        self.word.store(DIED, Ordering::Release);
        // SAFETY: gives the thread back the list that it had; then nobody knows ours any more.
        unsafe {
            if libc::syscall(libc::SYS_set_robust_list, self.before.0, self.before.1) == 0 {
                drop(Box::from_raw(self.list));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::shared_words::{Others, SharedView, SharedWords};

    #[test]
    fn the_end_of_a_thread_is_seen() {
        let (words, fd) = SharedWords::create(c"test", 8, Others::Read).unwrap();
        let view = SharedView::open(&fd, 8).unwrap();
        let seen = || lives(view.load(3).unwrap());
        assert_eq!(seen(), None);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let life = Life::begin(&words.words()[3]).unwrap();
                assert_eq!(seen(), Some(true));
                drop(life);
                assert_eq!(seen(), Some(false));
                // The kernel's part: nobody drops this.
                std::mem::forget(Life::begin(&words.words()[3]).unwrap());
                assert_eq!(seen(), Some(true));
            });
            thread.join().unwrap();
        });
        // `join` may return shortly before the kernel has walked the list.
        let since = std::time::Instant::now();
        while seen() != Some(false) {
            assert!(since.elapsed().as_secs() < 5, "{:?}", seen());
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_death_of_a_process_is_seen_when_it_is_reaped() {
        let (words, _fd) = SharedWords::create(c"test", 8, Others::Write).unwrap();
        let word = &words.words()[0];
        // SAFETY: the child makes system calls and one small allocation, while no other thread of it exists.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            std::mem::forget(Life::begin(word));
            loop {
                std::thread::park();
            }
        }
        while word.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(lives(word.load(Ordering::Acquire)), Some(true));
        let mut status = 0;
        // SAFETY: kills and waits for the child made above.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        }
        assert_eq!(lives(word.load(Ordering::Acquire)), Some(false));
    }
}
