//! A connection's turn at the thread, whichever protocol it speaks: how much it may move, and how the turn ends.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use moonrail_access::TlsFault;
use moonrail_sys::errno;

use super::Shared;
use crate::checked::Corrupt;

/// Bytes one connection may move before the others get their turn.
pub(super) const TURN_BYTES: u64 = 1 << 20;

/// What a connection waits for after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// More requests, and room in the socket if `write`.
    Open { read: bool, write: bool },
    /// It is over.
    Closed,
    /// Its first bytes begin a rail hello.
    Rail,
}

/// Sends until the socket is full, `send` has nothing left (0) or `budget` is used up; returns the bytes sent.
pub(super) fn flush(budget: u64, mut send: impl FnMut() -> io::Result<u64>) -> io::Result<u64> {
    let mut total = 0;
    while total < budget {
        match nothing_yet(send())? {
            None | Some(0) => break,
            Some(sent) => total += sent,
        }
    }
    Ok(total)
}

/// Counts and tells a read of memory that is registered but not mapped.
pub(super) fn unreadable(shared: &Shared, peer: SocketAddr, error: &io::Error) {
    if errno::is_bad_address(error) {
        shared.counters.refused.fetch_add(1, Relaxed);
        shared
            .warn(format_args!("registered memory read by {peer} is not mapped: freed without unregister?"));
    }
}

/// Counts and tells an end for a reason that TLS or a checksum has found.
pub(super) fn untrusted(shared: &Shared, peer: SocketAddr, error: &io::Error) {
    if let Some(corrupt) = Corrupt::behind(error) {
        shared.counters.refused.fetch_add(1, Relaxed);
        shared.warn(format_args!("closed the rail lane of {peer}: {corrupt}"));
    } else if let Some(fault) = TlsFault::behind(error) {
        shared.counters.refused.fetch_add(1, Relaxed);
        shared.options.refuse(peer, fault);
    }
}

/// `None` when the call would have blocked or was interrupted.
pub(super) fn nothing_yet<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
