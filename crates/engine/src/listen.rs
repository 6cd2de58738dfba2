//! Where an engine listens and under which name peers reach it.
//!
//! Rule: only on the address that was given. In P2P mode that is the host of `local_name`; with a metadata server
//! the name is only a name, so the address is the one to advertise.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};

use moonrail_sys::socket;
use moonrail_transport::{Code, Error};
use moonrail_wire::address::HostPort;
use tracing::warn;

use crate::config::Config;
use crate::environment::advertised_address;
use crate::errors::initialize;

/// Queue of connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Random ports tried before giving up.
const PORT_TRIES: u32 = 500;

/// The two open ports of an engine, and what peers are told of them.
pub(crate) struct Ports {
    pub handshake: TcpListener,
    pub data: TcpListener,
    /// The segment's name.
    pub name: String,
    /// Host that peers dial, without brackets.
    pub host: String,
}

/// Opens both ports for an engine without metadata server.
pub(crate) fn open_p2p(config: &Config) -> Result<Ports, Error> {
    let HostPort { host, port } = config.local_name.parse().map_err(|error| {
        initialize(Code::InvalidArgument, format!("local_hostname {:?}: {error}", config.local_name))
    })?;
    let candidates = match config.listen {
        Some(ip) => vec![ip],
        None => addresses_of(&host)?,
    };
    let (handshake, ip) = listen_first(&candidates, |ip| handshake_listener(ip, port, config))
        .map_err(|(ip, error)| listen_error(&config.local_name, ip, port, &error))?;
    let data =
        range_listener(ip, config).map_err(|error| listen_error(&config.local_name, ip, None, &error))?;
    let rpc_port = local_port(&handshake)?;
    if ip.is_loopback() && host.parse::<IpAddr>().is_err() && host != "localhost" && config.listen.is_none() {
        warn!(
            "{host} resolves to {ip}, so peers on other hosts cannot reach this engine; give an address, or \
             MOONRAIL_LISTEN"
        );
    }
    Ok(Ports { handshake, data, name: HostPort::new(host.clone(), rpc_port).to_string(), host })
}

/// Opens both ports for an engine that is found through a metadata server.
pub(crate) fn open_named(config: &Config) -> Result<Ports, Error> {
    if config.local_name.is_empty() {
        return Err(initialize(Code::InvalidArgument, "local_hostname is empty: a segment needs a name"));
    }
    let advertised = advertised_address();
    let host = match &advertised {
        Some(address) => address.clone(),
        None => literal_host(&config.local_name)
            .or_else(|| config.listen.filter(|ip| !ip.is_unspecified()))
            .unwrap_or_else(default_address)
            .to_string(),
    };
    let candidates = match config.listen {
        Some(ip) => vec![ip],
        None => addresses_of(&host)?,
    };
    let opened = listen_first(&candidates, |ip| range_listener(ip, config));
    let (handshake, ip) = match opened {
        Ok(opened) => opened,
        // The literal in the name is no address of this machine: it is only a name then.
        Err(_) if advertised.is_none() && config.listen.is_none() => {
            let ip = default_address();
            let listener =
                range_listener(ip, config).map_err(|e| listen_error(&config.local_name, ip, None, &e))?;
            let data =
                range_listener(ip, config).map_err(|e| listen_error(&config.local_name, ip, None, &e))?;
            return Ok(Ports {
                handshake: listener,
                data,
                name: config.local_name.clone(),
                host: ip.to_string(),
            });
        }
        Err((ip, error)) => return Err(listen_error(&config.local_name, ip, None, &error)),
    };
    let data =
        range_listener(ip, config).map_err(|error| listen_error(&config.local_name, ip, None, &error))?;
    Ok(Ports { handshake, data, name: config.local_name.clone(), host })
}

