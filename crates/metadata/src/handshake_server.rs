//! The answering side of the handshake port: many connections at once on one thread, each with a deadline, so that no
//! silent, slow or hostile caller keeps an honest one waiting.
//!
//! Knows nothing of segments: a [`HandshakeHandler`] gives the answers.

mod answer;
mod connection;
mod line;
mod reception;

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use moonrail_access::{AccessControl, Telling, Tls};
use moonrail_wire::handshake::{DEFAULT_MAX_LEN, Notify};
use moonrail_wire::segment::SegmentDescriptor;
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::listen::Acceptor;
use crate::server_thread::{ServerThread, Stop};

/// Gives the answers of a handshake server. Its methods run on the server's thread and must return at once.
pub trait HandshakeHandler: Send + Sync {
    /// Our descriptor as JSON, or `None` in metadata-server mode, where callers get `null`.
    fn descriptor(&self) -> Option<Arc<[u8]>>;

    /// Takes a note.
    ///
    /// # Errors
    /// Why not; the caller is told only that it was rejected, the reason goes to the log.
    fn notify(&self, note: Notify) -> Result<(), String>;

    /// Why this caller gets no descriptor and no connection, or `None` to serve it. `caller` is what it says of itself,
    /// where it sends a readable descriptor.
    fn refuse(&self, caller: Option<&SegmentDescriptor>) -> Option<String>;
}

/// Bounds of a handshake server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest message taken or sent, in bytes after the length field (Mooncake: `MC_HANDSHAKE_MAX_LENGTH`).
    pub max_len: usize,
    /// Connections served at once. At this number the oldest is dropped to make room for the next caller: an honest
    /// one is served in milliseconds, so the oldest is an idle one.
    pub connections: usize,
    /// From accepting a connection until its request must be complete.
    pub request: Duration,
    /// From the complete request until the caller must have taken the reply and closed.
    pub close: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_len: DEFAULT_MAX_LEN,
            connections: 1024,
            request: Duration::from_secs(5),
            close: Duration::from_secs(5),
        }
    }
}

/// A running handshake server. Dropping it stops it; in a forked child dropping it does nothing.
#[derive(Debug)]
pub struct HandshakeServer {
    thread: ServerThread,
    address: SocketAddr,
}

impl HandshakeServer {
    /// Serves `listener` on a thread of its own, named `moonrail-hs`.
    ///
    /// # Errors
    /// The thread, its epoll descriptor or the listener's mode could not be had.
    pub fn start(
        listener: TcpListener,
        handler: Arc<dyn HandshakeHandler>,
        limits: Limits,
    ) -> io::Result<HandshakeServer> {
        HandshakeServer::guarded(listener, handler, limits, None)
    }

    /// [`HandshakeServer::start`] that admits only who proves the shared key, if there is `access` control. Probes are
    /// answered to everybody.
    ///
    /// # Errors
    /// As [`HandshakeServer::start`].
    pub fn guarded(
        listener: TcpListener,
        handler: Arc<dyn HandshakeHandler>,
        limits: Limits,
        access: Option<Arc<AccessControl>>,
    ) -> io::Result<HandshakeServer> {
        HandshakeServer::sealed(listener, handler, limits, access, None)
    }

    /// [`HandshakeServer::guarded`] that speaks TLS, if it is given. Probes are answered in clear too.
    ///
    /// # Errors
    /// As [`HandshakeServer::start`].
    pub fn sealed(
        listener: TcpListener,
        handler: Arc<dyn HandshakeHandler>,
        limits: Limits,
        access: Option<Arc<AccessControl>>,
        tls: Option<Arc<Tls>>,
    ) -> io::Result<HandshakeServer> {
        let address = listener.local_addr()?;
        let thread = ServerThread::start("moonrail-hs", 1, move |stop| {
            // One place more, for the caller that makes the oldest go.
            let acceptor = Acceptor::new(listener, limits.connections.saturating_add(1), "handshake")?;
            Ok(run(acceptor, Desk { handler, limits, access, tls, unanswered: Arc::default() }, stop))
        })?;
        Ok(HandshakeServer { thread, address })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Closes the listener and every connection and waits for the thread to end: well below 100 ms, unless the handler
    /// is inside a call. Does nothing the second time.
    pub fn stop(&mut self) {
        self.thread.stop();
    }
}

/// What every connection is served with.
#[derive(Clone)]
struct Desk {
    handler: Arc<dyn HandshakeHandler>,
    limits: Limits,
    access: Option<Arc<AccessControl>>,
    tls: Option<Arc<Tls>>,
    /// Callers who got no answer, as it would have been too long.
    unanswered: Arc<Telling>,
}

async fn run(mut acceptor: Acceptor, desk: Desk, mut stop: Stop) {
    let mut connections = JoinSet::new();
    // In the order of their coming; those that have ended are swept out now and then.
    let mut by_age: VecDeque<AbortHandle> = VecDeque::new();
    // Told to end, and still in its place until the runtime has come round to it.
    let mut ending: Option<AbortHandle> = None;
    loop {
        if acceptor.is_full() && ending.as_ref().is_none_or(AbortHandle::is_finished) {
            ending = drop_oldest(&mut by_age);
        }
        tokio::select! {
            _ = &mut stop => return,
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                if let Some(error) = ended.err().filter(JoinError::is_panic) {
                    tracing::error!(%error, "a handshake connection ended in a panic");
                }
            }
            (stream, caller, place) = acceptor.accept() => {
                let served = desk.clone();
                by_age.push_back(connections.spawn(async move {
                    connection::serve(stream, caller, &served).await;
                    drop(place);
                }));
                if by_age.len() > 2 * desk.limits.connections {
                    by_age.retain(|connection| !connection.is_finished());
                }
            }
        }
    }
}

fn drop_oldest(by_age: &mut VecDeque<AbortHandle>) -> Option<AbortHandle> {
    while let Some(oldest) = by_age.pop_front() {
        if !oldest.is_finished() {
            tracing::debug!("dropped the oldest handshake connection: too many are open");
            oldest.abort();
            return Some(oldest);
        }
    }
    None
}
