//! Instructions of the engine's own work, counted by valgrind: the same on a busy machine as on an idle one.
//!
//! Owns how they are counted and held to benches/parts/instructions.txt. Must not know what the cases do.

use crate::process;
use crate::system::{self, Missing};
use crate::workspace::Workspace;
use std::env::consts::ARCH;
use std::path::Path;

const COUNTS: &str = "benches/parts/instructions.txt";
const PACKAGE: &str = "moonrail-benches";
const PROGRAM: &str = "instructions";

/// One line of the file.
#[derive(Debug, PartialEq, Eq)]
struct Allowed<'a> {
    arch: &'a str,
    case: &'a str,
    unit: &'a str,
    most: u64,
}

/// Why nothing was counted.
pub(crate) enum NotCounted {
    /// It cannot be done here.
    Skipped(String),
    /// It was done, or should have been, and something is wrong.
    Failed(String),
}

impl From<String> for NotCounted {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

/// Counts every case that the file has for this architecture, and fails if one takes more than it may.
pub(crate) fn check(workspace: &Workspace) -> Result<(), NotCounted> {
    let path = workspace.require(COUNTS)?;
    let text = std::fs::read_to_string(&path).map_err(|e| format!("cannot read {COUNTS}: {e}"))?;
    let allowed = parse(&text)?;
    let here: Vec<_> = allowed.iter().filter(|line| line.arch == ARCH).collect();
    if here.is_empty() {
        return Err(NotCounted::Skipped(format!("{COUNTS} has no counts for {ARCH}")));
    }
    if !process::is_installed("valgrind") {
        system::apt_install(workspace, &["valgrind"], "instructions are counted with it").map_err(
            |missing| match missing {
                Missing::NeedsRoot(why) => NotCounted::Skipped(why),
                Missing::Failed(why) => NotCounted::Failed(why),
            },
        )?;
    }
    let mut build = process::cargo(workspace);
    process::run(build.args(["build", "--release", "--locked", "--package", PACKAGE, "--bin", PROGRAM]))?;
    let program = workspace.target().join("release").join(PROGRAM);
    let mut over = Vec::new();
    for Allowed { case, unit, most, .. } in here {
        let found = count(workspace, &program, case)?;
        println!("{case:<10} {found:>6} instructions a {unit}, at most {most}");
        if found > *most {
            over.push(format!("{case}: {found} a {unit}, allowed {most}"));
        }
    }
    if over.is_empty() {
        return Ok(());
    }
    let profile = workspace.cache("callgrind.out")?;
    Err(NotCounted::Failed(format!(
        "more instructions than {COUNTS} allows: {}. `callgrind_annotate {}` shows where they are (of the last case); if \
         they are worth it, write the new count there, plus a tenth, in the same commit, and say why",
        over.join("; "),
        profile.display()
    )))
}

/// Instructions a unit of one case.
fn count(workspace: &Workspace, program: &Path, case: &str) -> Result<u64, String> {
    let out = workspace.cache("callgrind.out")?;
    let mut valgrind = process::command(workspace, "valgrind");
    valgrind.args(["--tool=callgrind", "--toggle-collect=*counted_here*"]);
    valgrind.arg(format!("--callgrind-out-file={}", out.display())).arg(program).arg(case);
    let units = process::read(&mut valgrind)?;
    let units: u64 = units.parse().map_err(|_| format!("{PROGRAM} {case} printed {units:?}"))?;
    let text = std::fs::read_to_string(&out).map_err(|e| format!("cannot read {}: {e}", out.display()))?;
    let total = total(&text).ok_or_else(|| format!("valgrind counted nothing for {case}"))?;
    Ok(total / units.max(1))
}

/// The sum in a profile; none if nothing was collected.
fn total(profile: &str) -> Option<u64> {
    let sums = profile.lines().filter_map(|line| {
        line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:"))?.trim().parse().ok()
    });
    sums.max().filter(|&sum| sum > 0)
}

/// ARCHITECTURE CASE MOST UNIT a line; # starts a comment.
fn parse(text: &str) -> Result<Vec<Allowed<'_>>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match (words.as_slice(), words.get(2).and_then(|most| most.parse().ok())) {
                (&[arch, case, _, unit], Some(most)) => Ok(Allowed { arch, case, unit, most }),
                _ => Err(format!("{COUNTS}: cannot read {line:?}")),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_bad_ones_are_named() {
        let line = Allowed { arch: "x86_64", case: "batch", unit: "descriptor", most: 40 };
        assert_eq!(parse("# head\n\nx86_64 batch 40 descriptor # why\n"), Ok(vec![line]));
        assert!(parse("x86_64 batch descriptor").is_err_and(|error| error.contains("batch descriptor")));
    }

    #[test]
    fn the_counts_in_the_checkout_can_be_read() {
        let path = Workspace::find().require(COUNTS).expect("the file is in the checkout");
        let text = std::fs::read_to_string(path).expect("the file is text");
        assert!(!parse(&text).expect("every line can be read").is_empty());
    }

    #[test]
    fn a_profile_without_a_count_is_not_a_count_of_none() {
        assert_eq!(total("events: Ir\nsummary: 0\ntotals: 0\n"), None);
        assert_eq!(total("events: Ir\nsummary: 812\n\ntotals: 812\n"), Some(812));
    }
}
