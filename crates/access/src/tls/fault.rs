//! Why TLS cannot be had, and why a connection with it goes no further.

use std::io;
use std::path::PathBuf;

use rustls::{CertificateError, Error, InvalidMessage};

/// Why the files cannot be used. Never shows a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("TLS file {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is something else.
    #[error("TLS file {0} is not a regular file")]
    NotAFile(PathBuf),
    /// Others may change the file, or read the private key.
    #[error(
        "TLS file {path} has mode {mode:04o}: others may change it or read the key; chmod 600 the key, 644 the rest"
    )]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is somebody else's.
    #[error("TLS file {path} belongs to user {owner}, not to this process's or root")]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
    },
    /// Nothing of what is wanted stands in the file.
    #[error("TLS file {path}: {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A certificate and a key without anything to check peers against.
    #[error(
        "TLS needs something to check peers against: authorities (MOONRAIL_TLS_CA) or pinned keys (MOONRAIL_TLS_PINS)"
    )]
    NoTrust,
    /// What rustls says of certificate and key together.
    #[error("TLS certificate {cert} with key {key}: {what}")]
    Identity {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong with them.
        what: String,
    },
}

/// Why a TLS connection goes no further. The text says it of "the peer".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    /// Found here: the peer's certificate is not believed.
    #[error("the certificate of the peer is not accepted: {0}")]
    Untrusted(String),
    /// Said by the peer: this side's certificate is not believed, or was missing.
    #[error(
        "the peer did not accept this engine's certificate, or does not take one of these protocols: {0}"
    )]
    Refused(String),
    /// What came instead of TLS.
    #[error("the peer does not speak TLS: its first bytes are something else")]
    NotTls,
    /// Anything else: bytes changed on the way, a peer with other protocols.
    #[error("TLS broke: {0}")]
    Broken(String),
}

/// [`TlsFault`] and its like without their texts, for programs to decide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TlsDenied {
    /// Found by an initiator: the peer's certificate is not believed.
    Untrusted,
    /// Said by the peer: this engine's certificate is not believed.
    Refused,
    /// Found by an initiator: the peer does not offer TLS.
    NotOffered,
    /// Said by a target: it speaks nothing but TLS.
    Required,
    /// The connection broke in a way that is no network's.
    Broken,
}

impl TlsFault {
    /// Sorts what rustls says; `first` until a first message was understood.
    pub(super) fn of(error: &Error, first: bool) -> Self {
        match error {
            Error::InvalidCertificate(why) => Self::Untrusted(certificate(why)),
            Error::NoCertificatesPresented => Self::Untrusted("it showed none".to_owned()),
            Error::AlertReceived(alert) => Self::Refused(format!("alert {alert:?}")),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) if first => Self::NotTls,
            other => Self::Broken(other.to_string()),
        }
    }

    /// What a receive or a send failed with, if it was this.
    #[must_use]
    pub fn behind(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// What a stream that drives rustls itself failed with; `None` where the caller merely left.
    #[must_use]
    pub fn in_stream(error: &io::Error) -> Option<Self> {
        if error.kind() != io::ErrorKind::InvalidData {
            return None;
        }
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        Some(inner.map_or_else(|| Self::Broken(error.to_string()), |inner| Self::of(inner, true)))
    }

    /// Without the text.
    #[must_use]
    pub fn denied(&self) -> TlsDenied {
        match self {
            Self::Untrusted(_) => TlsDenied::Untrusted,
            Self::Refused(_) => TlsDenied::Refused,
            Self::NotTls => TlsDenied::NotOffered,
            Self::Broken(_) => TlsDenied::Broken,
        }
    }
}

impl From<TlsFault> for io::Error {
    fn from(fault: TlsFault) -> Self {
        Self::new(io::ErrorKind::InvalidData, fault)
    }
}

fn certificate(why: &CertificateError) -> String {
    let hint = match why {
        CertificateError::UnknownIssuer => "it comes from no authority in the CA files",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the peer is called by another name than stands in it"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it may not be used in this role (its extended key usage)"
        }
        CertificateError::ApplicationVerificationFailure => "its key is none of the pinned ones",
        _ => return why.to_string(),
    };
    format!("{hint} ({why})")
}
