//! A connection of the data port, whichever protocol it turns out to speak.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use super::Shared;
use super::connection::Connection;
use super::rail::RailLane;
use super::turn::Turn;

pub(super) enum Client {
    /// Mooncake's data protocol, or nothing heard yet.
    Mooncake(Connection),
    Rail(Box<RailLane>),
}

impl Client {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, now: Instant) -> Self {
        Self::Mooncake(Connection::new(stream, peer, now))
    }

    /// Moves what can be moved now. After [`Turn::Rail`] it must become a rail lane.
    pub(super) fn turn(&mut self, shared: &Shared, now: Instant) -> Turn {
        match self {
            Self::Mooncake(connection) => connection.turn(shared, now),
            Self::Rail(lane) => lane.turn(shared, now),
        }
    }

    /// The same connection as a rail lane.
    pub(super) fn into_rail(self, now: Instant) -> Self {
        match self {
            Self::Mooncake(connection) => Self::Rail(Box::new(connection.into_rail(now))),
            rail => rail,
        }
    }

    /// Between requests and with nothing owed: it may stay so for ever.
    pub(super) fn at_rest(&self) -> bool {
        match self {
            Self::Mooncake(connection) => connection.at_rest(),
            Self::Rail(lane) => lane.at_rest(),
        }
    }

    /// Whether memory that it is using is being unregistered.
    pub(super) fn revoked(&self) -> bool {
        match self {
            Self::Mooncake(connection) => connection.revoked(),
            Self::Rail(lane) => lane.revoked(),
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        match self {
            Self::Mooncake(connection) => connection.peer(),
            Self::Rail(lane) => lane.peer(),
        }
    }

    /// When a byte last moved.
    pub(super) fn last_progress(&self) -> Instant {
        match self {
            Self::Mooncake(connection) => connection.last_progress,
            Self::Rail(lane) => lane.last_progress,
        }
    }

    /// Ends it so that nothing more is sent or stored.
    pub(super) fn reset(self) {
        match self {
            Self::Mooncake(connection) => connection.reset_on_close(),
            Self::Rail(lane) => lane.reset_on_close(),
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Mooncake(connection) => connection.as_fd(),
            Self::Rail(lane) => lane.as_fd(),
        }
    }
}
