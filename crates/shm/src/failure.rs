//! How this path's failures read.

use std::io;

use moonrail_sys::host;
use moonrail_transport::{Code, Error, Failure, Opcode, Retry, Stage, Stop, Target, Work};

/// A failure, and whether it means that this path does not work to this target at all.
pub(crate) struct Trouble {
    pub(crate) failure: Failure,
    pub(crate) why_not: Option<WhyNot>,
}

/// Why this path does not work to a target.
#[derive(Debug, Clone)]
pub(crate) struct WhyNot {
    pub(crate) reason: String,
    /// Whether it may work soon.
    pub(crate) passing: bool,
}

/// A batch as its failures need it.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) target: &'a Target,
    pub(crate) work: &'a Work<'a>,
    /// The first entry not known to be applied.
    pub(crate) index: usize,
    /// Whether a byte may have been copied.
    pub(crate) started: bool,
}

impl<'a> Case<'a> {
    /// A batch of which nothing was copied.
    pub(crate) fn begun(target: &'a Target, work: &'a Work<'a>) -> Self {
        Self { target, work, index: 0, started: false }
    }

    fn failed(&self, code: Code, stage: Stage, message: &str, stale: bool) -> Trouble {
        let Case { target, work, index, started } = *self;
        let untouched = !started || work.opcode == Opcode::Read;
        let retry = match code {
            Code::RemoteRefused | Code::PermissionDenied | Code::MemoryFault | Code::UnsupportedPeer => {
                Retry::AfterFix
            }
            _ if untouched => Retry::Safe,
            _ => Retry::Unsafe,
        };
        let mut error = Error::new(code, stage, retry, message).with_peer(&target.name);
        if let Some(entry) = work.entries.get(index) {
            error = error.with_note(format_args!(
                "{} of {} bytes, local {:#x}, remote {:#x}",
                work.opcode.as_str(),
                entry.len,
                entry.local,
                entry.remote
            ));
        }
        if work.entries.len() > 1 {
            error = error.with_index(index);
            if started {
                let total = work.entries.len();
                error =
                    error.with_note(format_args!("{index} of {total} descriptors are known to be applied"));
            }
        }
        Trouble { failure: Failure { error, untouched, stale }, why_not: None }
    }

    /// This path does not work to this target; another may.
    pub(crate) fn cannot(&self, stage: Stage, why: WhyNot) -> Trouble {
        let message = format!("the same-host path does not work to this peer: {}", why.reason);
        let mut trouble = self.failed(Code::UnsupportedPeer, stage, &message, false);
        trouble.why_not = Some(why);
        trouble
    }

    /// The target has regions that this path cannot see.
    pub(crate) fn not_listed(&self) -> Trouble {
        let message =
            "the peer has more regions than its shared page lists, and the range lies in none of those";
        self.failed(Code::UnsupportedPeer, Stage::Transfer, message, false)
    }

    pub(crate) fn gone(&self, stage: Stage, how: &str) -> Trouble {
        self.failed(Code::PeerGone, stage, how, true)
    }

    /// The target ended amid or before the transfer.
    pub(crate) fn over(&self) -> Trouble {
        self.gone(Stage::Transfer, "the peer's process, or its engine, has ended")
    }

    pub(crate) fn refused(&self, miss: &str) -> Trouble {
        self.failed(Code::RemoteRefused, Stage::Transfer, &format!("the remote range {miss}"), true)
    }

    /// The target's region may not be used so.
    pub(crate) fn barred(&self, miss: &str) -> Trouble {
        self.failed(Code::PermissionDenied, Stage::Transfer, &format!("the remote range {miss}"), false)
    }

    pub(crate) fn not_mapped(&self) -> Trouble {
        let message =
            "the peer has registered this memory, but it is not mapped there as the transfer needs it";
        self.failed(Code::RemoteRefused, Stage::Transfer, message, false)
    }

    pub(crate) fn local_fault(&self) -> Trouble {
        let message =
            "local memory of the transfer is not mapped (freed without unregister, or device memory)";
        self.failed(Code::MemoryFault, Stage::Transfer, message, false)
    }

    pub(crate) fn not_held(&self) -> Trouble {
        let message = "the local range is not held";
        self.failed(Code::LocalNotRegistered, Stage::Arguments, message, false)
    }

    pub(crate) fn nonsense(&self, what: &str) -> Trouble {
        self.failed(Code::ProtocolError, Stage::Transfer, what, true)
    }

    pub(crate) fn system(&self, stage: Stage, what: &str, error: &io::Error) -> Trouble {
        self.failed(Code::System, stage, &format!("{what}: {error}"), false)
    }

    pub(crate) fn forked(&self) -> Trouble {
        let message = "this process was forked from the one that made the engine; make a new engine here";
        self.failed(Code::Forked, Stage::Arguments, message, false)
    }

    pub(crate) fn deadline(&self, stage: Stage) -> Trouble {
        self.failed(Code::DeadlineExceeded, stage, "the call's deadline passed", false)
    }

    pub(crate) fn silent(&self, what: &str) -> Trouble {
        self.failed(Code::PeerTimeout, Stage::Connect, what, true)
    }

    pub(crate) fn crowded(&self) -> Trouble {
        let message = "every entry of this process is taken by another transfer, and none came free in time";
        self.failed(Code::ResourceLimit, Stage::Transfer, message, false)
    }

    pub(crate) fn stopped(&self, stage: Stage, stop: Stop) -> Trouble {
        let (code, message) = match stop {
            Stop::Cancelled => (Code::Cancelled, "the transfer was cancelled"),
            Stop::Interrupted => (Code::Interrupted, "a signal interrupted the transfer"),
        };
        self.failed(code, stage, message, false)
    }
}

impl WhyNot {
    pub(crate) fn lasting(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), passing: false }
    }

    pub(crate) fn passing(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), passing: true }
    }

    /// The kernel forbids a copy, or has no such call.
    pub(crate) fn forbidden(error: &io::Error) -> Self {
        let hint = match host::ptrace_scope() {
            Some(scope @ 1..) => format!(" (kernel.yama.ptrace_scope is {scope}; 0 permits it)"),
            _ => " (a seccomp profile, a lost capability, or a process that is not dumpable)".to_owned(),
        };
        Self::lasting(format!("the kernel forbids cross-memory copies: {error}{hint}"))
    }
}

/// Whether the kernel says that such copies are not for this process, whoever the peer's addresses belong to.
pub(crate) fn is_forbidden(error: &io::Error) -> bool {
    // EPERM, EACCES; ENOSYS.
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}
