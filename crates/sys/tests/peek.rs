//! Looking at received bytes and dropping them, on real TCP.
#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use moonrail_sys::poll::wait_readable;
use moonrail_sys::{errno, peek, socket};

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

fn wait(fd: &TcpStream) {
    wait_readable(fd, Some(Duration::from_secs(10))).unwrap();
}

#[test]
fn peeked_bytes_stay_and_discarded_ones_go() {
    let (mut here, there) = connected();
    let mut bytes = [0_u8; 8];
    assert_eq!(peek::peek(&there, &mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(peek::discard(&there, 8).unwrap_err().kind(), ErrorKind::WouldBlock);
    here.write_all(b"abcdef").unwrap();
    wait(&there);
    for _ in 0..2 {
        assert_eq!(peek::peek(&there, &mut bytes[..4]).unwrap(), 4);
        assert_eq!(&bytes[..4], b"abcd");
    }
    assert_eq!(peek::discard(&there, 4).unwrap(), 4);
    assert_eq!(socket::try_recv(&there, &mut bytes).unwrap(), 2);
    assert_eq!(&bytes[..2], b"ef");
    drop(here);
    wait(&there);
    assert_eq!(peek::peek(&there, &mut bytes).unwrap(), 0);
    assert_eq!(peek::discard(&there, 8).unwrap(), 0);
}

#[test]
fn discarding_takes_no_more_than_has_arrived() {
    let (mut here, there) = connected();
    here.write_all(&[1; 100]).unwrap();
    wait(&there);
    let mut dropped = 0;
    while dropped < 100 {
        wait(&there);
        dropped += peek::discard(&there, 1 << 30).unwrap();
    }
    assert_eq!(dropped, 100);
}

#[test]
fn errors_are_told_apart() {
    // Another kind of socket copies where TCP discards, and finds no memory there.
    let (mut here, there) = UnixStream::pair().unwrap();
    here.write_all(b"x").unwrap();
    let fault = peek::discard(&there, 1).unwrap_err();
    assert!(errno::is_bad_address(&fault) && !errno::is_descriptor_limit(&fault), "{fault}");
    for number in [libc::EMFILE, libc::ENFILE] {
        let error = std::io::Error::from_raw_os_error(number);
        assert!(errno::is_descriptor_limit(&error) && !errno::is_bad_address(&error));
    }
    assert!(!errno::is_descriptor_limit(&ErrorKind::WouldBlock.into()));
}
