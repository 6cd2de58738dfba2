//! Accepting connections for as long as the process lives: what to do when descriptors run out, and how many
//! connections are served at once. Knows no protocol.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long accepting rests when the system has no descriptors or memory for another connection.
const REST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    places: Arc<Semaphore>,
    /// What this port is for, in log lines.
    purpose: &'static str,
    /// Out of descriptors, and said so.
    starved: bool,
}

/// Held as long as the connection is served.
pub(crate) type Place = OwnedSemaphorePermit;

impl Acceptor {
    /// Must be called inside a runtime. At most `connections` are open at a time; further ones wait in the backlog.
    pub(crate) fn new(
        listener: std::net::TcpListener,
        connections: usize,
        purpose: &'static str,
    ) -> io::Result<Acceptor> {
        listener.set_nonblocking(true)?;
        let places = Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS)));
        Ok(Acceptor { listener: TcpListener::from_std(listener)?, places, purpose, starved: false })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Whether the next caller has to wait until a place is given back.
    pub(crate) fn is_full(&self) -> bool {
        self.places.available_permits() == 0
    }

    /// The next connection. May be dropped at any point without losing one.
    pub(crate) async fn accept(&mut self) -> (TcpStream, SocketAddr, Place) {
        let place =
            Arc::clone(&self.places).acquire_owned().await.expect("invariant: the semaphore is never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, caller)) => {
                    if std::mem::take(&mut self.starved) {
                        tracing::info!("the {} port accepts connections again", self.purpose);
                    }
                    // Replies are written whole; a failure only costs latency.
                    let _ = stream.set_nodelay(true);
                    return (stream, caller, place);
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.starved, true) {
                        tracing::warn!(%error, "the {} port cannot accept connections for now", self.purpose);
                    }
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }
}

/// accept(2) also reports what happened to the connection that it was about to give out.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(
        error.kind(),
        E::ConnectionAborted
            | E::ConnectionReset
            | E::Interrupted
            | E::NetworkDown
            | E::NetworkUnreachable
            | E::HostUnreachable
            | E::PermissionDenied
            | E::TimedOut
    )
}
