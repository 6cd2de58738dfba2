//! This machine: what engines need of it.

mod devices;
mod kernel;
mod libraries;
mod network;

use std::fs;

use super::finding::Finding;

/// Everything that is looked at on this machine.
pub(crate) fn examine() -> Vec<Finding> {
    let mut findings = network::examine();
    findings.extend(kernel::examine());
    findings.extend(devices::examine());
    findings
}

/// A file of `/proc` or `/sys` without its line end; `None` where it cannot be read.
fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The names in a folder, in order; none where there is no such folder.
fn names(path: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}
