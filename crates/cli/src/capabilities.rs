//! `moonrail capabilities`: what this build can do on this machine.

use moonrail::{Capabilities, Kind};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Facts, Output};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fail, with what helps, unless all of these are there
    #[arg(long, value_name = "NAME", num_args = 1..)]
    require: Vec<String>,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let capabilities = moonrail::capabilities();
    if args.json {
        out.json(&as_json(&capabilities))?;
    } else if args.require.is_empty() {
        show(&capabilities, out)?;
    }
    let required: Vec<&str> = args.require.iter().map(String::as_str).collect();
    capabilities.require(&required).map_err(|error| Failure::failed(error.message().to_owned()))
}

fn as_json(capabilities: &Capabilities) -> Value {
    let one = |item: &moonrail::Capability| {
        let missing = item.missing.as_ref();
        json!({
            "kind": item.kind.as_str(),
            "name": item.name,
            "available": missing.is_none(),
            "why_not": missing.map(|missing| missing.why.as_str()),
            "fix": missing.map(|missing| missing.fix.as_str()),
        })
    };
    json!({ "release": capabilities.release, "capabilities": capabilities.items.iter().map(one).collect::<Vec<_>>() })
}

fn show(capabilities: &Capabilities, out: &mut Output) -> Result<(), Failure> {
    out.line(format_args!("Moonrail {}", capabilities.release))?;
    let mut facts = Facts::new();
    for (kind, title) in [
        (Kind::Path, "paths"),
        (Kind::Protocol, "protocols"),
        (Kind::Metadata, "metadata"),
        (Kind::Method, "methods"),
    ] {
        let there = capabilities.items.iter().filter(|item| item.kind == kind && item.missing.is_none());
        facts.add(title, there.map(|item| item.name.as_str()).collect::<Vec<_>>().join(", "));
    }
    facts.print(out)?;
    for item in &capabilities.items {
        if let Some(missing) = &item.missing {
            out.line(format_args!("no {} {}: {}; {}", item.kind, item.name, missing.why, missing.fix))?;
        }
    }
    Ok(())
}
