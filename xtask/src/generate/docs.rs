//! The tables of the book. The text round them is written by hand and stays.

use super::Code;
use moonrail_reference::Record;
use std::fmt::Write;

const BEGIN: &str = "<!-- made by `cargo xtask generate` from crates/reference/records: begin -->";
const END: &str = "<!-- end -->";

pub(super) fn codes(now: &str, codes: &[Code]) -> Result<String, String> {
    let mut table = String::from("| code | meaning | what to do |\n|---|---|---|\n");
    for (name, facts, record) in codes {
        let number = if facts.mooncake == -1 { String::new() } else { format!(" ({})", facts.mooncake) };
        let _ = writeln!(table, "| `{name}`{number} | {} | {} |", cell(&record.cause), cell(&record.fix));
    }
    between(now, &table)
}

pub(super) fn records(now: &str, records: &[Record]) -> Result<String, String> {
    let mut table = String::new();
    let mut repo = "";
    for record in records {
        if record.repo != repo {
            repo = &record.repo;
            let _ = write!(table, "\n### {repo}\n\n| message | cause | fix | record |\n|---|---|---|---|\n");
        }
        let _ = writeln!(
            table,
            "| {} | {} | {} | `{}` |",
            cell(&record.error_message),
            cell(&record.cause),
            cell(&record.fix),
            record.id
        );
    }
    between(now, table.trim_start())
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('>', "&gt;").replace('\n', " ")
}

/// `now` with `made` in the place of what stands between the marks.
fn between(now: &str, made: &str) -> Result<String, String> {
    let (before, rest) = now.split_once(BEGIN).ok_or_else(|| format!("the page has no line {BEGIN:?}"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("the page has no line {END:?}"))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", made.trim_end()))
}
