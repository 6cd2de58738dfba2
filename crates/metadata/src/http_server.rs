//! An HTTP metadata server that genuine engines take for theirs, without the fault of the genuine one: a name whose
//! engine is gone is given to the next engine that asks for it.
//!
//! Owns the port, its limits and its thread. Everything is in memory; engines that watch it (ours do) announce
//! themselves again after it was restarted.
//!
//! Known gaps: no authentication, and the owner of a taken name is asked at the address that it was registered with,
//! so whoever can reach this port can make the server send a probe to an address of his choice. So it is with the figures
//! that a segment announces: `GET /report` goes to the host and port of its choice while somebody looks at the page.

pub(crate) mod connection;
mod listing;
mod reference;
mod routes;
mod status;
mod store;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::handshake_client::HandshakeClient;
use crate::http_server::connection::Connections;
use crate::http_server::routes::Service;
use crate::listen::Acceptor;
use crate::server_thread::ServerThread;

/// Bounds of a metadata server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// The longest value, in bytes.
    pub value: usize,
    /// The longest key, in bytes.
    pub key: usize,
    /// The most keys kept.
    pub keys: usize,
    /// All keys and values together, in bytes.
    pub total: usize,
    /// Connections served at once; further ones wait to be accepted. Engines keep one open for each of their threads.
    pub connections: usize,
    /// A connection on which nothing moves for so long is closed.
    pub idle: Duration,
    /// A request's body must be complete in this time.
    pub body: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            value: 16 << 20,
            key: 4 << 10,
            keys: 200_000,
            total: 1 << 30,
            connections: 8192,
            idle: Duration::from_secs(75),
            body: Duration::from_secs(10),
        }
    }
}

/// Owners that are asked, engines that are asked, and pages never wait for each other's threads.
const BLOCKING_THREADS: usize = routes::PROBES + status::FETCHES + status::VIEWS;

/// A running metadata server. Dropping it stops it; in a forked child dropping it does nothing.
#[derive(Debug)]
pub struct MetadataServer {
    thread: ServerThread,
    address: SocketAddr,
}

impl MetadataServer {
    /// Listens on `address` only (an IPv6 wildcard does not include IPv4) and serves on a thread of its own.
    ///
    /// # Errors
    /// The address cannot be had; as [`MetadataServer::start`].
    pub fn bind(address: SocketAddr, limits: ServerLimits) -> io::Result<MetadataServer> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A restarted server takes its port back at once.
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(1024)?;
        MetadataServer::start(socket.into(), limits)
    }

    /// Serves `listener` on a thread of its own, named `moonrail-meta`: the keys at `/metadata`, the page of the
    /// cluster at `/` (for who does not ask for HTML a list of segments, as JSON at `/?json`), what it shows as JSON at
    /// `/api/cluster`, the error reference at `/errors` and `/api/errors`.
    ///
    /// # Errors
    /// The thread, its epoll descriptor or the listener's mode could not be had.
    pub fn start(listener: TcpListener, limits: ServerLimits) -> io::Result<MetadataServer> {
        let address = listener.local_addr()?;
        let thread = ServerThread::start("moonrail-meta", BLOCKING_THREADS, move |stop| {
            let acceptor = Acceptor::new(listener, limits.connections, "metadata server")?;
            let service = Arc::new(Service::new(limits, HandshakeClient::default()));
            Ok(async move {
                let serving = axum::serve(Connections::new(acceptor, limits.idle), routes::router(service));
                tokio::select! {
                    _ = stop => {}
                    // Never ends by itself: accepting outlives every error.
                    _ = std::future::IntoFuture::into_future(serving) => {}
                }
            })
        })?;
        Ok(MetadataServer { thread, address })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What engines are given as their metadata server, with this `host` in it.
    pub fn url(&self, host: &str) -> String {
        let host = moonrail_wire::address::HostPort::new(host, self.address.port());
        format!("http://{host}/metadata")
    }

    /// Closes the port and every connection and waits for the thread to end. Does nothing the second time.
    pub fn stop(&mut self) {
        self.thread.stop();
    }
}
