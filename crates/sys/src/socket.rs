//! TCP sockets: starting and finishing a connection, listening, options, and the state of a connection.
//!
//! Owns the calls that `std::net` lacks. Every socket made here is non-blocking and closed on exec. It must not know
//! what is sent over it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, SocketFlags};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Starts to connect. The flag says whether the connection is still in progress: then wait until the socket is
/// writable and call [`connect_finish`].
///
/// # Errors
/// Whatever is known at once: `ConnectionRefused` on loopback, no route, out of descriptors.
pub fn connect_start(to: SocketAddr) -> io::Result<(TcpStream, bool)> {
    let socket = tcp_socket(to)?;
    let in_progress = match socket.connect(&to.into()) {
        Ok(()) => false,
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => true,
        // A signal during a non-blocking connect does not stop it.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
        Err(error) => return Err(error),
    };
    let stream = TcpStream::from(socket);
    if !in_progress {
        connect_finish(&stream)?;
    }
    Ok((stream, in_progress))
}

/// Says how a connection attempt ended.
///
/// # Errors
/// Why it failed; `WouldBlock` while it is still in progress. A socket that met itself (a connection to a local port
/// nobody listens on, which the kernel happened to choose as the source port) is `ConnectionRefused`.
pub fn connect_finish(stream: &TcpStream) -> io::Result<()> {
    if let Some(error) = take_error(stream)? {
        return Err(error);
    }
    let peer = match stream.peer_addr() {
        Ok(peer) => peer,
        Err(error) if error.kind() == io::ErrorKind::NotConnected => {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Err(error) => return Err(error),
    };
    if stream.local_addr()? == peer {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}

/// Listens on exactly `at` (an IPv6 address does not take IPv4 connections). Port 0 lets the kernel choose. The
/// listener is non-blocking, and its port can be taken again at once after a restart.
///
/// # Errors
/// `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`, out of descriptors.
pub fn listen(at: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = tcp_socket(at)?;
    socket.set_reuse_address(true)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&at.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// Listens on a free port of `ports`: from a random one upwards, wrapping round, `tries` ports at most.
///
/// # Errors
/// `AddrInUse` when no port tried was free, or the range is empty; any other error of [`listen`] at once.
pub fn listen_in_range(
    ip: IpAddr,
    ports: RangeInclusive<u16>,
    tries: u32,
    backlog: i32,
) -> io::Result<TcpListener> {
    let (low, high) = (u32::from(*ports.start()), u32::from(*ports.end()));
    let count = (high + 1).saturating_sub(low);
    let first = random_u32() % count.max(1);
    for offset in 0..tries.min(count) {
        let port = low + (first + offset) % count;
        let port = u16::try_from(port).expect("invariant: the port lies in a range of u16");
        match listen(SocketAddr::new(ip, port), backlog) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            done => return done,
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("no free port on {ip} among {} of {low}-{high}", tries.min(count)),
    ))
}

/// Takes one connection from a listener; the socket is non-blocking.
///
/// # Errors
/// `WouldBlock` when none waits; `ConnectionAborted` when it is gone already; EMFILE or ENFILE when out of descriptors
/// (the connection then stays in the backlog: pause before the next call).
pub fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (fd, peer) = rustix::net::acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    let stream = TcpStream::from(fd);
    let peer = match peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
        Some(peer) => peer,
        None => stream.peer_addr()?,
    };
    Ok((stream, peer))
}

/// Sends what the socket takes now.
///
/// # Errors
/// `WouldBlock`, or the socket's error. No SIGPIPE is raised.
pub fn try_send(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let fd = fd.as_fd();
    rustix::io::retry_on_intr(|| rustix::net::send(fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT))
        .map_err(Into::into)
}

/// Receives what has arrived; 0 is the end of the stream (or an empty `into`).
///
/// # Errors
/// `WouldBlock`, or the socket's error.
pub fn try_recv(fd: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
    let fd = fd.as_fd();
    let (moved, _) = rustix::io::retry_on_intr(|| rustix::net::recv(fd, &mut *into, RecvFlags::DONTWAIT))?;
    Ok(moved)
}

