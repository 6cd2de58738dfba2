//! How the client's failures read.

use std::io;
use std::time::Duration;

use moonrail_access::{TlsDenied, TlsFault};
use moonrail_transport::{Code, Error, Failure, Opcode, Retry, Stage, Stop, Target, Work};

use crate::checked::Corrupt;

/// How long a transfer may stand still before it lets go of memory that is being unregistered.
const LETS_GO: Duration = Duration::from_millis(100);

/// How far an exchange had come when it failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    /// The entry that the failure is about.
    pub index: usize,
    /// Entries known to be applied: all before this one. `None` where it is not known of the batch as a whole.
    pub applied: Option<usize>,
    /// No byte of the batch can have reached the peer's memory.
    pub untouched: bool,
}

impl Reached {
    /// Nothing was sent yet.
    pub(super) const NOTHING: Reached = Reached { index: 0, applied: Some(0), untouched: true };
}

/// The failure of an exchange. Reads leave the peer untouched, so they may always be repeated.
pub(super) fn failed(
    target: &Target,
    work: &Work<'_>,
    reached: Reached,
    code: Code,
    stage: Stage,
    message: String,
) -> Failure {
    let untouched = reached.untouched || work.opcode == Opcode::Read;
    let retry = match code {
        Code::RemoteRefused
        | Code::MemoryFault
        | Code::ProtocolError
        | Code::PermissionDenied
        | Code::TokenRefused
        | Code::KeyRequired
        | Code::KeyRefused
        | Code::PeerUnproven
        | Code::TlsRequired
        | Code::TlsUntrusted
        | Code::TlsRefused
        | Code::TlsNotOffered => Retry::AfterFix,
        _ if untouched => Retry::Safe,
        _ => Retry::Unsafe,
    };
    let entry = work.entries.get(reached.index);
    let what = entry.map_or(String::new(), |entry| {
        format!(
            " ({} of {} bytes, local {:#x}, remote {:#x})",
            work.opcode.as_str(),
            entry.len,
            entry.local,
            entry.remote
        )
    });
    let mut error = Error::new(code, stage, retry, format!("{message}{what}")).with_peer(&target.name);
    if work.entries.len() > 1 {
        error = error.with_index(reached.index);
        if let Some(count) = reached.applied {
            error = error.with_note(applied(count, work));
        }
    }
    let stale =
        matches!(code, Code::PeerUnreachable | Code::PeerGone | Code::PeerTimeout | Code::RemoteRefused);
    Failure { error, untouched, stale }
}

/// The note on how much of the batch is applied for certain.
pub(super) fn applied(count: usize, work: &Work<'_>) -> String {
    format!("{count} of {} descriptors are known to be applied", work.entries.len())
}

/// A connection that ended in the middle: `cause` is `None` for an end of file.
pub(super) fn gone(target: &Target, work: &Work<'_>, reached: Reached, cause: Option<&io::Error>) -> Failure {
    if let Some(fault) = cause.and_then(TlsFault::behind) {
        return tls(target, work, reached, fault);
    }
    if let Some(corrupt) = cause.and_then(Corrupt::behind) {
        let message = format!("{}: {corrupt}", endpoint(target));
        return failed(target, work, reached, Code::ChecksumMismatch, Stage::Transfer, message);
    }
    let how =
        cause.map_or("closed the connection".to_owned(), |cause| format!("broke the connection: {cause}"));
    let message = format!("the peer at {} {how} before the transfer was confirmed", endpoint(target));
    failed(target, work, reached, Code::PeerGone, Stage::Transfer, message)
}

/// The process behind the port is not the one whose descriptor is known. It looked at nothing.
pub(super) fn restarted(target: &Target, work: &Work<'_>, reached: Reached) -> Failure {
    let message = format!(
        "the process at {} is not the one whose addresses are known: it was restarted",
        endpoint(target)
    );
    let mut failure = failed(target, work, reached, Code::PeerGone, Stage::Connect, message);
    failure.untouched |= reached.applied == Some(0);
    failure
}

