//! The one error type of everything above the paths.
//!
//! Owns: the stable codes, what each is called in Mooncake's numbers, and how an error reads.
//! Must not know: where errors are shown.

use std::fmt;
use std::sync::Arc;

/// What went wrong, as a stable name that programs may test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// An argument cannot be right whatever the state of the engine.
    InvalidArgument,
    /// The lists of a batched call differ in length.
    LengthMismatch,
    /// The engine has not been initialised, or was shut down.
    NotInitialized,
    /// The engine was made by the parent of this forked process.
    Forked,
    /// The range overlaps a registered region.
    AddressOverlapped,
    /// The address is not the start of a registered region.
    AddressNotRegistered,
    /// The local side of a transfer is not inside one registered region.
    LocalNotRegistered,
    /// The peer publishes no buffer that holds the remote range.
    RemoteNotRegistered,
    /// The peer refused the request.
    RemoteRefused,
    /// Local memory of the transfer cannot be read or written (unmapped, or a device pointer).
    MemoryFault,
    /// A region is still in use by transfers that did not end in time.
    RegionBusy,
    /// The peer's name is not `host:port` or not a name the metadata server knows.
    BadPeerName,
    /// The host name of a peer, or of this engine, does not resolve.
    NameResolution,
    /// Nobody listens at the peer's address.
    PeerUnreachable,
    /// The peer closed or reset the connection in the middle of a transfer.
    PeerGone,
    /// The peer did not answer or move a byte in time.
    PeerTimeout,
    /// The call's own deadline passed.
    DeadlineExceeded,
    /// The peer answered what its protocol does not allow.
    ProtocolError,
    /// The peer speaks a protocol this build does not (its segment is not TCP, for example).
    UnsupportedPeer,
    /// The transfer may have been applied, but the peer cannot confirm it.
    Unconfirmed,
    /// The notification was not taken by the peer.
    NotifyRejected,
    /// The metadata server cannot be reached or refused the request.
    Metadata,
    /// Another live engine holds this name at the metadata server.
    NameTaken,
    /// The address or port asked for cannot be listened on.
    ListenFailed,
    /// A protocol or option that this build does not have.
    UnknownProtocol,
    /// The process ran into a limit: descriptors, memory, threads.
    ResourceLimit,
    /// The caller cancelled the call.
    Cancelled,
    /// A signal interrupted the call.
    Interrupted,
    /// A batch id that this engine never gave out, or that was already collected.
    UnknownBatch,
    /// A failure of the operating system that no other code names.
    System,
}

impl Code {
    /// Every code, for tables and tests.
    pub const ALL: &'static [Code] = &[
        Code::InvalidArgument,
        Code::LengthMismatch,
        Code::NotInitialized,
        Code::Forked,
        Code::AddressOverlapped,
        Code::AddressNotRegistered,
        Code::LocalNotRegistered,
        Code::RemoteNotRegistered,
        Code::RemoteRefused,
        Code::MemoryFault,
        Code::RegionBusy,
        Code::BadPeerName,
        Code::NameResolution,
        Code::PeerUnreachable,
        Code::PeerGone,
        Code::PeerTimeout,
        Code::DeadlineExceeded,
        Code::ProtocolError,
        Code::UnsupportedPeer,
        Code::Unconfirmed,
        Code::NotifyRejected,
        Code::Metadata,
        Code::NameTaken,
        Code::ListenFailed,
        Code::UnknownProtocol,
        Code::ResourceLimit,
        Code::Cancelled,
        Code::Interrupted,
        Code::UnknownBatch,
        Code::System,
    ];

    /// The stable name, for example `REMOTE_NOT_REGISTERED`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::LengthMismatch => "LENGTH_MISMATCH",
            Code::NotInitialized => "NOT_INITIALIZED",
            Code::Forked => "FORKED",
            Code::AddressOverlapped => "ADDRESS_OVERLAPPED",
            Code::AddressNotRegistered => "ADDRESS_NOT_REGISTERED",
            Code::LocalNotRegistered => "LOCAL_NOT_REGISTERED",
            Code::RemoteNotRegistered => "REMOTE_NOT_REGISTERED",
            Code::RemoteRefused => "REMOTE_REFUSED",
            Code::MemoryFault => "MEMORY_FAULT",
            Code::RegionBusy => "REGION_BUSY",
            Code::BadPeerName => "BAD_PEER_NAME",
            Code::NameResolution => "NAME_RESOLUTION",
            Code::PeerUnreachable => "PEER_UNREACHABLE",
            Code::PeerGone => "PEER_GONE",
            Code::PeerTimeout => "PEER_TIMEOUT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::ProtocolError => "PROTOCOL_ERROR",
            Code::UnsupportedPeer => "UNSUPPORTED_PEER",
            Code::Unconfirmed => "UNCONFIRMED",
            Code::NotifyRejected => "NOTIFY_REJECTED",
            Code::Metadata => "METADATA",
            Code::NameTaken => "NAME_TAKEN",
            Code::ListenFailed => "LISTEN_FAILED",
            Code::UnknownProtocol => "UNKNOWN_PROTOCOL",
            Code::ResourceLimit => "RESOURCE_LIMIT",
            Code::Cancelled => "CANCELLED",
            Code::Interrupted => "INTERRUPTED",
            Code::UnknownBatch => "UNKNOWN_BATCH",
            Code::System => "SYSTEM",
        }
    }

    /// The number Mooncake's `error.h` has for it, where its callers can see one (register, unregister,
    /// probe); everything else is its general -1.
    #[must_use]
    pub fn mooncake(self) -> i32 {
        match self {
            Code::AddressNotRegistered => -3,
            Code::RegionBusy => -4,
            Code::AddressOverlapped => -7,
            Code::NameResolution => -101,
            Code::PeerUnreachable | Code::PeerGone | Code::PeerTimeout | Code::ProtocolError => -102,
            Code::NotifyRejected => -104,
            Code::Metadata | Code::NameTaken | Code::BadPeerName => -200,
            _ => -1,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where on its way a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Making the engine.
    Initialize,
    /// Registering or unregistering memory.
    Register,
    /// Looking at the arguments of a call.
    Arguments,
    /// Finding the peer: metadata, handshake.
    Resolve,
    /// Connecting to the peer's data port.
    Connect,
    /// Sending requests and payload, or receiving them.
    Transfer,
    /// Waiting for the peer's confirmation.
    Acknowledge,
    /// Delivering a notification.
    Notify,
    /// Asking whether a peer is alive.
    Probe,
    /// Waiting for a background batch.
    Wait,
}

impl Stage {
    /// Lower-case name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Initialize => "initialize",
            Stage::Register => "register",
            Stage::Arguments => "arguments",
            Stage::Resolve => "resolve",
            Stage::Connect => "connect",
            Stage::Transfer => "transfer",
            Stage::Acknowledge => "acknowledge",
            Stage::Notify => "notify",
            Stage::Probe => "probe",
            Stage::Wait => "wait",
        }
    }
}

