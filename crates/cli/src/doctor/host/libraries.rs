//! Where the dynamic linker would find a library. Nothing is loaded.

use std::fs;
use std::path::{Path, PathBuf};

/// The first file of this name on the linker's path.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    folders().into_iter().map(|folder| folder.join(name)).find(|path| path.exists())
}

fn folders() -> Vec<PathBuf> {
    let own = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> =
        std::env::split_paths(&own).filter(|path| !path.as_os_str().is_empty()).collect();
    configured(Path::new("/etc/ld.so.conf"), &mut folders);
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    for base in ["/lib", "/usr/lib", "/usr/local/lib"] {
        folders.push(Path::new(base).join(&triple));
        folders.extend([base.to_owned(), format!("{base}64")].map(PathBuf::from));
    }
    folders
}

/// The folders that a configuration file of the linker names, and those that it includes (`folder/*.conf`).
fn configured(file: &Path, folders: &mut Vec<PathBuf>) {
    for line in fs::read_to_string(file).unwrap_or_default().lines().map(str::trim) {
        if let Some(pattern) = line.strip_prefix("include ") {
            let folder = Path::new(pattern.trim()).parent().map(Path::to_owned).unwrap_or_default();
            let folder = if folder.is_absolute() { folder } else { Path::new("/etc").join(folder) };
            let mut files: Vec<PathBuf> = fs::read_dir(folder)
                .into_iter()
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.path()))
                .collect();
            files
                .retain(|path| path.extension().is_some_and(|extension| extension == "conf") && path != file);
            files.sort();
            files.iter().for_each(|path| configured(path, folders));
        } else if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_found_and_another_is_not() {
        assert!(find("libc.so.6").is_some() || find("libc.musl-x86_64.so.1").is_some());
        assert_eq!(find("libnosuch.so.1"), None);
    }
}
