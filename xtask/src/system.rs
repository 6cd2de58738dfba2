//! Debian packages: installed where we may (root with apt-get), otherwise named with the one command that does it.

use crate::process;
use crate::workspace::Workspace;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// What genuine Mooncake's wheels link to, and the package that holds it.
const GENUINE_LIBRARIES: [(&str, &str); 3] =
    [("libibverbs.so.1", "libibverbs1"), ("libnuma.so.1", "libnuma1"), ("libcurl.so.4", "libcurl4")];

/// What Chromium is called, by distribution.
const CHROMIUM: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Why something that the system lacks is not there now.
pub(crate) enum Missing {
    /// Only the machine's owner can install it; the text says how.
    NeedsRoot(String),
    /// We may install it, and it failed.
    Failed(String),
}

impl Missing {
    pub(crate) fn into_message(self) -> String {
        match self {
            Self::NeedsRoot(message) | Self::Failed(message) => message,
        }
    }
}

/// Makes the libraries that genuine Mooncake's wheels need loadable.
pub(crate) fn genuine_libraries(workspace: &Workspace) -> Result<(), Missing> {
    let absent = absent_packages(workspace);
    if absent.is_empty() {
        return Ok(());
    }
    apt_install(workspace, &absent, "genuine Mooncake's wheels need them")?;
    let absent = absent_packages(workspace);
    if absent.is_empty() {
        return Ok(());
    }
    Err(Missing::Failed(format!("{} installed, and python3 still cannot load the library", absent.join(" "))))
}

/// Makes a Chromium for the tests of the pages. Theirs is the list of names.
pub(crate) fn chromium(workspace: &Workspace) -> Result<(), Missing> {
    if CHROMIUM.iter().any(|name| process::is_installed(name)) {
        return Ok(());
    }
    apt_install(workspace, &["chromium"], "the pages are tested in it")
}

/// Installs Debian packages.
pub(crate) fn apt_install(workspace: &Workspace, packages: &[&str], why: &str) -> Result<(), Missing> {
    let list = packages.join(" ");
    if !is_root() || !process::is_installed("apt-get") {
        return Err(Missing::NeedsRoot(format!("{why}; run: sudo apt-get install -y {list}")));
    }
    let apt = |args: &[&str]| {
        let mut command = process::command(workspace, "apt-get");
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["-qq", "-o", "DPkg::Lock::Timeout=120"])
            .args(args);
        process::run(&mut command)
    };
    let install = [&["install", "-y", "--no-install-recommends"], packages].concat();
    apt(&["update"])
        .and_then(|()| apt(&install))
        .map_err(|e| Missing::Failed(format!("cannot install {list}, and {why}: {e}")))
}

/// The packages of the libraries that cannot be loaded now.
fn absent_packages(workspace: &Workspace) -> Vec<&'static str> {
    let absent = GENUINE_LIBRARIES.iter().filter(|(library, _)| !loadable(workspace, library));
    absent.map(|&(_, package)| package).collect()
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Asks the loader itself: package names differ between releases, library names do not.
fn loadable(workspace: &Workspace, library: &str) -> bool {
    let load = format!("import ctypes; ctypes.CDLL({library:?})");
    let mut command: Command = process::command(workspace, "python3");
    process::read(command.args(["-c", &load])).is_ok()
}
