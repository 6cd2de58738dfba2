//! One shared key, and the list of them that is in force.

use std::fmt;

use moonrail_wire::auth::KEY_ID_LEN;
use zeroize::Zeroize;

/// Shortest and longest key, in bytes.
pub(crate) const LEAST: usize = 16;
pub(crate) const MOST: usize = 512;

const CONTEXT: &str = "moonrail 2026-12 shared key";
const ID_CONTEXT: &str = "moonrail 2026-12 shared key id";

/// A shared key, ready for use. Its memory is wiped when it is dropped; its `Debug` shows its id only.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    secret: [u8; 32],
    id: [u8; KEY_ID_LEN],
}

impl Key {
    /// From the text or bytes that the members share; `Err` is a length, in bytes, that is not taken (16 to 512 are).
    ///
    /// # Errors
    /// The length.
    pub fn new(material: &[u8]) -> Result<Self, usize> {
        if !(LEAST..=MOST).contains(&material.len()) {
            return Err(material.len());
        }
        let whole_id = blake3::derive_key(ID_CONTEXT, material);
        let mut id = [0; KEY_ID_LEN];
        id.copy_from_slice(&whole_id[..KEY_ID_LEN]);
        Ok(Self { secret: blake3::derive_key(CONTEXT, material), id })
    }

    /// Tells keys apart; not a secret.
    #[must_use]
    pub fn id(&self) -> [u8; KEY_ID_LEN] {
        self.id
    }

    /// Starts a keyed hash.
    pub(crate) fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.secret)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(id {:016x})", u64::from_be_bytes(self.id))
    }
}

/// The keys in force: the first is used to call, every one of them is admitted. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys(Vec<Key>);

impl Keys {
    /// One key, for both roles.
    #[must_use]
    pub fn one(key: Key) -> Self {
        Self(vec![key])
    }

    /// `None` for an empty list.
    #[must_use]
    pub fn new(keys: Vec<Key>) -> Option<Self> {
        (!keys.is_empty()).then_some(Self(keys))
    }

    /// The key to call with.
    #[must_use]
    pub fn first(&self) -> &Key {
        &self.0[0]
    }

    /// The key of this id.
    #[must_use]
    pub fn find(&self, id: [u8; KEY_ID_LEN]) -> Option<&Key> {
        self.0.iter().find(|key| key.id == id)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_their_material_and_hide_it() {
        let (a, b) = (Key::new(b"0123456789abcdef").unwrap(), Key::new(b"0123456789abcdeg").unwrap());
        assert_ne!(a.id(), b.id());
        assert_ne!(a.secret, b.secret);
        assert_ne!(a.secret[..KEY_ID_LEN], a.id);
        let shown = format!("{a:?} {:?}", Keys::new(vec![a.clone(), b]).unwrap());
        assert!(!shown.contains("0123456789abcde") && !shown.contains("secret"), "{shown}");
        let hex: String = a.secret.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!shown.contains(&hex[..16]), "{shown}");
        assert_eq!(Key::new(b"too short"), Err(9));
        assert_eq!(Key::new(&[1; 513]), Err(513));
        assert_eq!(Keys::new(Vec::new()), None);
    }
}
