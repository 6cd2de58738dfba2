//! Where keys come from, and the look at their file before each use.
//!
//! Owns the file's format. It must not know what keys are used for.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::error::KeyError;
use crate::files::{self, FileFault, Readers, Stamp};
use crate::key::{Key, Keys, MOST};

/// Most keys in one file.
const MOST_KEYS: usize = 8;
/// Longest file, in bytes: every key at its longest, and as much again for comments.
const LONGEST: u64 = (2 * MOST_KEYS * MOST) as u64;

/// Where the keys are. `Debug` does not show a key that was given as text.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file, read again when it has changed.
    File(PathBuf),
    /// The key itself, for good. `of` says where it was given, for messages.
    Text {
        /// For example the name of a variable.
        of: String,
        /// The key; white space round it is not part of it.
        text: Zeroizing<String>,
    },
}

impl KeySource {
    /// A key as text.
    pub fn text(of: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Text { of: of.into(), text: Zeroizing::new(text.into()) }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text { of, .. } => f.debug_struct("Text").field("of", of).finish_non_exhaustive(),
        }
    }
}

/// The keys in force, kept up with their file.
#[derive(Debug)]
pub struct Keyring {
    source: KeySource,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    keys: Arc<Keys>,
    /// Of the file as it was looked at last, whether or not it could be taken.
    seen: Option<Stamp>,
    /// That the file is gone or cannot be looked at was told.
    told: bool,
}

impl Keyring {
    /// Reads the keys.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn open(source: KeySource) -> Result<Self, KeyError> {
        let (keys, seen) = match &source {
            KeySource::File(path) => {
                let (keys, stamp) = read(path)?;
                (keys, Some(stamp))
            }
            KeySource::Text { of, text } => {
                let key = Key::new(text.trim().as_bytes())
                    .map_err(|len| KeyError::Length { of: of.clone(), len })?;
                (Keys::one(key), None)
            }
        };
        Ok(Self { source, state: Mutex::new(State { keys: Arc::new(keys), seen, told: false }) })
    }

    /// The keys in force now. Looks at the file (one system call), and reads it if it has changed; one that cannot be
    /// taken is told in the log once, and changes nothing.
    pub fn keys(&self) -> Arc<Keys> {
        let mut state = self.state.lock();
        if let KeySource::File(path) = &self.source {
            match std::fs::metadata(path) {
                Ok(meta) if state.seen == Some(Stamp::of(&meta)) => state.told = false,
                Ok(meta) => reload(path, Stamp::of(&meta), &mut state),
                Err(error) => {
                    if !std::mem::replace(&mut state.told, true) {
                        tracing::warn!(
                            "key file {}: {error}; the keys read last stay in force",
                            path.display()
                        );
                    }
                }
            }
        }
        Arc::clone(&state.keys)
    }
}

fn reload(path: &Path, looked_at: Stamp, state: &mut State) {
    match read(path) {
        Ok((keys, stamp)) => {
            if *state.keys != keys {
                tracing::info!("key file {} was read again", path.display());
            }
            *state = State { keys: Arc::new(keys), seen: Some(stamp), told: false };
        }
        Err(error) => {
            tracing::warn!("{error}; the keys read last stay in force");
            state.seen = Some(looked_at);
        }
    }
}

fn read(path: &Path) -> Result<(Keys, Stamp), KeyError> {
    let (file, stamp) = files::open(path, Readers::Owner).map_err(|fault| faulty(path, fault))?;
    let failed = |error| KeyError::Read { path: path.to_owned(), error };
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST as usize + 1));
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LONGEST {
        return Err(KeyError::TooMany(path.to_owned()));
    }
    let mut keys = Vec::new();
    for (nth, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let of = || format!("key file {}, line {}", path.display(), nth + 1);
        keys.push(Key::new(line).map_err(|len| KeyError::Length { of: of(), len })?);
    }
    if keys.len() > MOST_KEYS {
        return Err(KeyError::TooMany(path.to_owned()));
    }
    let keys = Keys::new(keys).ok_or_else(|| KeyError::Empty(path.to_owned()))?;
    Ok((keys, stamp))
}

fn faulty(path: &Path, fault: FileFault) -> KeyError {
    let path = path.to_owned();
    match fault {
        FileFault::Read(error) => KeyError::Read { path, error },
        FileFault::NotAFile => KeyError::NotAFile(path),
        FileFault::Permissions(mode) => KeyError::Permissions { path, mode },
        FileFault::Owner(owner) => KeyError::Owner { path, owner },
    }
}
