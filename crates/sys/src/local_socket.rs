//! Unix sockets in the abstract name space, with messages, credentials and descriptors.
//!
//! Owns the calls that `std` lacks. Every socket made here is `SOCK_SEQPACKET`, non-blocking and closed on exec. It must
//! not know what is sent.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::pidfd::PidFd;

/// Descriptors that one message may carry.
pub const MAX_FDS: usize = 2;

/// Who is at the other end: the process that called `connect`, or `listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Its number in this process's namespace; 0 when it has none there.
    pub pid: u32,
    /// Its effective user id then.
    pub uid: u32,
}

/// Listens under an abstract name.
///
/// # Errors
/// `AddrInUse` when somebody does already; out of descriptors.
pub fn listen(name: &[u8], backlog: i32) -> io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Connects to an abstract name.
///
/// # Errors
/// `ConnectionRefused` when nobody listens there in this network namespace; `WouldBlock` when the listener has no room now.
pub fn connect(name: &[u8]) -> io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(socket)
}

/// Takes one waiting connection.
///
/// # Errors
/// `WouldBlock` when there is none; out of descriptors.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::accept_with(listener, flags)?)
}

/// Who is at the other end.
///
/// # Errors
/// Not a Unix socket.
pub fn peer_credentials(socket: impl AsFd) -> io::Result<PeerCredentials> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (fd, into) = (socket.as_fd().as_raw_fd(), (&raw mut found).cast());
    // SAFETY: `found` is writable for `len` bytes.
    let rc = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &mut len) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(PeerCredentials { pid: u32::try_from(found.pid).unwrap_or(0), uid: found.uid })
}

/// The process at the other end. Before Linux 6.5 it is found by its number, which is exact as long as the connection
/// stands and was not handed on.
///
/// # Errors
/// ESRCH when it has been reaped already, or has no number in this process's namespace.
pub fn peer_process(socket: impl AsFd) -> io::Result<PidFd> {
    let mut found: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let (fd, into) = (socket.as_fd().as_raw_fd(), (&raw mut found).cast());
    // SAFETY: `found` is writable for `len` bytes.
    let rc = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_PEERPIDFD, into, &mut len) };
    if rc == 0 && found >= 0 {
        // SAFETY: the kernel made this descriptor for us, and nobody else knows it.
        return Ok(PidFd::from_fd(unsafe { OwnedFd::from_raw_fd(found) }));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::ENOPROTOOPT) {
        return Err(error);
    }
    match peer_credentials(&socket)?.pid {
        0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        pid => PidFd::open(pid),
    }
}

/// Sends one message with descriptors, without blocking.
///
/// # Errors
/// `WouldBlock` when the socket has no room; `BrokenPipe` when the peer is gone.
pub fn send(socket: impl AsFd, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(message)], &mut control, flags)?;
    if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives one message and its descriptors, without blocking; 0 bytes are the end.
///
/// # Errors
/// `WouldBlock` when none has arrived; `InvalidData` when it is longer than `into` or has too many descriptors.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.flags.intersects(rustix::net::ReturnFlags::TRUNC | rustix::net::ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message longer than agreed"));
    }
    Ok((got.bytes, fds))
}

/// `SO_PEERPIDFD`, since Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Read;

    fn pair() -> (OwnedFd, OwnedFd) {
        let mut name = *b"moonrail-test-0000000000000000";
        crate::random::fill(&mut name[14..]).unwrap();
        let listener = listen(&name, 4).unwrap();
        let ours = connect(&name).unwrap();
        assert_eq!(listen(&name, 4).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        (ours, accept(&listener).unwrap())
    }

    #[test]
    fn a_message_brings_its_descriptors() {
        let (near, far) = pair();
        let (reader, writer) = std::io::pipe().unwrap();
        send(&near, b"hello", &[writer.as_fd()]).unwrap();
        drop(writer);
        let mut bytes = [0; 16];
        let (len, fds) = receive(&far, &mut bytes).unwrap();
        assert_eq!((&bytes[..len], fds.len()), (b"hello".as_slice(), 1));
        rustix::io::write(&fds[0], b"x").unwrap();
        drop(fds);
        let mut text = String::new();
        let mut reader = reader;
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        assert_eq!(receive(&far, &mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(near);
        assert_eq!(receive(&far, &mut bytes).unwrap().0, 0);
    }

    #[test]
    fn both_ends_know_each_other() {
        let (near, far) = pair();
        for end in [&near, &far] {
            let peer = peer_credentials(end).unwrap();
            assert_eq!((peer.pid, peer.uid), (std::process::id(), crate::host::effective_uid()));
            assert!(!peer_process(end).unwrap().is_dead());
        }
    }

    #[test]
    fn nobody_listens() {
        let error = connect(b"moonrail-test-nobody-listens-here").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
