//! `moonrail metadata-server`.

use std::net::{SocketAddr, ToSocketAddrs};

use moonrail::{MetadataServer, ServerLimits};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;
use crate::signals::Stop;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on, and on no other; 0.0.0.0 for every IPv4 one. Nobody is asked for a password
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port; 0 for any free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let mut stop = Stop::listen()?;
    let address = resolve(&args.host, args.port)?;
    let mut server = MetadataServer::bind(address, ServerLimits::default()).map_err(|error| {
        Failure::failed(format!("cannot listen on {address}: {error}")).fix("give another --host or --port")
    })?;
    let url = server.url(&args.host);
    if args.json {
        out.json(&json!({ "url": url, "host": args.host, "port": server.local_addr().port() }))?;
    } else {
        out.line(format_args!("metadata server {url}"))?;
        out.line(format_args!("listening on {}; stop with Ctrl-C", server.local_addr()))?;
        let root = url.trim_end_matches("metadata");
        out.line(format_args!("status page {root}"))?;
        out.line(format_args!("error reference {root}errors"))?;
    }
    stop.wait();
    server.stop();
    Ok(())
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let unbracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (unbracketed, port).to_socket_addrs().ok().and_then(|mut addresses| addresses.next()).ok_or_else(|| {
        Failure::failed(format!("{host} does not resolve")).fix("give an address of this machine as --host")
    })
}
