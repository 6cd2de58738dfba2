//! The rail side of the data port, byte by byte (docs/rail-protocol.md): refusals that stay in step, other epochs,
//! hostile frames.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use moonrail_tcp::{ServerOptions, TcpServer};
use moonrail_transport::testkit::Side;
use moonrail_wire::rail::{
    ANSWER_LEN, Answer, AnswerKind, AnswerStatus, CANCEL, Cancel, FEATURES, Hello, Range, Request,
    RequestKind, TRACE, VERSION, WELCOME_LEN, Welcome, WelcomeStatus,
};

const EPOCH: u64 = 42;

struct Server {
    side: Side,
    server: TcpServer,
    addr: u64,
}

impl Server {
    fn new() -> Self {
        let side = Side::new();
        let addr = side.buffer(&[0; 8192]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = ServerOptions { epoch: EPOCH, ..ServerOptions::default() };
        let server = TcpServer::start(listener, Arc::clone(&side.regions), options).unwrap();
        Self { side, server, addr }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    }

    fn lane(&self) -> TcpStream {
        self.lane_with(0, 0)
    }

    /// A lane on which `features` were asked for and `granted` are in force.
    fn lane_with(&self, features: u32, granted: u32) -> TcpStream {
        let mut stream = self.connect();
        let hello = Hello { version: VERSION, features, target_epoch: EPOCH };
        stream.write_all(&hello.encode()).unwrap();
        let welcome = welcome(&mut stream);
        assert_eq!((welcome.status, welcome.features), (WelcomeStatus::Open, granted));
        stream
    }
}

fn hello(version: u16, target_epoch: u64) -> [u8; 64] {
    Hello { version, features: 0, target_epoch }.encode()
}

fn welcome(stream: &mut TcpStream) -> Welcome {
    let mut bytes = [0; WELCOME_LEN];
    stream.read_exact(&mut bytes).unwrap();
    Welcome::decode(&bytes).unwrap()
}

fn answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = [0; ANSWER_LEN];
    stream.read_exact(&mut bytes).unwrap();
    Answer::decode(&bytes).unwrap()
}

fn frame(kind: RequestKind, id: u64, epoch: u64, ranges: &[(u64, u64)], payload: &[u8]) -> Vec<u8> {
    let range = |&(addr, len): &(u64, u64)| Range { addr, len };
    let sum = ranges.iter().map(|(_, len)| len).sum();
    let head =
        Request { kind, count: ranges.len() as u32, id, payload: sum, epoch, first: range(&ranges[0]) };
    let mut bytes = head.encode().to_vec();
    ranges[1..].iter().for_each(|pair| bytes.extend(range(pair).encode()));
    bytes.extend(payload);
    bytes
}

fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_refused_write_changes_nothing_and_the_lane_stays_in_step() {
    let server = Server::new();
    let mut lane = server.lane();
    let good = (server.addr, 4);
    let mut stream = Vec::new();
    stream.extend(frame(RequestKind::Write, 1, EPOCH, &[good, (4096, 8)], b"aaaabbbbbbbb"));
    stream.extend(frame(RequestKind::Write, 2, EPOCH, &[good], b"good"));
    stream.extend(frame(RequestKind::Write, 3, EPOCH + 1, &[good], b"evil"));
    stream.extend(frame(RequestKind::Read, 4, EPOCH, &[(server.addr, 2), (server.addr + 2, 2)], b""));
    // In two halves, cut inside a payload.
    lane.write_all(&stream[..55]).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(server.side.get(server.addr, 4), [0; 4]);
    lane.write_all(&stream[55..]).unwrap();
    let refused = answer(&mut lane);
    assert_eq!((refused.id, refused.status, refused.index), (1, AnswerStatus::Refused, 1));
    assert_eq!(answer(&mut lane).status, AnswerStatus::Ok);
    let other = answer(&mut lane);
    assert_eq!((other.id, other.status), (3, AnswerStatus::Epoch));
    let read = answer(&mut lane);
    assert_eq!((read.status, read.payload), (AnswerStatus::Ok, 4));
    let mut bytes = [0; 4];
    lane.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"good");
}

#[test]
fn another_epoch_or_version_is_told_so_and_nothing_behind_the_hello_is_looked_at() {
    let server = Server::new();
    for (version, epoch, status) in
        [(VERSION, EPOCH + 1, WelcomeStatus::Epoch), (VERSION + 1, EPOCH, WelcomeStatus::Version)]
    {
        let mut lane = server.connect();
        lane.write_all(&hello(version, epoch)).unwrap();
        lane.write_all(&frame(RequestKind::Write, 1, EPOCH, &[(server.addr, 4)], b"evil")).unwrap();
        let welcome = welcome(&mut lane);
        assert_eq!((welcome.status, welcome.epoch), (status, EPOCH));
        assert!(is_closed(&mut lane));
        assert_eq!(server.side.get(server.addr, 4), [0; 4]);
    }
}

