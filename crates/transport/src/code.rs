//! The stable codes of failures. Made by `cargo xtask generate` from crates/reference/records; change it there.

use std::fmt;

/// What went wrong, as a stable name that programs may test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The peer's region may not be used so: it is registered to be read only.
    PermissionDenied,
    /// The peer's region is only for those with a token, and none that was presented fits.
    TokenRefused,
    /// The peer admits only engines that prove a shared key, and this one has none.
    KeyRequired,
    /// The peer does not know this engine's key, or did not find it proven.
    KeyRefused,
    /// The peer does not prove this engine's key: it has none, or it is not the peer that is meant.
    PeerUnproven,
    /// The peer speaks nothing but TLS, and this engine has none.
    TlsRequired,
    /// The peer's certificate is not accepted: its authority, its name, its dates or its key.
    TlsUntrusted,
    /// The peer does not accept this engine's certificate.
    TlsRefused,
    /// The peer does not offer TLS, and nothing is said to it in clear.
    TlsNotOffered,
    /// An argument cannot be right whatever the state of the engine.
    InvalidArgument,
    /// The lists of a batched call differ in length.
    LengthMismatch,
    /// A batch id that this engine never gave out, or that was already collected.
    UnknownBatch,
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
    /// Bytes of a transfer were changed on their way: they do not have their checksum.
    ChecksumMismatch,
    /// The metadata server cannot be reached or refused the request.
    Metadata,
    /// Another live engine holds this name at the metadata server.
    NameTaken,
    /// The address or port asked for cannot be listened on.
    ListenFailed,
    /// A protocol or option that this build does not have.
    UnknownProtocol,
    /// What a program requires is not there: in this build, on this machine, or at a peer.
    MissingCapability,
    /// The process ran into a limit: descriptors, memory, threads.
    ResourceLimit,
    /// The caller cancelled the call.
    Cancelled,
    /// A signal interrupted the call.
    Interrupted,
    /// A failure of the operating system that no other code names.
    System,
}

impl Code {
    /// Every code, for tables and tests.
    pub const ALL: &'static [Code] = &[
        Code::PermissionDenied,
        Code::TokenRefused,
        Code::KeyRequired,
        Code::KeyRefused,
        Code::PeerUnproven,
        Code::TlsRequired,
        Code::TlsUntrusted,
        Code::TlsRefused,
        Code::TlsNotOffered,
        Code::InvalidArgument,
        Code::LengthMismatch,
        Code::UnknownBatch,
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
        Code::ChecksumMismatch,
        Code::Metadata,
        Code::NameTaken,
        Code::ListenFailed,
        Code::UnknownProtocol,
        Code::MissingCapability,
        Code::ResourceLimit,
        Code::Cancelled,
        Code::Interrupted,
        Code::System,
    ];

    /// The stable name, for example `REMOTE_NOT_REGISTERED`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::TokenRefused => "TOKEN_REFUSED",
            Code::KeyRequired => "KEY_REQUIRED",
            Code::KeyRefused => "KEY_REFUSED",
            Code::PeerUnproven => "PEER_UNPROVEN",
            Code::TlsRequired => "TLS_REQUIRED",
            Code::TlsUntrusted => "TLS_UNTRUSTED",
            Code::TlsRefused => "TLS_REFUSED",
            Code::TlsNotOffered => "TLS_NOT_OFFERED",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::LengthMismatch => "LENGTH_MISMATCH",
            Code::UnknownBatch => "UNKNOWN_BATCH",
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
            Code::ChecksumMismatch => "CHECKSUM_MISMATCH",
            Code::Metadata => "METADATA",
            Code::NameTaken => "NAME_TAKEN",
            Code::ListenFailed => "LISTEN_FAILED",
            Code::UnknownProtocol => "UNKNOWN_PROTOCOL",
            Code::MissingCapability => "MISSING_CAPABILITY",
            Code::ResourceLimit => "RESOURCE_LIMIT",
            Code::Cancelled => "CANCELLED",
            Code::Interrupted => "INTERRUPTED",
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
            Code::PeerUnreachable
            | Code::PeerGone
            | Code::PeerTimeout
            | Code::ProtocolError
            | Code::ChecksumMismatch => -102,
            Code::NotifyRejected => -104,
            Code::BadPeerName | Code::Metadata | Code::NameTaken => -200,
            _ => -1,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