/// Opens the port for figures, if there is to be one; with it the URL that others are told.
pub(crate) fn open_metrics(config: &Config) -> Result<Option<(TcpListener, String)>, Error> {
    let Some(text) = config.metrics.as_deref().map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let bad = |why: String| {
        let takes =
            "give HOST:PORT, such as 127.0.0.1:9650, or a port (MOONRAIL_METRICS, metrics, --metrics)";
        initialize(Code::InvalidArgument, format!("metrics at {text:?}: {why}; {takes}"))
    };
    let at = match text.parse::<u16>() {
        Ok(port) => HostPort::new(Ipv4Addr::LOCALHOST.to_string(), port),
        Err(_) => text.parse::<HostPort>().map_err(|error| bad(error.to_string()))?,
    };
    let port = at.port.ok_or_else(|| bad("there is no port".to_owned()))?;
    let (listener, ip) =
        listen_first(&addresses_of(&at.host)?, |ip| socket::listen(SocketAddr::new(ip, port), BACKLOG))
            .map_err(|(ip, error)| listen_error("metrics", ip, Some(port), &error))?;
    let port = local_port(&listener)?;
    // Whoever reads the URL is elsewhere: a wildcard would mean his own machine.
    let host = if ip.is_unspecified() { default_address().to_string() } else { at.host };
    Ok(Some((listener, format!("http://{}", HostPort::new(host, port)))))
}

fn handshake_listener(ip: IpAddr, port: Option<u16>, config: &Config) -> io::Result<TcpListener> {
    match port {
        Some(port) if port != 0 => socket::listen(SocketAddr::new(ip, port), BACKLOG),
        _ => range_listener(ip, config),
    }
}

fn range_listener(ip: IpAddr, config: &Config) -> io::Result<TcpListener> {
    socket::listen_in_range(ip, config.ports.clone(), PORT_TRIES, BACKLOG)
}

fn listen_first(
    candidates: &[IpAddr],
    listen: impl Fn(IpAddr) -> io::Result<TcpListener>,
) -> Result<(TcpListener, IpAddr), (IpAddr, io::Error)> {
    let mut last = None;
    for &ip in candidates {
        match listen(ip) {
            Ok(listener) => return Ok((listener, ip)),
            Err(error) => last = Some((ip, error)),
        }
    }
    Err(last.unwrap_or((IpAddr::V4(Ipv4Addr::UNSPECIFIED), io::ErrorKind::AddrNotAvailable.into())))
}

/// The addresses of `host`, IPv4 first: genuine peers without `MC_USE_IPV6` dial nothing else.
fn addresses_of(host: &str) -> Result<Vec<IpAddr>, Error> {
    if host.is_empty() {
        return Err(initialize(
            Code::InvalidArgument,
            "local_hostname is empty: give the address that peers reach",
        ));
    }
    let resolved = (host, 0)
        .to_socket_addrs()
        .map_err(|error| initialize(Code::NameResolution, format!("{host} does not resolve: {error}")))?;
    let mut addresses: Vec<IpAddr> = resolved.map(|address| address.ip()).collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.dedup();
    Ok(addresses)
}

fn literal_host(name: &str) -> Option<IpAddr> {
    let host = name.parse::<HostPort>().ok()?.host;
    host.parse().ok().filter(|ip: &IpAddr| !ip.is_unspecified())
}

/// The first address of an interface that is up and not loopback, IPv4 before IPv6; loopback if there is none.
fn default_address() -> IpAddr {
    let mut addresses: Vec<IpAddr> = if_addrs::get_if_addrs()
        .unwrap_or_default()
        .into_iter()
        .filter(|interface| !interface.is_loopback() && !interface.is_link_local())
        .map(|interface| interface.ip())
        .collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn local_port(listener: &TcpListener) -> Result<u16, Error> {
    let address = listener.local_addr().map_err(|error| {
        crate::errors::system(moonrail_transport::Stage::Initialize, "cannot read the port", &error)
    })?;
    Ok(address.port())
}

fn listen_error(name: &str, ip: IpAddr, port: Option<u16>, error: &io::Error) -> Error {
    let at = port.map_or_else(|| ip.to_string(), |port| SocketAddr::new(ip, port).to_string());
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse if port.is_some() => ": the port is taken; give another or none",
        io::ErrorKind::AddrInUse => ": no port of the range is free (MC_MIN_RPC_PORT, MC_MAX_RPC_PORT)",
        io::ErrorKind::AddrNotAvailable => {
            ": it is not an address of this machine; MOONRAIL_LISTEN names another to listen on"
        }
        _ if moonrail_sys::errno::is_descriptor_limit(error) => ": raise the limit of open files (ulimit -n)",
        _ => "",
    };
    let code = if moonrail_sys::errno::is_descriptor_limit(error) {
        Code::ResourceLimit
    } else {
        Code::ListenFailed
    };
    initialize(code, format!("{name}: cannot listen on {at}: {error}{hint}"))
}