#[test]
fn frames_that_break_a_rule_end_the_lane() {
    let server = Server::new();
    let good = frame(RequestKind::Write, 1, EPOCH, &[(server.addr, 4), (server.addr + 8, 4)], b"evilevil");
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let cases = [
        ("kind", with(0, &[9, 0, 0, 0])),
        ("no ranges", with(4, &[0; 4])),
        ("too many ranges", with(4, &[0xff, 0xff, 0, 0])),
        ("payload too large", with(16, &[0xff; 8])),
        ("a sum that is not the payload", with(16, &[9, 0, 0, 0, 0, 0, 0, 0])),
        ("a sum that wraps", with(40, &[0xff; 8])),
        ("a range of length 0", with(40, &[0; 8])),
    ];
    for (name, frame) in cases {
        let mut lane = server.lane();
        let _ = lane.write_all(&frame);
        assert!(is_closed(&mut lane), "{name}");
        assert_eq!(server.side.get(server.addr, 16), [0; 16], "{name}");
    }
}

#[test]
fn a_cancel_drops_the_reads_it_names_and_nothing_else() {
    const COUNT: u64 = 40;
    let server = Server::new();
    let addr = server.side.buffer(&vec![7; 1 << 20]);
    // Nobody here collects traces.
    let mut lane = server.lane_with(FEATURES, FEATURES & !TRACE);
    for id in 1..=COUNT {
        lane.write_all(&frame(RequestKind::Read, id, EPOCH, &[(addr, 1 << 20)], b"")).unwrap();
    }
    // All are taken, and the socket is full of the first answers.
    std::thread::sleep(Duration::from_millis(50));
    lane.write_all(&Cancel { id: COUNT + 1, from: COUNT - 5, epoch: EPOCH }.encode()).unwrap();
    lane.write_all(&frame(RequestKind::Write, COUNT + 2, EPOCH, &[(server.addr, 4)], b"next")).unwrap();
    for id in 1..=COUNT {
        let answer = answer(&mut lane);
        let (status, payload) =
            if id < COUNT - 5 { (AnswerStatus::Ok, 1 << 20) } else { (AnswerStatus::Cancelled, 0) };
        assert_eq!((answer.id, answer.status, answer.payload), (id, status, payload));
        lane.read_exact(&mut vec![0; payload as usize]).unwrap();
    }
    let done = answer(&mut lane);
    assert_eq!((done.kind, done.id, done.status), (AnswerKind::Cancel, COUNT + 1, AnswerStatus::Ok));
    assert_eq!(answer(&mut lane).status, AnswerStatus::Ok);
    assert_eq!(server.side.get(server.addr, 4), b"next");
}

#[test]
fn a_cancel_is_for_lanes_that_asked_for_it_and_for_this_epoch() {
    let server = Server::new();
    let mut lane = server.lane();
    lane.write_all(&Cancel { id: 1, from: 1, epoch: EPOCH }.encode()).unwrap();
    assert!(is_closed(&mut lane));
    let mut lane = server.lane_with(CANCEL, CANCEL);
    lane.write_all(&Cancel { id: 1, from: 1, epoch: EPOCH + 1 }.encode()).unwrap();
    assert_eq!(answer(&mut lane).status, AnswerStatus::Epoch);
    // Nothing to drop, a range of ids that is none: still answered.
    lane.write_all(&Cancel { id: 2, from: u64::MAX, epoch: EPOCH }.encode()).unwrap();
    assert_eq!(answer(&mut lane).status, AnswerStatus::Ok);
}

#[test]
fn an_open_table_or_payload_costs_the_server_no_more_than_what_came() {
    let server = Server::new();
    let ranges: Vec<_> = (0..4096).map(|at| (server.addr + at, 1)).collect();
    let frame = frame(RequestKind::Write, 1, EPOCH, &ranges, &[1; 4096]);
    let lanes: Vec<_> = (0..200)
        .map(|at| {
            let mut lane = server.lane();
            lane.write_all(&frame[..frame.len() * at / 200]).unwrap();
            lane
        })
        .collect();
    let mut honest = server.lane();
    honest.write_all(&short_frame(&server)).unwrap();
    assert_eq!(answer(&mut honest).status, AnswerStatus::Ok);
    drop(lanes);
    // The fence does not wait for lanes that stand still in their payload.
    server.side.free(server.addr);
}

fn short_frame(server: &Server) -> Vec<u8> {
    frame(RequestKind::Write, 1, EPOCH, &[(server.addr + 4100, 4)], b"okay")
}
