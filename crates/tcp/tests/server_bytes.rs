//! The data port, byte by byte, against what the genuine engine answers.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use moonrail_tcp::{ServerOptions, TcpServer};
use moonrail_transport::testkit::Side;

const OK: [u8; 8] = [0, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d];
const REJECTED: [u8; 8] = [1, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d];
const V1_READ: u8 = 0;
const V1_WRITE: u8 = 1;
const V2_READ: u8 = 0x80;
const V2_WRITE: u8 = 0x81;

struct Server {
    side: Side,
    server: TcpServer,
    /// 4096 bytes: byte i is i mod 256.
    addr: u64,
}

impl Server {
    fn new() -> Self {
        Self::with(ServerOptions::default())
    }

    fn with(options: ServerOptions) -> Self {
        let side = Side::new();
        let bytes: Vec<u8> = (0..4096).map(|at| at as u8).collect();
        let addr = side.buffer(&bytes);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = TcpServer::start(listener, Arc::clone(&side.regions), options).unwrap();
        Self { side, server, addr }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends `request`, then reads until the server closes or `expect` bytes are here.
    fn ask(&self, request: &[u8], expect: usize) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut answer = vec![0; expect];
        stream.read_exact(&mut answer).unwrap();
        answer
    }

    /// Sends `request` and gives everything that comes before the server ends the connection.
    fn ask_until_closed(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
        answer
    }
}

/// The header: u64 size, u64 address, opcode, 7 bytes that are ignored.
fn header(size: u64, addr: u64, opcode: u8) -> Vec<u8> {
    let mut bytes = size.to_le_bytes().to_vec();
    bytes.extend(addr.to_le_bytes());
    bytes.push(opcode);
    bytes.extend([0xff; 7]);
    bytes
}

fn pattern(from: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| from.wrapping_add(at as u8)).collect()
}

#[test]
fn a_v2_read_answers_status_then_payload() {
    let server = Server::new();
    let answer = server.ask(&header(16, server.addr, V2_READ), 24);
    assert_eq!(answer, [&OK[..], &pattern(0, 16)].concat());
}

#[test]
fn a_v1_read_answers_payload_alone() {
    let server = Server::new();
    assert_eq!(server.ask(&header(16, server.addr, V1_READ), 16), pattern(0, 16));
}

#[test]
fn any_opcode_that_is_not_one_is_a_read() {
    let server = Server::new();
    assert_eq!(server.ask(&header(16, server.addr, 0x7f), 16), pattern(0, 16));
    assert_eq!(server.ask(&header(16, server.addr, 0x82), 24)[8..], pattern(0, 16));
}

#[test]
fn a_v2_write_is_confirmed_once_it_is_stored() {
    let server = Server::new();
    let request = [header(16, server.addr + 1024, V2_WRITE), pattern(0x64, 16)].concat();
    assert_eq!(server.ask(&request, 8), OK);
    assert_eq!(server.side.get(server.addr + 1024, 16), pattern(0x64, 16));
}

#[test]
fn a_v1_write_is_stored_without_an_answer_and_the_connection_goes_on() {
    let server = Server::new();
    let mut stream = server.connect();
    stream.write_all(&[header(16, server.addr + 1024, V1_WRITE), pattern(0x64, 16)].concat()).unwrap();
    stream.write_all(&header(1, server.addr + 1024 + 15, V1_READ)).unwrap();
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [0x64 + 15]);
    assert_eq!(server.side.get(server.addr + 1024, 16), pattern(0x64, 16));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::new();
    let mut request = Vec::new();
    let mut expected = Vec::new();
    for at in 0..1000u64 {
        let offset = at * 4 % 4000;
        if at % 3 == 0 {
            request.extend(header(8, server.addr + offset, V2_WRITE));
            request.extend(pattern(offset as u8, 8));
            expected.extend(OK);
        } else {
            request.extend(header(8, server.addr + offset, V2_READ));
            expected.extend(OK);
            expected.extend(pattern(offset as u8, 8));
        }
    }
    assert!(server.ask(&request, expected.len()) == expected);
}

#[test]
fn a_bad_range_is_refused_and_the_connection_closed() {
    let server = Server::new();
    let before = server.side.get(server.addr, 4096);
    for (size, addr) in
        [(16, 4096), (0, server.addr), (16, server.addr + 4088), (u64::MAX, server.addr), (4097, server.addr)]
    {
        assert_eq!(
            server.ask_until_closed(&header(size, addr, V2_READ)),
            REJECTED,
            "read {size} at {addr:#x}"
        );
        let write = [header(size, addr, V2_WRITE), vec![0x78; 16]].concat();
        assert_eq!(server.ask_until_closed(&write), REJECTED, "write {size} at {addr:#x}");
        if size == 0 {
            continue;
        }
        assert!(server.ask_until_closed(&header(size, addr, V1_READ)).is_empty());
        let write = [header(size, addr, V1_WRITE), vec![0x78; 16]].concat();
        assert!(server.ask_until_closed(&write).is_empty());
    }
    assert!(server.side.get(server.addr, 4096) == before);
    assert_eq!(server.server.counters().refused.load(Ordering::Relaxed), 18);
}

