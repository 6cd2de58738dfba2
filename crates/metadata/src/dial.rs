//! From a host and port to a connected socket, within a deadline. Knows no protocol.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::error::{MetadataError, MetadataErrorKind, WaitStage};

/// The least time that one of several addresses gets, so that a blackholed one does not starve the rest.
const LEAST_SHARE: Duration = Duration::from_millis(250);

/// Every address of `host`, in the resolver's order. A literal address never waits; a name is looked up on a thread of
/// its own, because the system's resolver knows no deadline.
pub(crate) fn resolve(
    host: &str,
    port: u16,
    peer: &str,
    deadline: Deadline,
) -> Result<Vec<SocketAddr>, MetadataError> {
    if host.is_empty() {
        return Err(MetadataError::new(MetadataErrorKind::BadAddress, peer, "the address has no host"));
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (answer, answers) = mpsc::channel();
    let name = host.to_owned();
    let looked_up = thread::Builder::new().name("moonrail-resolve".to_owned()).spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        // The caller may have given up; then nobody wants the answer.
        let _ = answer.send(found);
    });
    if let Err(error) = looked_up {
        return Err(MetadataError::from_io(&error, WaitStage::Resolve, peer));
    }
    let found = answers.recv_timeout(deadline.remaining().unwrap_or_default()).map_err(|_| {
        MetadataError::timeout(
            WaitStage::Resolve,
            peer,
            format!("no answer from the name service for {host:?}"),
        )
    })?;
    match found {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        Ok(_) => Err(MetadataError::new(
            MetadataErrorKind::Resolve,
            peer,
            format!("host name {host:?} has no address"),
        )),
        Err(error) => Err(MetadataError::new(
            MetadataErrorKind::Resolve,
            peer,
            format!("host name {host:?} does not resolve ({error})"),
        )),
    }
}

/// Connects to one address, being one of `left` that still share the time until `deadline`.
pub(crate) fn connect(
    address: SocketAddr,
    left: usize,
    peer: &str,
    deadline: Deadline,
) -> Result<TcpStream, MetadataError> {
    let Some(remaining) = deadline.remaining() else {
        return Err(MetadataError::timeout(WaitStage::Connect, peer, "timed out while connecting"));
    };
    let share = (remaining / u32::try_from(left.max(1)).unwrap_or(u32::MAX)).max(LEAST_SHARE).min(remaining);
    let stream = TcpStream::connect_timeout(&address, share).map_err(|error| {
        let mut sorted = MetadataError::from_io(&error, WaitStage::Connect, peer);
        if matches!(sorted.kind, MetadataErrorKind::Timeout { .. }) {
            sorted.message = format!("no connection within {:.1} s (tried {address})", share.as_secs_f64());
        }
        sorted
    })?;
    // A port that nobody listens on, in the range that the kernel gives to clients, can be connected to itself.
    if stream.local_addr().ok() == Some(address) {
        return Err(MetadataError::from_io(
            &io::ErrorKind::ConnectionRefused.into(),
            WaitStage::Connect,
            peer,
        ));
    }
    // Small messages, one each way: nothing to gather. A failure only costs latency.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}
