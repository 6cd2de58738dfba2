//! `moonrail serve`: a target with one buffer.

use std::io::Write;
use std::net::IpAddr;

use clap::ArgAction;
use moonrail::{Access, Engine, EngineReport, RegionOptions};
use serde_json::json;

use crate::endpoint::{self, Metadata};
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::Stop;
use crate::size;

/// Written at once when memory is touched for the first time.
const TOUCH: usize = 1 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on, and on no other, and under which peers reach this target; without it 127.0.0.1, or with
    /// a metadata server the first address of this host's network interfaces
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Port that peers are given; without it a free one from 15000 to 17000 [not with a metadata server]
    #[arg(long)]
    pub(crate) port: Option<u16>,
    #[command(flatten)]
    pub(crate) metadata: Metadata,
    /// Name of the segment [with a metadata server only, and needed there]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Size of the buffer
    #[arg(long, value_parser = size::parse_positive, default_value = "1GiB")]
    pub(crate) size: u64,
    /// Let peers read the buffer and not write it
    #[arg(long)]
    pub(crate) readonly: bool,
    /// Keep figures, and tell them over HTTP there (docs/observability.md); a port alone means 127.0.0.1
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<String>,
    /// tcp; rdma is carried out over tcp, and says so
    #[arg(long, default_value = "tcp")]
    pub(crate) protocol: String,
    /// Print JSON: one object when ready, one at the end
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let mut stop = Stop::listen()?;
    let engine = start(args)?;
    let access = if args.readonly { Access::ReadOnly } else { Access::ReadWrite };
    let options = RegionOptions { access, ..RegionOptions::default() };
    let buffer = engine.allocate_with(args.size, options).map_err(|error| {
        Failure::engine("cannot allocate the buffer", &error).fix("give a smaller --size")
    })?;
    if !args.readonly {
        touch(&engine, buffer, args.size)?;
    }
    announce(args, &engine, buffer, out)?;
    stop.wait();
    let report = engine.report().map_err(|error| Failure::engine("report", &error))?;
    engine.shutdown();
    summarise(args, &report, out)
}

/// Writes zeros over the memory, so that the first transfer does not pay for the kernel finding pages.
pub(crate) fn touch(engine: &Engine, addr: u64, len: u64) -> Result<(), Failure> {
    let zeros = vec![0_u8; TOUCH];
    let mut done = 0;
    while done < len {
        let step = (len - done).min(TOUCH as u64);
        engine
            .write_local(addr + done, &zeros[..step as usize])
            .map_err(|error| Failure::engine("cannot touch the buffer", &error))?;
        done += step;
    }
    Ok(())
}

fn start(args: &Args) -> Result<Engine, Failure> {
    let name = match (&args.name, args.metadata.is_p2p()) {
        (None, true) => {
            endpoint::host_port(args.host.as_deref().unwrap_or("127.0.0.1"), args.port.unwrap_or(0))
        }
        (Some(_), true) => {
            let what = "--name: without a metadata server the name is the address";
            return Err(Failure::usage(what).fix("leave --name out, or give --metadata-server"));
        }
        (Some(name), false) => name.clone(),
        (None, false) => {
            return Err(Failure::usage("a metadata server knows targets by name").fix("give --name"));
        }
    };
    if args.port.is_some() && !args.metadata.is_p2p() {
        let what = "--port: with a metadata server peers find the port there";
        return Err(
            Failure::usage(what).fix("leave --port out; MC_MIN_RPC_PORT and MC_MAX_RPC_PORT set a range")
        );
    }
    let mut config = endpoint::config(name, &args.metadata)?;
    config.protocol.clone_from(&args.protocol);
    config.metrics = args.metrics.clone().or(config.metrics);
    if !args.metadata.is_p2p() {
        config.listen = args.host.as_deref().map(address).transpose()?.or(config.listen);
    }
    endpoint::start(config)
}

fn address(host: &str) -> Result<IpAddr, Failure> {
    host.parse().map_err(|_| {
        Failure::usage(format!("--host {host}: with a metadata server this is an IP address"))
            .fix("give an address of this machine")
    })
}

fn announce(args: &Args, engine: &Engine, buffer: u64, out: &mut Output) -> Result<(), Failure> {
    let report = engine.report().map_err(|error| Failure::engine("report", &error))?;
    for fallback in &report.fallbacks {
        let _ = writeln!(std::io::stderr(), "moonrail: {fallback}");
    }
    if args.json {
        return out.json(&json!({
            "session": report.name,
            "handshake": report.handshake.to_string(),
            "data": report.data.to_string(),
            "metrics": report.metrics.map(|at| format!("http://{at}/metrics")),
            "metadata_server": args.metadata.metadata_server,
            "epoch": format!("{:016x}", report.epoch),
            "buffer": { "addr": buffer, "size": args.size },
            "paths": report.paths,
            "fallbacks": report.fallbacks,
        }));
    }
    out.line(format_args!("session {}", report.name))?;
    out.line(format_args!("buffer {} at {buffer:#x}", size::human(args.size)))?;
    out.line(format_args!("listening on {}; stop with Ctrl-C", report.handshake))
}

fn summarise(args: &Args, report: &EngineReport, out: &mut Output) -> Result<(), Failure> {
    if args.json {
        return out.json(&json!({
            "served": report.served,
            "refused": report.refused,
            "bytes_in": report.bytes_in,
            "bytes_out": report.bytes_out,
        }));
    }
    out.line(format_args!(
        "served {} requests, refused {}; {} written here, {} read from here",
        report.served,
        report.refused,
        size::human(report.bytes_in),
        size::human(report.bytes_out)
    ))
}
