//! `moonrail explain`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use moonrail_reference::{Found, Record, Reference, Report};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;

/// Records named when nothing fits.
const NEIGHBOURS: usize = 5;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A code (PEER_GONE), a number (-102), a record's id, or the message; several words are one message
    #[arg(
        required_unless_present = "log",
        conflicts_with = "log",
        allow_negative_numbers = true,
        value_name = "CODE|MESSAGE"
    )]
    what: Vec<String>,
    /// Find every known message in a log of SGLang, vLLM, LMCache, Mooncake or Moonrail; - for standard input
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    match &args.log {
        Some(path) => log(path, args.json, out),
        None => message(&args.what.join(" "), args.json, out),
    }
}

fn message(text: &str, as_json: bool, out: &mut Output) -> Result<(), Failure> {
    let reference = Reference::shared();
    let found = reference.about(text);
    let near = if found.is_empty() { reference.nearest(text, NEIGHBOURS) } else { Vec::new() };
    if as_json {
        let whole: Vec<Value> = found.iter().map(|record| record.to_json()).collect();
        let short: Vec<Value> = near.iter().map(|record| record.to_short_json()).collect();
        out.json(&json!({ "asked": text, "found": whole, "nearest": short }))?;
    } else if found.is_empty() {
        for (index, record) in near.iter().enumerate() {
            if index == 0 {
                out.line("No record knows this message. The nearest by its words:\n")?;
            }
            out.line(format_args!("  {}  {}", record.id, record.error_message))?;
            out.line(format_args!("    {}", record.cause))?;
        }
    }
    if found.is_empty() {
        return Err(Failure::failed("no record of this message")
            .fix("`moonrail explain ID` shows one of the nearest"));
    }
    if !as_json {
        for (index, record) in found.iter().enumerate() {
            if index > 0 {
                out.line("\n--\n")?;
            }
            print(record, out)?;
        }
    }
    Ok(())
}

fn print(record: &Record, out: &mut Output) -> Result<(), Failure> {
    out.line(&record.error_message)?;
    let code = record.error_code.as_deref().map(|code| format!("{code}, ")).unwrap_or_default();
    out.line(format_args!("  {code}{}, {}", record.severity.as_str(), record.repo))?;
    out.line(format_args!("\nCause: {}", record.cause))?;
    out.line(format_args!("Fix:   {}", record.fix))?;
    out.line(format_args!("\n{}", record.documentation))?;
    out.line("\nSolutions:")?;
    for (index, solution) in record.solutions.iter().enumerate() {
        out.line(format_args!("  {}. {solution}", index + 1))?;
    }
    out.line(format_args!("\nTrigger: {}", record.trigger_scenarios))?;
    out.line(format_args!("Met in:  {}", record.common_situations))?;
    let snippets = [
        ("Example fix", &record.example_fix),
        ("Check beforehand", &record.validation_code),
        ("Handle it", &record.try_catch_pattern),
    ];
    for (title, snippet) in snippets {
        if let Some(snippet) = snippet {
            out.line(format_args!("\n{title}:"))?;
            for line in snippet.text.trim().lines() {
                out.line(format_args!("    {line}").to_string().trim_end())?;
            }
        }
    }
    let related: Vec<&str> = record.related.iter().map(String::as_str).collect();
    if !related.is_empty() {
        out.line(format_args!("\nRelated: {}", related.join(", ")))?;
    }
    out.line(format_args!("Record {}; source: {}", record.id, record.source))
}

fn log(path: &Path, as_json: bool, out: &mut Output) -> Result<(), Failure> {
    let cannot = |error: io::Error| {
        Failure::failed(format!("cannot read {}: {error}", path.display()))
            .fix("give a file, or - for standard input")
    };
    let report = if path.as_os_str() == "-" {
        moonrail_reference::scan(io::stdin().lock())
    } else {
        File::open(path).and_then(moonrail_reference::scan)
    };
    let report = report.map_err(cannot)?;
    if as_json {
        out.json(&to_json(&report))?;
    } else {
        print_report(&report, out)?;
    }
    if report.found.is_empty() {
        return Err(Failure::failed(format!("no known message in {} lines", report.lines)));
    }
    Ok(())
}

fn print_report(report: &Report, out: &mut Output) -> Result<(), Failure> {
    for found in &report.found {
        let Found { record, .. } = found;
        let follows = if record.symptom { ", follows from something else" } else { "" };
        let lines = match found.count {
            1 => format!("line {}", found.first_line),
            count => format!("{count} times, lines {} to {}", found.first_line, found.last_line),
        };
        out.line(format_args!("{}{follows}: {lines}", record.severity.as_str()))?;
        out.line(format_args!("  {}", found.excerpt.trim()))?;
        if let Some(frame) = &found.frame {
            out.line(format_args!("  raised at {}", frame.trim()))?;
        }
        out.line(format_args!("  cause: {}", record.cause))?;
        out.line(format_args!("  fix:   {}", record.fix))?;
        out.line(format_args!("  more:  moonrail explain {}\n", record.id))?;
    }
    for line in &report.unknown_lines {
        out.line(format_args!("no record knows: {line}"))?;
    }
    if let Some(first) = report.first_cause() {
        let what = match first.record.severity {
            moonrail_reference::Severity::Info => "Nothing failed; what there is is normal",
            _ => "Look first at",
        };
        out.line(format_args!("{what}: line {}: {}", first.first_line, first.record.error_message))?;
        out.line(format_args!("  {}", first.record.fix))?;
    }
    Ok(())
}

fn to_json(report: &Report) -> Value {
    let one = |found: &Found| {
        let mut value = found.record.to_short_json();
        value["symptom"] = found.record.symptom.into();
        value["solutions"] = json!(found.record.solutions);
        value["count"] = found.count.into();
        value["firstLine"] = found.first_line.into();
        value["lastLine"] = found.last_line.into();
        value["excerpt"] = found.excerpt.as_str().into();
        value["frame"] = json!(found.frame);
        value
    };
    json!({
        "bytes": report.bytes,
        "lines": report.lines,
        "found": report.found.iter().map(one).collect::<Vec<_>>(),
        "firstCause": report.first_cause().map(|found| &found.record.id),
        "unknown": report.unknown,
        "unknownLines": report.unknown_lines,
    })
}
