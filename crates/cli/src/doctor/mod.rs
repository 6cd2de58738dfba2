//! `moonrail doctor`: what will go wrong, before anything is started.
//!
//! Without peers it looks at this host and its Python environment; with peers, or a metadata server, at what these
//! engines can do with each other. It starts no engine, publishes nothing and touches no memory of a peer.

mod cluster;
mod finding;
mod host;
mod python;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;
use finding::{Finding, Level};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Engines to look at together, Moonrail's and Mooncake's: host:port of their handshake ports, or with --metadata
    /// the names of their segments
    #[arg(value_name = "PEER")]
    peers: Vec<String>,
    /// Metadata server, http://host:port/metadata; without a PEER, all segments that it lists [Moonrail's server only]
    #[arg(long, alias = "metadata-server", value_name = "URL")]
    metadata: Option<String>,
    /// The Python whose packages are looked at; without it the one that runs this, or python3
    #[arg(long, value_name = "PATH", conflicts_with_all = ["peers", "metadata"])]
    python: Option<PathBuf>,
    /// Look at the host only, not at Python
    #[arg(long, conflicts_with_all = ["python", "peers", "metadata"])]
    no_python: bool,
    /// Seconds to wait for each answer of a peer
    #[arg(long, short = 't', default_value = "5", value_parser = crate::ping::seconds)]
    timeout: Duration,
    /// Warnings count as problems
    #[arg(long)]
    strict: bool,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

/// The exit code: 0 nothing wrong, 1 problems, 3 a peer that could not be looked at.
pub(crate) fn run(args: &Args, out: &mut Output) -> Result<i32, Failure> {
    if args.peers.is_empty() && args.metadata.is_none() {
        return examine_host(args, out);
    }
    let cluster = cluster::survey(&args.peers, args.metadata.as_deref(), args.timeout)?;
    let findings = cluster.findings();
    let code = if cluster.is_complete() { code(args, &findings) } else { crate::failure::UNREACHABLE };
    if args.json {
        let mut report = cluster.as_json();
        report["findings"] = json!(findings);
        report["exit_code"] = json!(code);
        out.json(&report)?;
    } else {
        show::cluster(&cluster, out)?;
        show::findings(&findings, out)?;
        show::upgrades(&cluster, out)?;
    }
    Ok(code)
}

fn examine_host(args: &Args, out: &mut Output) -> Result<i32, Failure> {
    let mut findings = Vec::new();
    let mut facts = None;
    if !args.no_python {
        let environment = python::examine(args.python.as_deref());
        findings.extend(environment.findings);
        facts = environment.facts;
    }
    findings.extend(host::examine());
    let code = code(args, &findings);
    if args.json {
        out.json(&json!({ "findings": findings, "python": facts, "exit_code": code }))?;
    } else {
        show::findings(&findings, out)?;
        show::conclusion(&findings, out)?;
    }
    Ok(code)
}

fn code(args: &Args, findings: &[Finding]) -> i32 {
    let limit = if args.strict { Level::Warning } else { Level::Problem };
    if findings.iter().any(|finding| finding.level >= limit) { crate::failure::FAILED } else { 0 }
}
