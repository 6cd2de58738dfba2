//! Copying to and from an address that may turn out not to be mapped.
//!
//! Owns the two calls. The kernel does the copy, so that a bad address is an error, not a crash. It must not know whose
//! memory it is.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::pipe::PipeFlags;
use rustix::process::getpid;

/// Copies from the memory at `addr` into `into`.
///
/// # Errors
/// EFAULT when some of the source cannot be read. `into` may be partly filled.
///
/// # Safety
/// If the memory is mapped, it must not be mutably borrowed by Rust code that relies on being its only user.
pub unsafe fn copy_from(addr: u64, into: &mut [u8]) -> io::Result<()> {
    let (foreign, local) = (checked(addr, into.len())?, into.as_mut_ptr().cast());
    // SAFETY: the caller vouches for the source, `into` is exclusively borrowed; both are `into.len()` bytes.
    unsafe { copy(local, foreign, into.len(), Direction::FromForeign) }
}

/// Copies `from` to the memory at `addr`.
///
/// # Errors
/// EFAULT when some of the destination cannot be written. The destination may be partly written.
///
/// # Safety
/// If the memory is mapped, nothing that Rust code borrows or relies on may lie in `addr..addr + from.len()`.
pub unsafe fn copy_to(addr: u64, from: &[u8]) -> io::Result<()> {
    let (foreign, local) = (checked(addr, from.len())?, from.as_ptr().cast_mut().cast());
    // SAFETY: the caller vouches for the destination, `from` is only read in this direction; both are `from.len()` bytes.
    unsafe { copy(local, foreign, from.len(), Direction::ToForeign) }
}

/// Which way a copy goes between bytes that Rust knows and memory that it does not.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Direction {
    FromForeign,
    ToForeign,
}

