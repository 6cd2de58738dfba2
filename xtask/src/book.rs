//! Holds the pages to the tree: what they say is all there is, is, and what they lead to is there.

use crate::workspace::{Workspace, files_below};
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders with pages, beside those at the root.
const PAGES: [&str; 6] = ["docs", "benches", "tests", "data", "crates", "python"];

/// Variables of a test, which docs/reliability.md explains.
const OF_TESTS: &str = "MOONRAIL_SIMULATION_";

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("the file is text")
}

fn folder(name: &str) -> PathBuf {
    Workspace::find().require(name).expect("the folder is in the checkout")
}

/// The files of one folder, not of those below.
fn pages_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder can be listed").flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "md"))
}

#[test]
fn the_summary_lists_every_page() {
    let docs = folder("docs");
    let summary = text(&docs.join("SUMMARY.md"));
    let names = pages_in(&docs).filter_map(|page| Some(page.file_name()?.to_str()?.to_owned()));
    let missing: Vec<String> =
        names.filter(|name| name != "SUMMARY.md" && !summary.contains(&format!("]({name})"))).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not list {missing:?}");
}

#[test]
fn every_relative_link_leads_somewhere() {
    let link = Regex::new(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)").expect("the pattern is right");
    let mut pages: Vec<PathBuf> = pages_in(Workspace::find().root()).collect();
    pages.extend(PAGES.iter().flat_map(|name| files_below(&folder(name), "md")));
    let (mut seen, mut broken) = (0, Vec::new());
    for page in &pages {
        for found in link.captures_iter(&text(page)) {
            let to = &found[1];
            if to.contains(':') {
                continue;
            }
            seen += 1;
            if !page.parent().is_some_and(|folder| folder.join(to).exists()) {
                broken.push(format!("{}: {to}", page.display()));
            }
        }
    }
    assert!(seen > 50, "only {seen} links were found");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_variable_in_the_sources_is_explained() {
    let page = text(&folder("docs").join("environment.md"));
    let name = Regex::new(r"\b(?:MOONRAIL|MOONCAKE|MC)_[A-Z0-9_]*[A-Z0-9]\b").expect("the pattern is right");
    let mut files = files_below(&folder("crates"), "rs");
    files.extend(files_below(&folder("python"), "py"));
    let tests = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "tests");
    let sources: Vec<String> = files.iter().filter(|path| !tests(path)).map(|path| text(path)).collect();
    let names: BTreeSet<&str> =
        sources.iter().flat_map(|source| name.find_iter(source)).map(|found| found.as_str()).collect();
    assert!(names.len() > 30, "only {} variables were found", names.len());
    let missing: Vec<&&str> = names
        .iter()
        .filter(|name| !name.starts_with(OF_TESTS) && !page.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "docs/environment.md does not explain {missing:?}");
}
