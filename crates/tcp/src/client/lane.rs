//! One connection to a peer's data port.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use moonrail_sys::poll::{Interest, Ready, wait};
use moonrail_sys::{errno, socket};
use moonrail_transport::{Code, Control, Dialect, Failure, Stage, Target, Work};
use moonrail_wire::rail::CHECKSUM;

use super::failure::{self, Reached, failed};
use super::guards::Guards;
use super::opening;
use super::rail::LaneState;
use crate::checked::Checked;
use crate::spin::Spin;
use crate::stream::Stream;

/// A connected, non-blocking socket, used by one call at a time.
pub(super) struct Lane {
    pub stream: Stream,
    /// Of the descriptor that the lane was opened on.
    pub generation: u64,
    /// For a lane that speaks rail.
    pub rail: Option<LaneState>,
    /// The version of the wallet whose tokens the target has seen.
    pub presented: u64,
    /// After a failed exchange: the lane can serve the next call all the same.
    pub in_step: bool,
    /// How soon this peer answers.
    pub spin: Spin,
}

impl Lane {
    /// [`Lane::connect`], and on a rail lane TLS and the proof of the shared key, where they are asked for.
    pub(super) fn open(
        target: &Target,
        work: &Work<'_>,
        control: &Control<'_>,
        guards: &Guards,
    ) -> Result<Lane, Failure> {
        let mut lane = Self::connect(target, work, control)?;
        if let Some(name) = &target.tls {
            opening::seal(&mut lane.stream, guards.tls.as_deref(), name, target, work, control)?;
        }
        let Some(rail) = &mut lane.rail else { return Ok(lane) };
        let stream = &mut lane.stream;
        let (epoch, wants) = (rail.epoch(), guards.wants(stream.is_sealed()));
        let features = if let Some(access) = &guards.access {
            opening::prove(stream, epoch, wants, access, target, work, control)?
        } else if stream.is_sealed() || guards.checksum {
            // A peer that does not believe this engine says so before anything of the batch was sent.
            opening::greet(stream, epoch, wants, target, work, control)?
        } else {
            return Ok(lane);
        };
        rail.welcomed(features);
        if features & wants & CHECKSUM != 0 {
            stream.seal(Checked::default(), &[]);
        } else if wants & CHECKSUM != 0 {
            guards.go_unchecked(target);
        }
        Ok(lane)
    }

    /// Connects to the first of the target's addresses that answers.
    pub(super) fn connect(target: &Target, work: &Work<'_>, control: &Control<'_>) -> Result<Lane, Failure> {
        let limit = Instant::now() + control.connect;
        let mut last = None;
        for &address in &target.addresses {
            match connect_one(address, limit, control) {
                Ok(stream) => return Ok(Lane::over(stream, target)),
                Err(error) => last = Some((address, error)),
            }
            if (control.stop)().is_some() || control.expired(Instant::now()) {
                break;
            }
        }
        if let Some(stop) = (control.stop)() {
            return Err(failure::stopped(target, work, Reached::NOTHING, stop));
        }
        if control.expired(Instant::now()) {
            return Err(failure::deadline(target, work, Reached::NOTHING, Stage::Connect));
        }
        Err(connect_failure(target, work, last))
    }

    fn over(socket: TcpStream, target: &Target) -> Lane {
        let rail = match target.dialect {
            Dialect::Rail { epoch } => Some(LaneState::new(epoch)),
            Dialect::MooncakeV1 | Dialect::MooncakeV2 => None,
        };
        let stream = Stream::new(socket);
        Lane {
            stream,
            generation: target.generation,
            rail,
            presented: 0,
            in_step: false,
            spin: Spin::default(),
        }
    }

    /// Whether an idle lane can no longer be trusted: it was closed, or holds bytes nobody asked for.
    pub(super) fn unusable(&self) -> bool {
        self.stream.is_dead_or_dirty()
    }
}

impl Drop for Lane {
    /// Every lane ends by reset: what the peer has not read yet is dropped, so nothing of a failed write lands
    /// later, and no port is left in TIME_WAIT.
    fn drop(&mut self) {
        self.stream.reset_on_close();
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn connect_one(address: SocketAddr, limit: Instant, control: &Control<'_>) -> io::Result<TcpStream> {
    let (stream, in_progress) = socket::connect_start(address)?;
    if in_progress {
        wait_connected(&stream, limit, control)?;
    }
    socket::connect_finish(&stream)?;
    socket::set_nodelay(&stream, true)?;
    Ok(stream)
}

fn wait_connected(stream: &TcpStream, limit: Instant, control: &Control<'_>) -> io::Result<()> {
    loop {
        let Some(slice) = control.slice(Instant::now(), limit) else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        if matches!(wait(stream, Interest::Write, Some(slice))?, Ready::Ready(_)) {
            return Ok(());
        }
        if (control.stop)().is_some() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}

fn connect_failure(target: &Target, work: &Work<'_>, last: Option<(SocketAddr, io::Error)>) -> Failure {
    let Some((address, error)) = last else {
        let message = "the peer's descriptor names no data address".to_owned();
        return failed(target, work, Reached::NOTHING, Code::UnsupportedPeer, Stage::Connect, message);
    };
    let (code, message) = match error.kind() {
        io::ErrorKind::ConnectionRefused => (
            Code::PeerUnreachable,
            format!("nobody listens at the peer's data port {address}: its process is gone"),
        ),
        io::ErrorKind::TimedOut => {
            (Code::PeerTimeout, format!("no answer from the peer's data port {address}"))
        }
        _ if errno::is_descriptor_limit(&error) => (
            Code::ResourceLimit,
            format!("no file descriptor left for a connection to {address} (ulimit -n): {error}"),
        ),
        _ => (Code::PeerUnreachable, format!("cannot connect to the peer's data port {address}: {error}")),
    };
    failed(target, work, Reached::NOTHING, code, Stage::Connect, message)
}
