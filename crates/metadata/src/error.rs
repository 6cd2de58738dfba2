//! The one error type of this crate: what went wrong, with whom, in a sentence. Knows nothing of the codes that the
//! front doors make of it.

use std::fmt;
use std::io;

use moonrail_access::{Denied, TlsDenied};

/// Why a peer or a metadata server could not be asked, or what it answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataError {
    /// The class of the failure; what a program decides on.
    pub kind: MetadataErrorKind,
    /// Whom the failure is about: `host:port`, a segment name, or the metadata server's URL. May be empty.
    pub peer: String,
    /// What happened, for people, without the peer's name.
    pub message: String,
}

/// The class of a [`MetadataError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MetadataErrorKind {
    /// A name, an address or a metadata server string that cannot be read.
    BadAddress,
    /// A metadata server of a kind that is not built in (etcd, redis).
    Unsupported,
    /// A host name that resolves to nothing.
    Resolve,
    /// Nothing listens at the address.
    Refused,
    /// No route to the host.
    Unreachable,
    /// No progress until the deadline.
    Timeout {
        /// What was being waited for.
        stage: WaitStage,
    },
    /// The peer closed or reset the connection before it had answered.
    Reset,
    /// An answer that is not of this protocol, or that cannot be used.
    Protocol,
    /// The peer understood and said no.
    Rejected,
    /// The shared key was not proven, by one side or the other.
    Denied(Denied),
    /// TLS was refused or not offered, by one side or the other.
    Tls(TlsDenied),
    /// A message above the length limit of one of the two sides.
    TooLarge,
    /// The metadata server has no such segment.
    NotFound,
    /// A live engine holds the name.
    NameTaken,
    /// The metadata server answered with this status.
    Http(u16),
    /// This process or its host has no descriptor left.
    NoDescriptors,
    /// Any other failure of the operating system.
    Io,
}

/// What a call was waiting for when its deadline passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitStage {
    /// The host name's addresses.
    Resolve,
    /// The connection.
    Connect,
    /// The peer to take the request.
    Request,
    /// The peer's reply.
    Reply,
}

impl MetadataError {
    pub(crate) fn new(
        kind: MetadataErrorKind,
        peer: impl Into<String>,
        message: impl Into<String>,
    ) -> MetadataError {
        MetadataError { kind, peer: peer.into(), message: message.into() }
    }

    pub(crate) fn timeout(
        stage: WaitStage,
        peer: impl Into<String>,
        message: impl Into<String>,
    ) -> MetadataError {
        MetadataError::new(MetadataErrorKind::Timeout { stage }, peer, message)
    }

    /// Sorts an operating-system error that came up while waiting for `stage`.
    pub(crate) fn from_io(error: &io::Error, stage: WaitStage, peer: &str) -> MetadataError {
        use io::ErrorKind as E;
        let (kind, message) = match error.kind() {
            E::ConnectionRefused => {
                (MetadataErrorKind::Refused, "connection refused: nothing listens at this address".to_owned())
            }
            E::HostUnreachable | E::NetworkUnreachable => {
                (MetadataErrorKind::Unreachable, format!("no route to the host ({error})"))
            }
            E::TimedOut | E::WouldBlock => {
                (MetadataErrorKind::Timeout { stage }, format!("timed out {stage}"))
            }
            E::ConnectionReset
            | E::ConnectionAborted
            | E::BrokenPipe
            | E::NotConnected
            | E::UnexpectedEof => {
                (MetadataErrorKind::Reset, format!("the peer dropped the connection {stage}"))
            }
            _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => (
                MetadataErrorKind::NoDescriptors,
                format!("no file descriptor left {stage} (ulimit -n): {error}"),
            ),
            _ => (MetadataErrorKind::Io, format!("failed {stage}: {error}")),
        };
        MetadataError::new(kind, peer, message)
    }
}

/// Out of descriptors: the system, this process; `std` has no names for them.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.peer.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.peer, self.message)
        }
    }
}

impl std::error::Error for MetadataError {}

impl fmt::Display for WaitStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitStage::Resolve => "while resolving the host name",
            WaitStage::Connect => "while connecting",
            WaitStage::Request => "while sending the request",
            WaitStage::Reply => "while waiting for the reply",
        })
    }
}
