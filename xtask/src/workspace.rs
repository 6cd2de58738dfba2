//! Where things are in the checkout. Knows paths only; creates nothing but the cache folder.

use std::path::{Path, PathBuf};

/// The checkout this binary was built in.
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The run-time variable comes first: cargo sets it, and a checkout that was moved keeps its old binary.
    pub(crate) fn find() -> Self {
        let manifest =
            std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest).parent().expect("invariant: xtask/ lies in the checkout").to_owned();
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A path in the checkout, absolute.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// A path that must be there: a missing folder is a broken checkout, not something to skip.
    pub(crate) fn require(&self, relative: &str) -> Result<PathBuf, String> {
        let path = self.path(relative);
        if path.exists() { Ok(path) } else { Err(format!("{relative} is missing from this checkout")) }
    }

    /// Where cargo puts what it builds.
    pub(crate) fn target(&self) -> PathBuf {
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.path("target"), |dir| self.root.join(dir))
    }

    /// A path for what can be made again; git ignores all of it.
    pub(crate) fn cache(&self, relative: &str) -> Result<PathBuf, String> {
        let cache = self.root.join(".cache");
        std::fs::create_dir_all(&cache).map_err(|e| format!("cannot make {}: {e}", cache.display()))?;
        Ok(cache.join(relative))
    }
}

/// The files below a folder whose names end in `.extension`.
#[cfg(test)]
pub(crate) fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be listed").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|end| end == extension) {
            files.push(path);
        }
    }
    files
}
