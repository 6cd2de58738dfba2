//! Files that decide who may connect: who may read and change them, and whether they have changed.
//!
//! Must not know what stands in them.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Who may read a file, beside its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// At most its group: it holds a secret.
    Owner,
    /// Everybody; nobody else may change it.
    All,
}

/// Why a file is not read.
#[derive(Debug)]
pub(crate) enum FileFault {
    /// What the system says.
    Read(io::Error),
    NotAFile,
    /// Others may read or change it; its permission bits.
    Permissions(u32),
    /// It belongs to this user id, which is neither this process's nor root's.
    Owner(u32),
}

/// Changes whenever the file is written, replaced, or its mode changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            len: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Opens a regular file that this user or root owns and only they may change.
pub(crate) fn open(path: &Path, readers: Readers) -> Result<(File, Stamp), FileFault> {
    // A pipe would keep the opening waiting.
    if !std::fs::metadata(path).map_err(FileFault::Read)?.is_file() {
        return Err(FileFault::NotAFile);
    }
    let file = File::open(path).map_err(FileFault::Read)?;
    // Of what was opened, whatever the path names by now.
    let meta = file.metadata().map_err(FileFault::Read)?;
    judge(&meta, readers)?;
    Ok((file, Stamp::of(&meta)))
}

fn judge(meta: &Metadata, readers: Readers) -> Result<(), FileFault> {
    if !meta.is_file() {
        return Err(FileFault::NotAFile);
    }
    let mode = meta.mode() & 0o7777;
    let barred = match readers {
        Readers::Owner => 0o027,
        Readers::All => 0o022,
    };
    if mode & barred != 0 {
        return Err(FileFault::Permissions(mode));
    }
    // The owner of this process's own directory in /proc is the effective user.
    let own = std::fs::metadata("/proc/self").map(|own| own.uid()).ok();
    if meta.uid() != 0 && own.is_some_and(|own| own != meta.uid()) {
        return Err(FileFault::Owner(meta.uid()));
    }
    Ok(())
}