/// Whether the same call may simply be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Nothing was applied, or applying it again is harmless: retry when the cause may have gone.
    Safe,
    /// It will fail again until something is changed.
    AfterFix,
    /// Part of it may have been applied; repeat it only if writing the same bytes twice is all right.
    Unsafe,
}

impl Retry {
    /// `safe`, `after-fix` or `unsafe`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Retry::Safe => "safe",
            Retry::AfterFix => "after-fix",
            Retry::Unsafe => "unsafe",
        }
    }
}

/// A failure with its whole story. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    stage: Stage,
    retry: Retry,
    peer: Option<String>,
    index: Option<usize>,
    message: String,
}

impl Error {
    /// A failure with `message`: what happened, where, and how to mend it.
    pub fn new(code: Code, stage: Stage, retry: Retry, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner { code, stage, retry, peer: None, index: None, message: message.into() }))
    }

    /// The same error naming the peer, as `host:port` or segment name.
    #[must_use]
    pub fn with_peer(mut self, peer: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.0).peer = Some(peer.into());
        self
    }

    /// The same error naming the descriptor of the batch, counted from 0.
    #[must_use]
    pub fn with_index(mut self, index: usize) -> Self {
        Arc::make_mut(&mut self.0).index = Some(index);
        self
    }

    /// The same error with `note` put behind its message.
    #[must_use]
    pub fn with_note(mut self, note: impl fmt::Display) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        inner.message = format!("{}; {note}", inner.message);
        self
    }

    /// With another answer to whether the call may be repeated.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        Arc::make_mut(&mut self.0).retry = retry;
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Where on the request's way.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.0.stage
    }

    /// Whether the same call may be made again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// The peer, where one was involved.
    #[must_use]
    pub fn peer(&self) -> Option<&str> {
        self.0.peer.as_deref()
    }

    /// The descriptor of the batch, counted from 0, where one is to blame.
    #[must_use]
    pub fn index(&self) -> Option<usize> {
        self.0.index
    }

    /// The sentence without code, peer and index.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.code)?;
        if let Some(peer) = &self.0.peer {
            write!(f, " peer {peer}")?;
        }
        if let Some(index) = self.0.index {
            write!(f, " descriptor {index}")?;
        }
        write!(f, " ({}, retry {}): {}", self.0.stage.as_str(), self.0.retry.as_str(), self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_have_names_of_their_own_and_negative_numbers() {
        let names: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        assert!(Code::ALL.iter().all(|code| code.mooncake() < 0));
    }

    #[test]
    fn an_error_reads_as_one_line_with_all_it_knows() {
        let error = Error::new(Code::PeerGone, Stage::Transfer, Retry::Unsafe, "connection reset")
            .with_peer("10.0.0.1:15001")
            .with_index(7)
            .with_note("12 of 20 descriptors were applied");
        assert_eq!(
            error.to_string(),
            "PEER_GONE peer 10.0.0.1:15001 descriptor 7 (transfer, retry unsafe): connection reset; \
             12 of 20 descriptors were applied"
        );
    }
}
