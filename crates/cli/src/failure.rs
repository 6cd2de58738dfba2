//! How a command fails: its exit code and the line on standard error.

use std::io::{self, Write};

use moonrail::{Code, Error};

/// Exit code of wrong arguments.
pub(crate) const USAGE: i32 = 2;
/// Exit code of an operation that failed.
pub(crate) const FAILED: i32 = 1;
/// Exit code of a peer that cannot be reached.
pub(crate) const UNREACHABLE: i32 = 3;
/// What a shell reports for a program ended by SIGPIPE.
const CLOSED_PIPE: i32 = 141;

/// Why a command ends without success. Reads `moonrail: what, where; how to fix`.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: i32,
    what: String,
    fix: Option<String>,
}

impl Failure {
    /// The operation failed.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self { exit: FAILED, what: what.into(), fix: None }
    }

    /// The arguments cannot be carried out together.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { exit: USAGE, what: what.into(), fix: None }
    }

    /// `what` went wrong in the engine.
    pub(crate) fn engine(what: &str, error: &Error) -> Self {
        let exit = if is_unreachable(error.code()) { UNREACHABLE } else { FAILED };
        Self { exit, what: format!("{what}: {error}"), fix: fix(error.code()).map(str::to_owned) }
    }

    /// The same, with what to do about it.
    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// The same as a failure of the operation, whatever its cause.
    pub(crate) fn plain(mut self) -> Self {
        self.exit = FAILED;
        self
    }

    pub(crate) fn exit_code(&self) -> i32 {
        self.exit
    }

    /// Writes the line; silent where the output was closed, as its reader wanted no more.
    pub(crate) fn report(&self, to: &mut impl Write) {
        if self.exit != CLOSED_PIPE {
            // There is no other place to complain.
            let _ = writeln!(to, "moonrail: {self}");
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)?;
        self.fix.iter().try_for_each(|fix| write!(f, "; {fix}"))
    }
}

/// A failure to write to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let exit = if error.kind() == io::ErrorKind::BrokenPipe { CLOSED_PIPE } else { FAILED };
        Self { exit, what: format!("cannot write to standard output: {error}"), fix: None }
    }
}

fn is_unreachable(code: Code) -> bool {
    matches!(code, Code::PeerUnreachable | Code::PeerTimeout | Code::PeerGone | Code::NameResolution)
}

fn fix(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::PeerUnreachable => {
            "start it, or check its address: the port is the one that `moonrail serve` prints"
        }
        Code::PeerTimeout => "it is stopped, overloaded, or behind a firewall",
        Code::PeerGone => "look at why it ended, and start it again",
        Code::NameResolution => "check the host name",
        Code::BadPeerName => "give host:port, or with --metadata-server the segment's name",
        Code::KeyRequired => "give --key-file",
        Code::TlsRequired => "give --tls-cert, --tls-key and --tls-ca",
        Code::KeyRefused => "compare the key files of both sides",
        Code::PeerUnproven => "give the peer the key, or --allow mooncake",
        Code::NameTaken => "give another --name, or stop the engine that has it",
        Code::Metadata => "check that the metadata server runs and that its URL ends in /metadata",
        Code::UnknownProtocol => "see --help for what this build knows",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use moonrail::{Retry, Stage};

    #[test]
    fn exit_codes_tell_a_missing_peer_from_a_failure() {
        let of =
            |code| Failure::engine("bench", &Error::new(code, Stage::Connect, Retry::Safe, "x")).exit_code();
        assert_eq!(of(Code::PeerUnreachable), 3);
        assert_eq!(of(Code::PeerTimeout), 3);
        assert_eq!(of(Code::RemoteRefused), 1);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit_code(), 141);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::StorageFull)).exit_code(), 1);
    }

    #[test]
    fn a_failure_is_one_line_with_its_remedy() {
        let mut line = Vec::new();
        Failure::failed("trace x.jsonl line 3: no JSON").fix("give another file").report(&mut line);
        assert_eq!(line, b"moonrail: trace x.jsonl line 3: no JSON; give another file\n");
    }
}
