//! Looks through the product's sources for texts that users get to see, and for each one's record.

use crate::workspace::{Workspace, files_below};
use moonrail_reference::Matcher;
use std::fs;

/// What begins a text that goes to the log, and how its line begins.
const LOGS: [(&str, &str); 3] = [
    ("warn!(", "moonrail WARNING "),
    ("warn(format_args!(", "moonrail WARNING "),
    ("error!(", "moonrail ERROR "),
];

/// What begins the text of an exception that carries no code.
const EXCEPTIONS: [(&str, &str); 4] = [
    ("PyTypeError::new_err(", "TypeError: "),
    ("PyValueError::new_err(", "ValueError: "),
    ("PyRuntimeError::new_err(", "RuntimeError: "),
    ("PyBufferError::new_err(", "BufferError: "),
];

/// Texts that hold nothing but what others say.
const EMPTY: [&str; 5] = [
    "{message}",
    "{method} returned {value}: {error}",
    "argument '{name}', item {index}: {message}",
    "{what}",
    "{event}",
];

#[test]
fn every_warning_and_exception_has_a_record() {
    let root = Workspace::find().require("crates").expect("the folder is in the checkout");
    let mut seen = 0;
    let mut without = Vec::new();
    for file in files_below(&root, "rs") {
        // The reference itself quotes everything.
        if file.starts_with(root.join("reference"))
            || !file.components().any(|part| part.as_os_str() == "src")
        {
            continue;
        }
        let text = fs::read_to_string(&file).expect("sources are text");
        for (begins, prefix) in LOGS.iter().chain(&EXCEPTIONS) {
            for literal in literals(&text, begins) {
                if EMPTY.contains(&literal.as_str()) {
                    continue;
                }
                seen += 1;
                let line = format!("{prefix}{}", rendered(&literal));
                if Matcher::shared().of_line(&line).is_empty() {
                    without.push(format!("{}: {line}", file.display()));
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} texts were found: has the way to log changed?");
    assert!(without.is_empty(), "write records in crates/reference/records for:\n{}", without.join("\n"));
}

/// The first string literal of each call that `begins`, up to the end of its statement.
fn literals(text: &str, begins: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(begins) {
        let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        if text[line..at].trim_start().starts_with("//") {
            continue;
        }
        let rest = &text[at + begins.len()..];
        let end = rest.find(");").unwrap_or(rest.len());
        if let Some(literal) = rest[..end].split_once('"').and_then(|(_, rest)| first_literal(rest)) {
            found.push(literal);
        }
    }
    found
}

/// The literal whose opening quote stands before `rest`, its escapes undone.
fn first_literal(rest: &str) -> Option<String> {
    let mut literal = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(literal),
            '\\' => match chars.next()? {
                '\n' => {
                    let left = chars.as_str().trim_start();
                    chars = left.chars();
                }
                'n' => literal.push(' '),
                other => literal.push(other),
            },
            other => literal.push(other),
        }
    }
}

/// A format string with something in each of its places.
fn rendered(format: &str) -> String {
    let place = regex::Regex::new(r"\{[^{}]*\}").expect("the pattern is right");
    place.replace_all(format, "1").into_owned()
}

#[test]
fn literals_are_read_as_the_compiler_reads_them() {
    let source = "warn!(\n    \"one {x} \\\n     two \\\"q\\\"\",\n    y\n);\n// warn!(\"no\");\nwarn!(%error, \"three\");";
    assert_eq!(literals(source, "warn!("), ["one {x} two \"q\"", "three"]);
    assert_eq!(rendered("one {x:?} {}"), "one 1 1");
}
