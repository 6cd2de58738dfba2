//! The one error type of everything above the paths.
//!
//! Owns: how an error reads, where it happened, and whether the call may be repeated. The codes are in `code.rs`.
//! Must not know: where errors are shown.

use std::fmt;
use std::sync::Arc;

use crate::code::Code;

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
        let Inner { code, stage, retry, message, .. } = &*self.0;
        write!(f, " ({}, retry {}): {message} [moonrail explain {code}]", stage.as_str(), retry.as_str())
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
             12 of 20 descriptors were applied [moonrail explain PEER_GONE]"
        );
    }
}
