//! What an exchange leaves: the keys of one connection, for tags on its messages.

use std::fmt;

use moonrail_wire::auth::PROOF_LEN;
use zeroize::Zeroize;

/// A tag behind a message.
pub type Tag = [u8; PROOF_LEN];

/// The secrets of one admitted connection, the same on both sides. Wiped when dropped; `Debug` shows nothing of them.
pub struct Session {
    request: [u8; 32],
    reply: [u8; 32],
}

impl Session {
    /// From the session key of the exchange.
    pub(crate) fn derive(session: &[u8; 32]) -> Self {
        let one = |label: &[u8]| *blake3::keyed_hash(session, label).as_bytes();
        Self { request: one(b"request"), reply: one(b"reply") }
    }

    /// The tag of the initiator's one message.
    #[must_use]
    pub fn seal_request(&self, frame: &[u8]) -> Tag {
        *blake3::keyed_hash(&self.request, frame).as_bytes()
    }

    /// The tag of the target's one message.
    #[must_use]
    pub fn seal_reply(&self, frame: &[u8]) -> Tag {
        *blake3::keyed_hash(&self.reply, frame).as_bytes()
    }

    /// Whether the initiator sent this message.
    #[must_use]
    pub fn is_request(&self, frame: &[u8], tag: &Tag) -> bool {
        // blake3's comparison takes the same time for every pair.
        blake3::keyed_hash(&self.request, frame) == *tag
    }

    /// Whether the target sent this message.
    #[must_use]
    pub fn is_reply(&self, frame: &[u8], tag: &Tag) -> bool {
        blake3::keyed_hash(&self.reply, frame) == *tag
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.request.zeroize();
        self.reply.zeroize();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}