/// The peer admits only who proves a shared key. It looked at nothing.
pub(super) fn key_required(target: &Target, work: &Work<'_>, reached: Reached) -> Failure {
    let message = format!(
        "the peer at {} admits only engines with its shared key, and this one has none (MOONRAIL_KEY_FILE)",
        endpoint(target)
    );
    let mut failure = failed(target, work, reached, Code::KeyRequired, Stage::Connect, message);
    failure.untouched = true;
    failure
}

/// The peer speaks nothing but TLS. It looked at nothing.
pub(super) fn tls_required(target: &Target, work: &Work<'_>, reached: Reached) -> Failure {
    let message = format!(
        "the peer at {} speaks nothing but TLS, and this engine called it in clear (MOONRAIL_TLS_CERT)",
        endpoint(target)
    );
    let mut failure = failed(target, work, reached, Code::TlsRequired, Stage::Connect, message);
    failure.untouched = true;
    failure
}

/// A connection whose TLS goes no further.
fn tls(target: &Target, work: &Work<'_>, reached: Reached, fault: &TlsFault) -> Failure {
    let (code, hint) = match fault.denied() {
        TlsDenied::Untrusted => {
            (Code::TlsUntrusted, " (MOONRAIL_TLS_CA, MOONRAIL_TLS_PINS, MOONRAIL_TLS_NAME)")
        }
        TlsDenied::Refused => (Code::TlsRefused, ": its log says why"),
        TlsDenied::Required => (Code::TlsRequired, ""),
        TlsDenied::NotOffered => (Code::TlsNotOffered, ""),
        TlsDenied::Broken => (Code::ProtocolError, ""),
    };
    let stage = if reached.untouched { Stage::Connect } else { Stage::Transfer };
    failed(target, work, reached, code, stage, format!("{}: {fault}{hint}", endpoint(target)))
}

/// A local range that the kernel cannot read or write.
pub(super) fn fault(target: &Target, work: &Work<'_>, reached: Reached) -> Failure {
    let message =
        "local memory of the transfer is not mapped (freed without unregister, or device memory)".to_owned();
    failed(target, work, reached, Code::MemoryFault, Stage::Transfer, message)
}

/// The call was stopped from outside.
pub(super) fn stopped(target: &Target, work: &Work<'_>, reached: Reached, stop: Stop) -> Failure {
    let (code, message) = match stop {
        Stop::Cancelled => (Code::Cancelled, "the transfer was cancelled"),
        Stop::Interrupted => (Code::Interrupted, "a signal interrupted the transfer"),
    };
    failed(target, work, reached, code, Stage::Transfer, message.to_owned())
}

/// The peer has said what became of everything that it was sent.
pub(super) fn confirmed(mut failure: Failure) -> Failure {
    failure.error = failure.error.with_note("the peer confirmed that no more of it will land");
    failure
}

/// A transfer that stands still lets go of memory that is being unregistered: the fence must not depend on a peer.
pub(super) fn check_revoked(
    target: &Target,
    work: &Work<'_>,
    reached: Reached,
    still: Duration,
) -> Result<(), Failure> {
    if still < LETS_GO || !work.holds.any_revoked() {
        return Ok(());
    }
    let message = "local memory of the transfer was unregistered while the peer did not move".to_owned();
    Err(failed(target, work, reached, Code::Cancelled, Stage::Transfer, message))
}

/// The call's own deadline passed.
pub(super) fn deadline(target: &Target, work: &Work<'_>, reached: Reached, stage: Stage) -> Failure {
    failed(target, work, reached, Code::DeadlineExceeded, stage, "the call's deadline passed".to_owned())
}

/// No byte moved for `seconds`.
pub(super) fn stalled(target: &Target, work: &Work<'_>, reached: Reached, seconds: f64) -> Failure {
    let message = format!(
        "no byte moved to or from {} for {seconds:.1} s: the peer's process is stopped or stuck, or the network drops",
        endpoint(target)
    );
    failed(target, work, reached, Code::PeerTimeout, Stage::Transfer, message)
}

/// `host:port`, for messages.
pub(super) fn endpoint(target: &Target) -> String {
    match target.addresses.as_slice() {
        [] => "an unknown address".to_owned(),
        [only] => only.to_string(),
        [first, rest @ ..] => format!("{first} (and {} more addresses)", rest.len()),
    }
}
