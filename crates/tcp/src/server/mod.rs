//! The target's side: the data port of an engine.
//!
//! One thread serves every connection from an epoll set; it sleeps when nothing moves. A connection's bytes go
//! straight between its socket and registered memory that it holds; what one client does or does not do
//! never delays another by more than one turn ([`turn::TURN_BYTES`]).

mod accept;
mod client;
mod connection;
mod event_loop;
mod rail;
mod rail_answers;
mod reception;
mod reply;
#[cfg(test)]
pub(crate) mod testing;
mod tokens;
mod trace;
mod turn;
mod waiting;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use moonrail_access::{AccessControl, Telling, Tls, TokenIssuer};
use moonrail_memory::RegionTable;
use moonrail_sys::Waker;
use moonrail_sys::process::ForkGuard;
use moonrail_wire::rail::{FEATURES, TRACE};
use tracing::warn;

use self::event_loop::EventLoop;
pub use self::trace::{TraceSink, TracedRequests};

/// Limits of a [`TcpServer`].
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Connections at once; a further client is refused by reset.
    pub max_connections: usize,
    /// A connection that stands still in the middle of a request for this long is reset.
    pub stall: Duration,
    /// Whether clients that speak data protocol v1, who cannot be told of a refused write, may write.
    pub serve_v1_writes: bool,
    /// This run of the engine; rail clients that mean another are refused.
    pub epoch: u64,
    /// With it, clients have to prove the shared key; Mooncake's protocol and rail lanes without a proof are served only
    /// where it allows `mooncake`.
    pub access: Option<Arc<AccessControl>>,
    /// With it, clients have to speak TLS; bytes in clear are taken only where it allows `clear` or `mooncake`.
    pub tls: Option<Arc<Tls>>,
    /// Judges the tokens of guarded regions. Without one, nobody gets at those.
    pub tokens: Option<Arc<TokenIssuer>>,
    /// Told of requests that are part of a trace. Without one, clients are not asked to name it.
    pub traces: Option<TraceSink>,
}

impl ServerOptions {
    /// The feature bits that every rail client may have.
    fn features(&self) -> u32 {
        FEATURES & if self.traces.is_some() { !0 } else { !TRACE }
    }

    /// Whether nothing in clear is taken.
    fn only_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.allow().without_tls())
    }

    /// Why Mooncake's protocol is not spoken on a connection.
    fn bars_mooncake(&self, sealed: bool) -> Option<&'static str> {
        if sealed {
            return Some("only rail is spoken inside TLS");
        }
        if self.locked().is_some() {
            return Some("Mooncake's protocol knows no key (MOONRAIL_ALLOW=mooncake allows it)");
        }
        let barred = self.tls.as_ref().is_some_and(|tls| !tls.allow().mooncake);
        barred.then_some("Mooncake's protocol knows no TLS (MOONRAIL_ALLOW=mooncake allows it)")
    }

    /// Counts a client that was refused, and tells of it.
    fn refuse(&self, client: SocketAddr, why: &dyn std::fmt::Display) {
        match (&self.access, &self.tls) {
            (Some(access), _) => access.refuse("data", client, why),
            (None, Some(tls)) => tls.refuse("data", client, why),
            (None, None) => {}
        }
    }

    /// The access control that whoever brings no key has to be refused by.
    fn locked(&self) -> Option<&AccessControl> {
        self.access.as_deref().filter(|access| !access.allow().mooncake)
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            stall: Duration::from_secs(30),
            serve_v1_writes: true,
            epoch: 0,
            access: None,
            tls: None,
            tokens: None,
            traces: None,
        }
    }
}

/// What a server has done so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests served to their end.
    pub requests: AtomicU64,
    /// Payload bytes stored into registered memory.
    pub bytes_in: AtomicU64,
    /// Payload bytes sent from registered memory.
    pub bytes_out: AtomicU64,
    /// Requests refused: a bad range, or bytes that are no request.
    pub refused: AtomicU64,
    /// Connections refused for want of room.
    pub turned_away: AtomicU64,
}

/// The running data port of an engine. Dropping it stops the thread and closes every connection.
pub struct TcpServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    fork_guard: ForkGuard,
}

struct Shared {
    regions: Arc<RegionTable>,
    options: ServerOptions,
    counters: Counters,
    /// Of what clients do: none of them can fill a disk with our log.
    warnings: Telling,
    waker: Waker,
    stop: AtomicBool,
}

impl Shared {
    /// Warns of what a client has done, unless there is a flood of that.
    fn warn(&self, what: fmt::Arguments<'_>) {
        if self.warnings.next().is_some() {
            warn!("{what}");
        }
    }
}

impl TcpServer {
    /// Serves `regions` on `listener`.
    ///
    /// # Errors
    /// When the epoll set, the eventfd or the thread cannot be made.
    pub fn start(
        listener: TcpListener,
        regions: Arc<RegionTable>,
        options: ServerOptions,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            regions: Arc::clone(&regions),
            options,
            counters: Counters::default(),
            warnings: Telling::default(),
            waker: Waker::new()?,
            stop: AtomicBool::new(false),
        });
        let event_loop = EventLoop::new(listener, Arc::clone(&shared))?;
        let revoked = Arc::downgrade(&shared);
        regions.on_revoke(Box::new(move || {
            if let Some(shared) = revoked.upgrade() {
                shared.waker.wake();
            }
        }));
        let thread =
            thread::Builder::new().name("moonrail-data".to_owned()).spawn(move || event_loop.run())?;
        Ok(Self { address, shared, thread: Some(thread), fork_guard: ForkGuard::new() })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.fork_guard.forked() {
            // The thread stayed in the parent.
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.waker.wake();
        let _ = thread.join();
    }
}
