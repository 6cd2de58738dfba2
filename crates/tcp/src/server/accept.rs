//! Taking in new connections, within limits.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use moonrail_sys::{errno, socket};
use tracing::warn;

/// How long accepting rests after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The listener, with what is needed to survive running out of descriptors.
pub(super) struct Acceptor {
    listener: TcpListener,
    paused_until: Option<Instant>,
    warned: bool,
}

pub(super) enum Accepted {
    Connection(TcpStream, SocketAddr),
    None,
}

impl Acceptor {
    pub(super) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, paused_until: None, warned: false })
    }

    pub(super) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// The next waiting connection, made ready for use.
    pub(super) fn accept(&mut self, now: Instant) -> Accepted {
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    self.warned = false;
                    let ready =
                        stream.set_nonblocking(true).and_then(|()| socket::set_nodelay(&stream, true));
                    if ready.is_ok() {
                        return Accepted::Connection(stream, peer);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Accepted::None,
                Err(error) if errno::is_descriptor_limit(&error) => {
                    if !self.warned {
                        warn!("no file descriptor left for a new data connection (ulimit -n): {error}");
                        self.warned = true;
                    }
                    self.paused_until = Some(now + PAUSE);
                    return Accepted::None;
                }
                // The client gave up in the queue: look at the next one.
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    warn!("accepting data connections failed: {error}");
                    self.paused_until = Some(now + PAUSE);
                    return Accepted::None;
                }
            }
        }
    }

    /// When accepting goes on, while it rests.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Ends the rest if it is over; true if it ended now.
    pub(super) fn resume(&mut self, now: Instant) -> bool {
        let over = self.paused_until.is_some_and(|until| now >= until);
        if over {
            self.paused_until = None;
        }
        over
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}