#[test]
fn a_v1_request_of_no_bytes_moves_nothing_and_the_connection_goes_on() {
    let server = Server::new();
    let nothing = [header(0, 0, V1_WRITE), header(0, 4096, V1_READ)].concat();
    let request = [nothing.repeat(100), header(16, server.addr, V1_READ)].concat();
    assert_eq!(server.ask(&request, 16), pattern(0, 16));
}

#[test]
fn answers_owed_before_a_refusal_are_still_sent() {
    let server = Server::new();
    let request =
        [header(8, server.addr, V2_READ), header(8, 4096, V2_READ), header(8, server.addr, V2_READ)].concat();
    assert_eq!(server.ask_until_closed(&request), [&OK[..], &pattern(0, 8), &REJECTED].concat());
}

#[test]
fn bytes_that_are_no_request_end_the_connection_and_disturb_nobody() {
    let server = Server::new();
    let tls_hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[0x5a; 64]].concat();
    let probes: [&[u8]; 3] = [b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", &tls_hello, &[0x5a; 8192]];
    for _ in 0..50 {
        for probe in probes {
            server.ask_until_closed(probe);
        }
    }
    a_v2_read_works(&server);
}

fn a_v2_read_works(server: &Server) {
    let since = Instant::now();
    assert_eq!(server.ask(&header(16, server.addr, V2_READ), 24)[..8], OK);
    assert!(since.elapsed() < Duration::from_millis(500));
}

#[test]
fn idle_half_open_and_slow_clients_delay_nobody() {
    let server = Server::new();
    let mut clients: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        match number % 4 {
            0 => {}
            1 => client.write_all(&header(16, server.addr, V2_READ)[..11]).unwrap(),
            2 => client.write_all(&[header(4096, server.addr, V2_WRITE), vec![1; 5]].concat()).unwrap(),
            // Asks for a lot and reads nothing.
            _ => client.write_all(&header(4096, server.addr, V2_READ).repeat(2000)).unwrap(),
        }
    }
    for _ in 0..20 {
        a_v2_read_works(&server);
    }
}

#[test]
fn a_client_that_gives_up_leaves_no_late_bytes() {
    let server = Server::new();
    let big = server.side.buffer(&vec![0; 64 << 20]);
    for _ in 0..20 {
        let mut stream = server.connect();
        let half = vec![0xee; 8 << 20];
        stream.write_all(&header(64 << 20, big, V2_WRITE)).unwrap();
        stream.write_all(&half).unwrap();
        moonrail_sys::socket::reset_on_close(&stream).unwrap();
        drop(stream);
        std::thread::sleep(Duration::from_millis(5));
        // One receive that was inside the kernel at the reset may end; after that nothing moves.
        let settled = server.side.get(big, 64 << 20);
        std::thread::sleep(Duration::from_millis(20));
        assert!(server.side.get(big, 64 << 20) == settled);
    }
}

#[test]
fn a_stalled_request_is_ended_and_its_memory_released() {
    let server =
        Server::with(ServerOptions { stall: Duration::from_millis(300), ..ServerOptions::default() });
    let mut stream = server.connect();
    stream.write_all(&[header(4096, server.addr, V2_WRITE), vec![1; 5]].concat()).unwrap();
    let since = Instant::now();
    assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
    assert!(since.elapsed() < Duration::from_secs(4));
    server.side.free(server.addr);
}

#[test]
fn unregister_does_not_wait_for_a_client_that_trickles() {
    let server = Server::new();
    let mut stream = server.connect();
    stream.write_all(&[header(4096, server.addr, V2_WRITE), vec![1; 5]].concat()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let since = Instant::now();
    server.side.free(server.addr);
    assert!(since.elapsed() < Duration::from_millis(500));
}

#[test]
fn connections_over_the_limit_are_turned_away() {
    let server = Server::with(ServerOptions { max_connections: 3, ..ServerOptions::default() });
    let kept: Vec<_> = (0..3).map(|_| server.connect()).collect();
    std::thread::sleep(Duration::from_millis(50));
    assert!(server.ask_until_closed(&header(16, server.addr, V2_READ)).is_empty());
    assert_eq!(server.server.counters().turned_away.load(Ordering::Relaxed), 1);
    drop(kept);
    std::thread::sleep(Duration::from_millis(50));
    a_v2_read_works(&server);
}

#[test]
fn v1_writes_can_be_refused_altogether() {
    let server = Server::with(ServerOptions { serve_v1_writes: false, ..ServerOptions::default() });
    let before = server.side.get(server.addr, 4096);
    assert!(server.ask_until_closed(&[header(16, server.addr, V1_WRITE), vec![9; 16]].concat()).is_empty());
    assert!(server.side.get(server.addr, 4096) == before);
    assert_eq!(server.ask(&header(16, server.addr, V1_READ), 16), pattern(0, 16));
}
