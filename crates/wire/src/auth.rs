//! Where the parts of the key exchange stand in the openings of a connection (docs/security.md, "On the wire").
//!
//! Owns positions and lengths. Knows no key and computes nothing.

use crate::rail::{HELLO_LEN, MAGIC, WELCOME_LEN};

/// The first 8 bytes of a connection to the handshake port that begins with the exchange. Read as a length, they are
/// above every limit.
pub const HANDSHAKE_MAGIC: [u8; 8] = *b"MHAND\x00\x01\xff";
/// Feature bit of the rail protocol: both sides prove a shared key.
pub const FEATURE_KEY: u32 = 1 << 1;
/// Feature bit of the rail protocol, only in announcements: the target speaks TLS.
pub const FEATURE_TLS: u32 = 1 << 3;
/// Bytes of a nonce.
pub const NONCE_LEN: usize = 32;
/// Bytes of a key id.
pub const KEY_ID_LEN: usize = 8;
/// Bytes of a proof, and of the tag behind a sealed message.
pub const PROOF_LEN: usize = 32;

const NONCE_AT: usize = 24;
const KEY_ID_AT: usize = NONCE_AT + NONCE_LEN;

// After the hello, whole blocks of one length are exchanged.
const _: () = assert!(KEY_ID_AT + KEY_ID_LEN == HELLO_LEN);
const _: () = assert!(WELCOME_LEN == NONCE_LEN && WELCOME_LEN == PROOF_LEN);

/// What a hello brings for the exchange, in its last 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Random, new for each connection.
    pub nonce: [u8; NONCE_LEN],
    /// Which key is meant; not a secret.
    pub key_id: [u8; KEY_ID_LEN],
}

impl Opening {
    /// Puts it into an encoded hello.
    pub fn put(&self, hello: &mut [u8; HELLO_LEN]) {
        hello[NONCE_AT..KEY_ID_AT].copy_from_slice(&self.nonce);
        hello[KEY_ID_AT..].copy_from_slice(&self.key_id);
    }

    /// Reads it from a hello.
    #[must_use]
    pub fn of(hello: &[u8; HELLO_LEN]) -> Self {
        let mut opening = Self { nonce: [0; NONCE_LEN], key_id: [0; KEY_ID_LEN] };
        opening.nonce.copy_from_slice(&hello[NONCE_AT..KEY_ID_AT]);
        opening.key_id.copy_from_slice(&hello[KEY_ID_AT..]);
        opening
    }
}

/// The port that a connection was made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// The data port.
    Data,
    /// The handshake port.
    Handshake,
}

impl Port {
    /// How a hello to this port begins.
    #[must_use]
    pub fn magic(self) -> [u8; 8] {
        match self {
            Self::Data => MAGIC,
            Self::Handshake => HANDSHAKE_MAGIC,
        }
    }
}
