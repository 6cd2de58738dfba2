//! Where keys come from, and the look at their file before each use.
//!
//! Owns the file's format and the demands on its permissions. It must not know what keys are used for.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::error::KeyError;
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

/// Changes whenever the file is written, replaced, or its mode changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
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
    let failed = |error| KeyError::Read { path: path.to_owned(), error };
    // A pipe would keep the opening waiting.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(KeyError::NotAFile(path.to_owned()));
    }
    let file = File::open(path).map_err(failed)?;
    // Of what was opened, whatever the path names by now.
    let meta = file.metadata().map_err(failed)?;
    judge(path, &meta)?;
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
    Ok((keys, Stamp::of(&meta)))
}

/// Who may read and change the file.
fn judge(path: &Path, meta: &Metadata) -> Result<(), KeyError> {
    if !meta.is_file() {
        return Err(KeyError::NotAFile(path.to_owned()));
    }
    let mode = meta.mode() & 0o7777;
    if mode & 0o027 != 0 {
        return Err(KeyError::Permissions { path: path.to_owned(), mode });
    }
    // The owner of this process's own directory in /proc is the effective user.
    let own = std::fs::metadata("/proc/self").map(|own| own.uid()).ok();
    if meta.uid() != 0 && own.is_some_and(|own| own != meta.uid()) {
        return Err(KeyError::Owner { path: path.to_owned(), owner: meta.uid() });
    }
    Ok(())
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            len: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}