/// # Safety
/// `local` is valid for `len` bytes, borrowed by the caller for the direction; `foreign` is as [`copy_from`] and
/// [`copy_to`] say.
unsafe fn copy(
    local: *mut libc::c_void,
    foreign: *mut libc::c_void,
    len: usize,
    direction: Direction,
) -> io::Result<()> {
    let pid = getpid().as_raw_nonzero().get();
    let mut done = 0;
    while done < len {
        let ours = libc::iovec { iov_base: local.wrapping_byte_add(done), iov_len: len - done };
        let theirs = libc::iovec { iov_base: foreign.wrapping_byte_add(done), iov_len: len - done };
        // SAFETY: the kernel checks both ranges and answers EFAULT where nothing is mapped; the rest by the contract.
        let moved = unsafe {
            match direction {
                Direction::FromForeign => libc::process_vm_readv(pid, &ours, 1, &theirs, 1, 0),
                Direction::ToForeign => libc::process_vm_writev(pid, &ours, 1, &theirs, 1, 0),
            }
        };
        match progress(moved) {
            Ok(moved) => done += moved,
            Err(error) if is_forbidden(&error) => {
                let (from, to) = match direction {
                    Direction::FromForeign => (theirs.iov_base, ours.iov_base),
                    Direction::ToForeign => (ours.iov_base, theirs.iov_base),
                };
                // SAFETY: by the contract of this function, for the rest of both ranges.
                return unsafe { copy_through_pipe(from, to, len - done) };
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies up to `len` bytes between `local` and the pieces in order; returns how many, which is not 0.
///
/// # Safety
/// `local` is valid for `len` bytes, borrowed by the caller for the direction; the pieces together are no longer, and each is
/// as [`copy_from`] and [`copy_to`] say.
pub(crate) unsafe fn copy_pieces(
    local: *mut libc::c_void,
    pieces: &[libc::iovec],
    len: usize,
    direction: Direction,
) -> io::Result<usize> {
    let pid = getpid().as_raw_nonzero().get();
    let (ours, theirs) = (libc::iovec { iov_base: local, iov_len: len }, pieces.as_ptr());
    let count = pieces.len() as libc::c_ulong;
    // SAFETY: the kernel checks every range and answers EFAULT where nothing is mapped; the rest by the contract.
    let moved = unsafe {
        match direction {
            Direction::FromForeign => libc::process_vm_readv(pid, &ours, 1, theirs, count, 0),
            Direction::ToForeign => libc::process_vm_writev(pid, &ours, 1, theirs, count, 0),
        }
    };
    match (progress(moved), pieces.first()) {
        (Err(error), Some(first)) if is_forbidden(&error) => {
            // SAFETY: by the contract of this function, for the first piece.
            unsafe { copy(local, first.iov_base, first.iov_len, direction)? };
            Ok(first.iov_len)
        }
        (outcome, _) => outcome,
    }
}

/// Some sandboxes forbid the call, even on the own process.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
}

/// Slower, and allowed everywhere: the kernel copies into a pipe and out again.
///
/// # Safety
/// Both addresses are valid for `len` bytes in their direction, or not mapped.
unsafe fn copy_through_pipe(from: *mut libc::c_void, to: *mut libc::c_void, len: usize) -> io::Result<()> {
    /// What an empty pipe takes without blocking on any kernel.
    const CHUNK: usize = 4096;
    let (reader, writer): (OwnedFd, OwnedFd) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let mut done = 0;
    while done < len {
        let chunk = CHUNK.min(len - done);
        // SAFETY: by the contract of this function; the kernel answers EFAULT where nothing is mapped.
        let filled = unsafe { libc::write(writer.as_raw_fd(), from.wrapping_byte_add(done), chunk) };
        let end = done + progress(filled)?;
        while done < end {
            // SAFETY: as above.
            let moved = unsafe { libc::read(reader.as_raw_fd(), to.wrapping_byte_add(done), end - done) };
            done += progress(moved)?;
        }
    }
    Ok(())
}

fn checked(addr: u64, len: usize) -> io::Result<*mut libc::c_void> {
    let fault = || io::Error::from_raw_os_error(libc::EFAULT);
    let start = usize::try_from(addr).map_err(|_| fault())?;
    start.checked_add(len).ok_or_else(fault)?;
    Ok(std::ptr::with_exposed_provenance_mut(start))
}

/// Bytes moved. A call may move less than asked where a page is missing; asking again then gives the error itself.
fn progress(moved: libc::ssize_t) -> io::Result<usize> {
    match usize::try_from(moved) {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Ok(moved) => Ok(moved),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mapping::AnonymousMapping;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 % 251) as u8).collect()
    }

    #[test]
    fn copies_both_ways() {
        let memory = AnonymousMapping::new(100_000).unwrap();
        let bytes = pattern(100_000);
        let mut back = vec![0; 100_000];
        // SAFETY: nothing else knows the mapping.
        unsafe {
            copy_to(memory.addr(), &bytes).unwrap();
            copy_from(memory.addr(), &mut back).unwrap();
        }
        assert_eq!(back, bytes);
    }

    #[test]
    fn the_pipe_copies_as_well() {
        for len in [0, 1, 4096, 4097, 100_000] {
            let mut bytes = pattern(len);
            let mut back = vec![0_u8; len];
            // SAFETY: two borrowed vectors of `len` bytes.
            unsafe { copy_through_pipe(bytes.as_mut_ptr().cast(), back.as_mut_ptr().cast(), len).unwrap() };
            assert_eq!(back, bytes);
        }
    }

    #[test]
    fn a_bad_address_is_a_fault() {
        let mut bytes = [1_u8; 16];
        // The lowest page is never mapped; the highest addresses are the kernel's.
        for addr in [1, 64, u64::MAX - 3, u64::MAX - 64, 1 << 63] {
            // SAFETY: nothing is mapped there.
            let (from, to) = unsafe { (copy_from(addr, &mut bytes), copy_to(addr, &bytes)) };
            assert_eq!(from.unwrap_err().raw_os_error(), Some(libc::EFAULT));
            assert_eq!(to.unwrap_err().raw_os_error(), Some(libc::EFAULT));
        }
        let low = std::ptr::without_provenance_mut(64);
        // SAFETY: nothing is mapped at 64; `bytes` is borrowed.
        let (from, to) = unsafe {
            let here = bytes.as_mut_ptr().cast();
            (copy_through_pipe(low, here, 16), copy_through_pipe(here, low, 16))
        };
        assert_eq!(from.unwrap_err().raw_os_error(), Some(libc::EFAULT));
        assert_eq!(to.unwrap_err().raw_os_error(), Some(libc::EFAULT));
    }

    #[test]
    fn a_copy_that_leaves_the_mapping_is_a_fault() {
        let page = rustix::param::page_size();
        let memory = AnonymousMapping::new(2 * page).unwrap();
        // SAFETY: the mapping is this test's own; the second page becomes unreadable, not free.
        let rc = unsafe {
            let second = std::ptr::with_exposed_provenance_mut(memory.addr() as usize + page);
            libc::mprotect(second, page, libc::PROT_NONE)
        };
        assert_eq!(rc, 0);
        let mut bytes = vec![0; 2 * page];
        // SAFETY: nothing else knows the mapping.
        let error = unsafe { copy_from(memory.addr(), &mut bytes) }.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        // SAFETY: as above.
        unsafe { copy_from(memory.addr(), &mut bytes[..page]) }.unwrap();
    }
}
