//! `cargo xtask generate`: writes what is made from the error reference, so that no code can be without a record.
//!
//! Owns which files those are. Each has a writer here; a test finds out when one is not current.

mod docs;
mod python;
mod rust;
#[cfg(test)]
mod sources;

use crate::workspace::Workspace;
use moonrail_reference::{CodeFacts, Record, Reference};

/// A file that is made, wholly or between two marks.
struct Made {
    path: &'static str,
    text: fn(&Workspace, &str) -> Result<String, String>,
}

const FILES: &[Made] = &[
    Made { path: "crates/transport/src/code.rs", text: |_, _| Ok(rust::codes(&codes())) },
    Made { path: "python/moonrail/src/moonrail/_codes.py", text: |_, _| python::codes(&codes()) },
    Made { path: "docs/errors.md", text: |_, now| docs::codes(now, &codes()) },
    Made {
        path: "docs/error-reference.md",
        text: |_, now| docs::records(now, Reference::shared().records()),
    },
];

/// A Moonrail code: its name, what is generated from, its record.
type Code = (&'static str, &'static CodeFacts, &'static Record);

fn codes() -> Vec<Code> {
    let records = Reference::shared().records().iter();
    records
        .filter_map(|record| Some((record.error_code.as_deref()?, record.code.as_ref()?, record)))
        .collect()
}

/// Writes every file that is not current; with `check` it only says which are not.
pub(crate) fn run(workspace: &Workspace, check: bool) -> Result<(), String> {
    let mut stale = Vec::new();
    for made in FILES {
        let path = workspace.path(made.path);
        let now = std::fs::read_to_string(&path).unwrap_or_default();
        let text = (made.text)(workspace, &now)?;
        if text == now {
            continue;
        }
        stale.push(made.path);
        if !check {
            std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", made.path))?;
            println!("wrote {}", made.path);
        }
    }
    if check && !stale.is_empty() {
        return Err(format!("not current: {}; run `cargo xtask generate`", stale.join(", ")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_generated_is_current() {
        run(&Workspace::find(), true).expect("the generated files are current");
    }

    #[test]
    fn a_code_has_one_record() {
        let mut names: Vec<&str> = codes().iter().map(|(name, ..)| *name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
