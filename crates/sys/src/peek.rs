//! Looking at received bytes without taking them, and dropping them without copying.
//!
//! Owns two receive flags of Linux TCP: `MSG_PEEK`, and `MSG_TRUNC` which on a stream discards (tcp(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Copies waiting bytes into `into` and leaves them in the socket; 0 means that the peer sends no more.
///
/// # Errors
/// `WouldBlock` when none are waiting; the socket's own error.
pub fn peek(fd: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
    recv(fd, into.as_mut_ptr(), into.len(), libc::MSG_PEEK)
}

/// Drops up to `count` waiting bytes; returns how many were dropped.
///
/// # Errors
/// As [`peek`].
pub fn discard(fd: impl AsFd, count: usize) -> io::Result<usize> {
    recv(fd, std::ptr::null_mut(), count, libc::MSG_TRUNC)
}

fn recv(fd: impl AsFd, into: *mut u8, len: usize, flags: libc::c_int) -> io::Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: `into` is writable for `len` bytes, or null with MSG_TRUNC, with which TCP copies nothing.
    let got = unsafe { libc::recv(fd.as_fd().as_raw_fd(), into.cast(), len, flags) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}
