//! The doctor's report, for people.

use comfy_table::{Table, presets};

use super::cluster::{Cluster, letter};
use super::finding::{Finding, Level};
use crate::failure::Failure;
use crate::output::Output;
use crate::size;

/// The findings, worst first.
pub(crate) fn findings(findings: &[Finding], out: &mut Output) -> Result<(), Failure> {
    for level in [Level::Problem, Level::Warning, Level::Note, Level::Ok] {
        for finding in findings.iter().filter(|finding| finding.level == level) {
            out.line(format_args!("{:<8} {:<22} {}", level.as_str(), finding.check, finding.what))?;
            if let Some(fix) = &finding.fix {
                out.line(format_args!("{:<31} fix: {fix}", ""))?;
            }
            if let Some(record) = finding.more.get("record").and_then(serde_json::Value::as_str) {
                out.line(format_args!("{:<31} more: moonrail explain {record}", ""))?;
            }
        }
    }
    Ok(())
}

/// How many of what.
pub(crate) fn conclusion(findings: &[Finding], out: &mut Output) -> Result<(), Failure> {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    out.line(format_args!(
        "{}, {}",
        counted(count(Level::Problem), "problem"),
        counted(count(Level::Warning), "warning")
    ))
}

/// `1 buffer`, `2 buffers`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Who runs what, and who can talk to whom.
pub(crate) fn cluster(cluster: &Cluster, out: &mut Output) -> Result<(), Failure> {
    let mut peers = Table::new();
    peers.load_style(presets::NOTHING);
    for (index, (name, seen)) in cluster.peers.iter().enumerate() {
        let row = match seen {
            Ok(seen) => {
                let bytes = seen.buffers.iter().fold(0, |sum: u64, buffer| sum.saturating_add(buffer.1));
                let data = format!("data {}:{}", seen.side.data_host, seen.side.data_port);
                [
                    letter(index),
                    name.clone(),
                    seen.release.clone(),
                    data,
                    format!("{}, {}", counted(seen.buffers.len(), "buffer"), size::human(bytes)),
                ]
            }
            Err(error) => {
                [letter(index), name.clone(), "not seen".to_owned(), error.code().to_string(), String::new()]
            }
        };
        peers.add_row(row);
    }
    out.line(peers.trim_fmt())?;
    out.line("")?;
    out.line("rows start transfers, columns are the targets")?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let letters = cluster.letters();
    table.add_row([String::new()].into_iter().chain(letters.iter().cloned()));
    for (from, letter) in letters.iter().enumerate() {
        let cells = (0..letters.len())
            .map(|to| if from == to { "-".to_owned() } else { cluster.matrix.pair(from, to).to_string() });
        table.add_row([letter.clone()].into_iter().chain(cells));
    }
    out.line(table.trim_fmt())?;
    out.line("")
}

/// What to upgrade first.
pub(crate) fn upgrades(cluster: &Cluster, out: &mut Output) -> Result<(), Failure> {
    let steps = cluster.upgrades();
    if !steps.is_empty() {
        out.line("upgrade in this order, to Mooncake 0.3.12 or later or to Moonrail:")?;
    }
    for (number, (name, step)) in steps.iter().enumerate() {
        out.line(format_args!(
            "  {}. {name}: mends {}, leaves {}",
            number + 1,
            counted(step.mends, "pair"),
            step.left
        ))?;
    }
    Ok(())
}