/// Switches Nagle's delay off (`true`) or on.
///
/// # Errors
/// `fd` is not a TCP socket.
pub fn set_nodelay(fd: impl AsFd, nodelay: bool) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_nodelay(fd, nodelay).map_err(Into::into)
}

/// Makes the coming close a reset: unsent and unread bytes are dropped on both sides.
///
/// # Errors
/// `fd` is not a socket.
pub fn reset_on_close(fd: impl AsFd) -> io::Result<()> {
    rustix::net::sockopt::set_socket_linger(fd, Some(Duration::ZERO)).map_err(Into::into)
}

/// Gives up a connection whose sent bytes have not been acknowledged for `after` (rounded up to milliseconds; zero
/// restores the system's default).
///
/// # Errors
/// `fd` is not a TCP socket.
pub fn set_user_timeout(fd: impl AsFd, after: Duration) -> io::Result<()> {
    let millis = after.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as u32;
    rustix::net::sockopt::set_tcp_user_timeout(fd, millis).map_err(Into::into)
}

/// Takes the error pending on a socket, if any.
///
/// # Errors
/// `fd` is not a socket.
pub fn take_error(fd: impl AsFd) -> io::Result<Option<io::Error>> {
    Ok(rustix::net::sockopt::socket_error(fd)?.err().map(Into::into))
}

/// Whether an idle connection is unfit for the next request: closed or reset by the peer, or with bytes on it that
/// nobody asked for. Takes nothing from the socket.
pub fn is_dead_or_dirty(fd: impl AsFd) -> bool {
    let fd = fd.as_fd();
    let mut byte = [0_u8; 1];
    let peeked =
        rustix::io::retry_on_intr(|| rustix::net::recv(fd, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT));
    peeked != Err(rustix::io::Errno::AGAIN)
}

/// Bytes sent that the peer's kernel has not acknowledged yet (`SIOCOUTQ`).
///
/// # Errors
/// `fd` is not a stream socket.
pub fn unsent_bytes(fd: impl AsFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the request writes one int, to a variable that lives through the call.
    let answer = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut count) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Asks for kernel buffers of these sizes in bytes; `None` leaves one to the kernel's own tuning, which is mostly
/// better. The kernel doubles the value and caps it.
///
/// # Errors
/// `fd` is not a socket.
pub fn set_buffer_sizes(fd: impl AsFd, send: Option<usize>, receive: Option<usize>) -> io::Result<()> {
    let fd = fd.as_fd();
    let socket = SockRef::from(&fd);
    if let Some(size) = send {
        socket.set_send_buffer_size(size)?;
    }
    if let Some(size) = receive {
        socket.set_recv_buffer_size(size)?;
    }
    Ok(())
}

/// Has the socket count as readable only once `bytes` have arrived, or its end (1 is the system's default). A receive
/// still gives what is there. More than half the largest receive buffer is cut to that by the kernel.
///
/// # Errors
/// `fd` is not a socket.
pub fn set_receive_low_water(fd: impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes.max(1)).unwrap_or(libc::c_int::MAX);
    // SAFETY: the option is one int, in a variable that lives through the call.
    let answer = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The sizes of the kernel's send and receive buffers in bytes.
///
/// # Errors
/// `fd` is not a socket.
pub fn buffer_sizes(fd: impl AsFd) -> io::Result<(usize, usize)> {
    let fd = fd.as_fd();
    let socket = SockRef::from(&fd);
    Ok((socket.send_buffer_size()?, socket.recv_buffer_size()?))
}

fn tcp_socket(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))
}

/// Good enough to keep processes that start together apart; not for secrets.
fn random_u32() -> u32 {
    let hash = RandomState::new().build_hasher().finish();
    (hash >> 32) as u32 ^ hash as u32
}
