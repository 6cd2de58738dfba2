//! Key files: what is taken, what is refused and why, and that a changed file is seen.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use moonrail_access::{AccessControl, Allow, Key, KeyError, KeySource, Keyring};
use tempfile::TempDir;

const FIRST: &str = "the first key of the tests";
const SECOND: &str = "the second key of the tests";

fn put(path: &Path, text: &str, mode: u32) {
    // Replaced as a whole, as careful hands do it.
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, Permissions::from_mode(mode)).unwrap();
    fs::rename(&new, path).unwrap();
}

fn file(text: &str, mode: u32) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("moonrail.key");
    put(&path, text, mode);
    (folder, path)
}

fn open(path: &Path) -> Result<Keyring, KeyError> {
    Keyring::open(KeySource::File(path.to_owned()))
}

fn id(material: &str) -> [u8; 8] {
    Key::new(material.as_bytes()).unwrap().id()
}

#[test]
fn a_file_holds_keys_and_comments() {
    let (_folder, path) = file(&format!("# old and new\n\n  {FIRST}  \r\n{SECOND}"), 0o600);
    let keys = open(&path).unwrap().keys();
    assert_eq!(keys.first().id(), id(FIRST));
    assert!(keys.find(id(SECOND)).is_some());
    assert!(keys.find(id("no key of the tests at all")).is_none());
}

#[test]
fn bad_files_are_refused_without_showing_what_is_in_them() {
    let many = (0..9).map(|nth| format!("key number {nth} of the tests\n")).collect::<String>();
    for (text, mode, part) in [
        (FIRST, 0o644, "mode 0644"),
        (FIRST, 0o604, "mode 0604"),
        (FIRST, 0o620, "mode 0620"),
        ("# nothing\n", 0o600, "holds no key"),
        ("topsecret", 0o600, "line 1: a key of 9 bytes"),
        (&*many, 0o600, "too long"),
        (&*"x".repeat(10_000), 0o600, "too long"),
    ] {
        let (_folder, path) = file(text, mode);
        let error = open(&path).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(part), "{shown}");
        assert!(!shown.contains("topsecret") && !shown.contains("of the tests"), "{shown}");
    }
    let (folder, path) = file(FIRST, 0o440);
    assert!(open(&path).is_ok(), "a group may read it: that is how secrets are mounted in containers");
    assert!(matches!(open(folder.path()), Err(KeyError::NotAFile(_))));
    assert!(matches!(open(&folder.path().join("none")), Err(KeyError::Read { .. })));
}

#[test]
fn a_changed_file_is_seen_at_the_next_look() {
    let (_folder, path) = file(FIRST, 0o600);
    let ring = open(&path).unwrap();
    put(&path, &format!("{SECOND}\n{FIRST}\n"), 0o600);
    assert_eq!(ring.keys().first().id(), id(SECOND));
    assert!(ring.keys().find(id(FIRST)).is_some());
    // Written in place, same length.
    fs::write(&path, format!("{FIRST}\n{SECOND}\n")).unwrap();
    assert_eq!(ring.keys().first().id(), id(FIRST));
    // What cannot be taken changes nothing, until it can be again.
    put(&path, SECOND, 0o644);
    assert_eq!(ring.keys().first().id(), id(FIRST));
    fs::remove_file(&path).unwrap();
    assert_eq!(ring.keys().first().id(), id(FIRST));
    put(&path, SECOND, 0o600);
    assert_eq!(ring.keys().first().id(), id(SECOND));
    assert!(ring.keys().find(id(FIRST)).is_none());
}

#[test]
fn a_key_may_be_given_as_text_and_is_not_shown() {
    let source = KeySource::text("MOONRAIL_KEY", format!(" {FIRST}\n"));
    let control = AccessControl::open(source.clone(), Allow::default()).unwrap();
    assert_eq!(control.keys().first().id(), id(FIRST));
    let shown = format!("{source:?} {control:?}");
    assert!(shown.contains("MOONRAIL_KEY") && !shown.contains(FIRST), "{shown}");
    let error = Keyring::open(KeySource::text("MOONRAIL_KEY", "brief")).unwrap_err();
    assert!(error.to_string().starts_with("MOONRAIL_KEY: a key of 5 bytes"), "{error}");
    assert!(!error.to_string().contains("brief"));
}
