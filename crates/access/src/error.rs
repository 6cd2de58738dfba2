//! Why somebody is not admitted, and why a key cannot be had.

use std::io;
use std::path::PathBuf;

/// Why a connection goes no further. Whether it is the peer or this side that refuses is part of each case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Denied {
    /// Said by a target: the other side brought no key.
    #[error("a shared key is required and the caller has none")]
    KeyRequired,
    /// Said by a target: it knows no key of that id.
    #[error("the caller's key is none of the keys known here")]
    UnknownKey,
    /// Said by a target: the proof is wrong (another key, recorded bytes, or something was changed on the way).
    #[error("the caller did not prove its key")]
    WrongProof,
    /// Found by an initiator: the peer does not know its key, or did not find it proven.
    #[error("the peer refused this engine's key")]
    KeyRefused,
    /// Found by an initiator: the peer goes on without asking for the key.
    #[error("the peer did not ask for the shared key: it has none, or its answer was changed on the way")]
    NotAsked,
    /// Found by an initiator: the peer's own proof is wrong.
    #[error("the peer did not prove the shared key: it is not the engine that is meant")]
    Impostor,
    /// Found by an initiator: the peer speaks nothing but TLS, and was called in clear.
    #[error("the peer speaks nothing but TLS, and this engine called it in clear")]
    TlsRequired,
    /// Another run of the target is meant.
    #[error("the peer is another process than the one that is meant")]
    Epoch,
    /// The version of the hello is not spoken.
    #[error("another version of the protocol")]
    Version,
    /// Bytes that are no part of the exchange.
    #[error("the peer sent bytes that are no part of the key exchange")]
    Malformed,
}

/// Why there is no key. Never shows the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read.
    #[error("key file {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is something else.
    #[error("key file {0} is not a regular file")]
    NotAFile(PathBuf),
    /// Others may read or change the file.
    #[error("key file {path} has mode {mode:04o}: others may read or change it; chmod 600 it")]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is somebody else's.
    #[error("key file {path} belongs to user {owner}, not to this process's or root")]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
    },
    /// No line of the file is a key.
    #[error("key file {0} holds no key")]
    Empty(PathBuf),
    /// A key of a length that is not taken.
    #[error("{of}: a key of {len} bytes; a key is a line of {least} to {most} bytes", least = crate::key::LEAST, most = crate::key::MOST)]
    Length {
        /// The line of the file, or the variable.
        of: String,
        /// The key's length in bytes.
        len: usize,
    },
    /// More keys, or a longer file, than is taken.
    #[error("key file {0} is too long: 8 keys at most")]
    TooMany(PathBuf),
}
