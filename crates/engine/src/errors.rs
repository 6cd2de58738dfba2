//! How the failures of the layers below become the engine's.

use std::io;

use moonrail_access::{Denied, TlsDenied};
use moonrail_memory::{HoldError, RegionSpan, RegisterError, UnregisterError};
use moonrail_metadata::{MetadataError, MetadataErrorKind};
use moonrail_transport::{Code, Error, Retry, Stage};

pub(crate) fn initialize(code: Code, message: impl Into<String>) -> Error {
    Error::new(code, Stage::Initialize, Retry::AfterFix, message)
}

pub(crate) fn arguments(code: Code, message: impl Into<String>) -> Error {
    Error::new(code, Stage::Arguments, Retry::AfterFix, message)
}

pub(crate) fn closed() -> Error {
    let message = "the engine was shut down";
    Error::new(Code::NotInitialized, Stage::Arguments, Retry::AfterFix, message)
}

pub(crate) fn forked() -> Error {
    let message = "this process was forked from the one that made the engine; make a new engine here";
    Error::new(Code::Forked, Stage::Arguments, Retry::AfterFix, message)
}

pub(crate) fn system(stage: Stage, what: &str, error: &io::Error) -> Error {
    let code =
        if moonrail_sys::errno::is_descriptor_limit(error) { Code::ResourceLimit } else { Code::System };
    let hint = if code == Code::ResourceLimit { " (raise the limit: ulimit -n)" } else { "" };
    Error::new(code, stage, Retry::AfterFix, format!("{what}: {error}{hint}"))
}

pub(crate) fn register(error: &RegisterError) -> Error {
    let code = match error {
        RegisterError::Overlap { .. } => Code::AddressOverlapped,
        _ => Code::InvalidArgument,
    };
    Error::new(code, Stage::Register, Retry::AfterFix, error.to_string())
}

pub(crate) fn unregister(error: &UnregisterError) -> Error {
    let (code, retry) = match error {
        UnregisterError::NotRegistered { .. } => (Code::AddressNotRegistered, Retry::AfterFix),
        _ => (Code::RegionBusy, Retry::Safe),
    };
    Error::new(code, Stage::Register, retry, error.to_string())
}

pub(crate) fn local(index: usize, count: usize, error: &HoldError) -> Error {
    let message = format!(
        "the local side {} is not inside one registered region: {error}; register_memory it first",
        RegionSpan { addr: error.addr, len: error.len }
    );
    let error = arguments(Code::LocalNotRegistered, message);
    if count > 1 { error.with_index(index) } else { error }
}

/// A failure to find or ask `peer`.
pub(crate) fn metadata(stage: Stage, peer: &str, error: &MetadataError) -> Error {
    use MetadataErrorKind as Kind;
    let (code, retry) = match error.kind {
        Kind::BadAddress => (Code::BadPeerName, Retry::AfterFix),
        Kind::Unsupported => (Code::UnknownProtocol, Retry::AfterFix),
        Kind::Resolve => (Code::NameResolution, Retry::AfterFix),
        Kind::Refused | Kind::Unreachable => (Code::PeerUnreachable, Retry::Safe),
        Kind::Timeout { .. } => (Code::PeerTimeout, Retry::Safe),
        Kind::Reset => (Code::PeerGone, Retry::Safe),
        Kind::Protocol => (Code::ProtocolError, Retry::AfterFix),
        Kind::Rejected if stage == Stage::Notify => (Code::NotifyRejected, Retry::Safe),
        Kind::Rejected => (Code::UnsupportedPeer, Retry::AfterFix),
        Kind::Denied(Denied::KeyRequired) => (Code::KeyRequired, Retry::AfterFix),
        Kind::Denied(Denied::NotAsked | Denied::Impostor) => (Code::PeerUnproven, Retry::AfterFix),
        Kind::Denied(Denied::Malformed | Denied::Version) => (Code::ProtocolError, Retry::AfterFix),
        Kind::Denied(Denied::TlsRequired) | Kind::Tls(TlsDenied::Required) => {
            (Code::TlsRequired, Retry::AfterFix)
        }
        Kind::Tls(TlsDenied::Untrusted) => (Code::TlsUntrusted, Retry::AfterFix),
        Kind::Tls(TlsDenied::Refused) => (Code::TlsRefused, Retry::AfterFix),
        Kind::Tls(TlsDenied::NotOffered) => (Code::TlsNotOffered, Retry::AfterFix),
        Kind::Tls(TlsDenied::Broken) => (Code::ProtocolError, Retry::AfterFix),
        Kind::Denied(_) => (Code::KeyRefused, Retry::AfterFix),
        Kind::TooLarge => (Code::InvalidArgument, Retry::AfterFix),
        Kind::NotFound => (Code::BadPeerName, Retry::Safe),
        Kind::NameTaken => (Code::NameTaken, Retry::AfterFix),
        Kind::Http(_) => (Code::Metadata, Retry::Safe),
        Kind::NoDescriptors => (Code::ResourceLimit, Retry::Safe),
        _ => (Code::System, Retry::Safe),
    };
    Error::new(code, stage, retry, error.to_string()).with_peer(peer)
}

/// A failure of the metadata server to take what this engine publishes.
pub(crate) fn publish(stage: Stage, error: &MetadataError) -> Error {
    let code = match error.kind {
        MetadataErrorKind::NameTaken => Code::NameTaken,
        MetadataErrorKind::Unsupported | MetadataErrorKind::BadAddress => Code::UnknownProtocol,
        _ => Code::Metadata,
    };
    Error::new(code, stage, Retry::AfterFix, format!("metadata server: {error}"))
}
