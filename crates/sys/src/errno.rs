//! What some of the kernel's error numbers mean to the layers above.
//!
//! It must not know what was attempted.

use std::io;

/// The process (`EMFILE`) or the system (`ENFILE`) has no file descriptor left.
pub fn is_descriptor_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// An address given to the kernel is not mapped, or not as the call needs it (`EFAULT`).
pub fn is_bad_address(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFAULT)
}
