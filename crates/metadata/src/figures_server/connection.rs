//! Connections to the port of figures: how many there are, how long each lasts and how much it may send. Knows no HTTP.
//!
//! A scraper asks and goes. So whoever opens many, says nothing or trickles is pushed out by newer callers and by time, and
//! shuts nobody out; the metadata server, whose engines keep their connections, cannot be as strict.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use crate::listen::{Acceptor, Place};

/// Connections at once. One more ends the oldest.
const CONNECTIONS: usize = 64;
/// A connection ends after this time, whatever moves on it.
const LIFE: Duration = Duration::from_secs(10);
/// Bytes that are read from a connection: a hundred requests of usual size.
const INPUT: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Connections {
    acceptor: Acceptor,
    /// Dropping one ends its connection. Those that ended by themselves go as newer ones come.
    open: VecDeque<oneshot::Sender<()>>,
}

impl Connections {
    /// Must be called inside a runtime.
    pub(super) fn new(listener: std::net::TcpListener) -> io::Result<Connections> {
        // One place more than are kept: the newest is accepted before the oldest is told to go.
        let acceptor = Acceptor::new(listener, CONNECTIONS + 1, "metrics")?;
        Ok(Connections { acceptor, open: VecDeque::with_capacity(CONNECTIONS) })
    }
}

impl Listener for Connections {
    type Io = Bounded;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Bounded, SocketAddr) {
        let (stream, caller, place) = self.acceptor.accept().await;
        self.open.retain(|open| !open.is_closed());
        if self.open.len() >= CONNECTIONS {
            self.open.pop_front();
        }
        let (open, pushed_out) = oneshot::channel();
        self.open.push_back(open);
        let life = Box::pin(sleep(LIFE));
        (Bounded { stream, pushed_out, life, input: INPUT, _place: place }, caller)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.acceptor.local_addr()
    }
}

/// A stream that fails when its time is over, when it was pushed out, or when it has sent too much.
#[derive(Debug)]
pub(super) struct Bounded {
    stream: TcpStream,
    pushed_out: oneshot::Receiver<()>,
    life: Pin<Box<Sleep>>,
    input: usize,
    _place: Place,
}

impl Bounded {
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        self.life.as_mut().poll(context).is_ready() || Pin::new(&mut self.pushed_out).poll(context).is_ready()
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.input == 0 || self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = into.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(context, into);
        self.input = self.input.saturating_sub(into.filled().len() - before);
        outcome
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
