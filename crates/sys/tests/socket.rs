//! TCP sockets on loopback.
#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use moonrail_sys::poll::{wait_readable, wait_writable};
use moonrail_sys::socket;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TEN_SECONDS: Option<Duration> = Some(Duration::from_secs(10));

fn listener() -> (TcpListener, SocketAddr) {
    let listener = socket::listen(SocketAddr::new(LOCAL, 0), 16).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

fn connected() -> (TcpStream, TcpStream) {
    let (listener, addr) = listener();
    let (stream, in_progress) = socket::connect_start(addr).unwrap();
    if in_progress {
        wait_writable(&stream, TEN_SECONDS).unwrap();
        socket::connect_finish(&stream).unwrap();
    }
    wait_readable(&listener, TEN_SECONDS).unwrap();
    let (accepted, peer) = socket::accept(&listener).unwrap();
    assert_eq!(peer, stream.local_addr().unwrap());
    (stream, accepted)
}

#[test]
fn connects_and_moves_bytes_without_blocking() {
    let (here, there) = connected();
    let mut byte = [0_u8; 8];
    assert_eq!((&there).read(&mut byte).unwrap_err().kind(), ErrorKind::WouldBlock, "accepted: non-blocking");
    assert_eq!((&here).read(&mut byte).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(socket::try_recv(&there, &mut byte).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(socket::try_send(&here, b"hello").unwrap(), 5);
    wait_readable(&there, TEN_SECONDS).unwrap();
    assert_eq!(socket::try_recv(&there, &mut byte).unwrap(), 5);
    assert_eq!(&byte[..5], b"hello");
    drop(here);
    wait_readable(&there, TEN_SECONDS).unwrap();
    assert_eq!(socket::try_recv(&there, &mut byte).unwrap(), 0);
}

#[test]
fn a_refused_connection_says_so() {
    let (listener, addr) = listener();
    drop(listener);
    let refused = match socket::connect_start(addr) {
        Err(error) => error,
        Ok((stream, _)) => {
            wait_writable(&stream, TEN_SECONDS).unwrap();
            socket::connect_finish(&stream).unwrap_err()
        }
    };
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_connection_to_itself_is_refused() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(LOCAL, 0).into()).unwrap();
    let own = socket.local_addr().unwrap();
    socket.connect(&own).unwrap();
    let stream = TcpStream::from(socket);
    assert_eq!(socket::connect_finish(&stream).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn listening_is_exact_and_exclusive() {
    let (_listener, addr) = listener();
    assert_eq!(socket::listen(addr, 16).unwrap_err().kind(), ErrorKind::AddrInUse);
    let elsewhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 0);
    assert_eq!(socket::listen(elsewhere, 16).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    // Another loopback address has the port still free, so nothing listens on "any".
    let other = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), addr.port());
    assert_eq!(socket::listen(other, 16).unwrap().local_addr().unwrap(), other);
}

#[test]
fn an_ipv6_listener_takes_no_ipv4() {
    let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
    // A host without IPv6 cannot be asked.
    let Ok(listener) = socket::listen(any, 16) else { return };
    let port = listener.local_addr().unwrap().port();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    let v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    socket::listen(v4, 16).unwrap();
}

#[test]
fn a_port_is_free_again_after_a_restart() {
    let (listener, addr) = listener();
    let client = TcpStream::connect(addr).unwrap();
    wait_readable(&listener, TEN_SECONDS).unwrap();
    let (accepted, _) = socket::accept(&listener).unwrap();
    // The server's end closes first, so its port is left in TIME_WAIT.
    drop(accepted);
    drop(listener);
    drop(client);
    socket::listen(addr, 16).unwrap();
}

#[test]
fn a_range_is_searched_and_then_given_up() {
    // Other tests and programs take ports meanwhile: look for a stretch that is free now.
    let base = (20_000..30_000)
        .step_by(4)
        .find(|&base| (base..base + 4).all(|port| TcpListener::bind((LOCAL, port)).is_ok()))
        .unwrap();
    let range = base..=base + 3;
    let mut held = Vec::new();
    for _ in 0..4 {
        let listener = socket::listen_in_range(LOCAL, range.clone(), 100, 16).unwrap();
        assert!(range.contains(&listener.local_addr().unwrap().port()));
        held.push(listener);
    }
    let full = socket::listen_in_range(LOCAL, range.clone(), 100, 16).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::AddrInUse);
    let port = held.pop().unwrap().local_addr().unwrap().port();
    let again = socket::listen_in_range(LOCAL, range, 100, 16).unwrap();
    assert_eq!(again.local_addr().unwrap().port(), port, "the one free port is found");
    #[allow(clippy::reversed_empty_ranges)]
    let empty = socket::listen_in_range(LOCAL, 9..=8, 100, 16);
    assert_eq!(empty.unwrap_err().kind(), ErrorKind::AddrInUse);
    socket::listen_in_range(LOCAL, 0..=0, 1, 16).unwrap();
}

#[test]
fn an_idle_lane_is_judged_by_what_lies_on_it() {
    let (here, mut there) = connected();
    assert!(!socket::is_dead_or_dirty(&here));
    there.write_all(b"?").unwrap();
    wait_readable(&here, TEN_SECONDS).unwrap();
    assert!(socket::is_dead_or_dirty(&here), "bytes nobody asked for");
    let mut byte = [0];
    assert_eq!(socket::try_recv(&here, &mut byte).unwrap(), 1, "looking took nothing");
    assert!(!socket::is_dead_or_dirty(&here));
    drop(there);
    wait_readable(&here, TEN_SECONDS).unwrap();
    assert!(socket::is_dead_or_dirty(&here), "closed");
}

#[test]
fn closing_can_be_a_reset() {
    let (here, there) = connected();
    socket::reset_on_close(&there).unwrap();
    drop(there);
    wait_readable(&here, TEN_SECONDS).unwrap();
    assert!(socket::is_dead_or_dirty(&here));
    let (here, there) = connected();
    socket::reset_on_close(&there).unwrap();
    drop(there);
    wait_readable(&here, TEN_SECONDS).unwrap();
    let error = socket::take_error(&here).unwrap().expect("the reset is pending");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(socket::take_error(&here).unwrap().is_none(), "taken");
}

#[test]
fn unsent_bytes_are_counted_until_acknowledged() {
    let (here, there) = connected();
    assert_eq!(socket::unsent_bytes(&here).unwrap(), 0);
    let chunk = vec![7_u8; 1 << 16];
    let mut sent = 0;
    while let Ok(moved) = socket::try_send(&here, &chunk) {
        sent += moved;
    }
    let unsent = socket::unsent_bytes(&here).unwrap();
    assert!(unsent > 0 && unsent <= sent, "{unsent} of {sent}");
    let mut into = vec![0_u8; 1 << 16];
    let mut got = 0;
    while got < sent {
        wait_readable(&there, TEN_SECONDS).unwrap();
        got += socket::try_recv(&there, &mut into).unwrap();
    }
    // Everything was read, so everything sent has arrived; the acknowledgement follows within moments.
    for _ in 0..200 {
        if socket::unsent_bytes(&here).unwrap() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} bytes are never acknowledged", socket::unsent_bytes(&here).unwrap());
}

#[test]
fn options_are_set() {
    let (here, _there) = connected();
    socket::set_nodelay(&here, true).unwrap();
    assert!(here.nodelay().unwrap());
    socket::set_nodelay(&here, false).unwrap();
    assert!(!here.nodelay().unwrap());
    socket::set_buffer_sizes(&here, Some(64 << 10), Some(32 << 10)).unwrap();
    let (send, receive) = socket::buffer_sizes(&here).unwrap();
    assert!(send >= 64 << 10 && receive >= 32 << 10, "{send} {receive}");
    socket::set_user_timeout(&here, Duration::from_micros(1_500_001)).unwrap();
    assert_eq!(rustix::net::sockopt::tcp_user_timeout(&here).unwrap(), 1501);
    socket::set_user_timeout(&here, Duration::MAX).unwrap();
}

#[test]
fn accepting_from_nobody_would_block() {
    let (listener, _) = listener();
    assert_eq!(socket::accept(&listener).unwrap_err().kind(), ErrorKind::WouldBlock);
}
