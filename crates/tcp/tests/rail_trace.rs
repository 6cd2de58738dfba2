//! The trace of a call at its target (docs/rail-protocol.md, section 11): what is counted, and that nobody is told of one who
//! did not ask.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use moonrail_tcp::{ServerOptions, TcpServer, TraceSink, TracedRequests};
use moonrail_transport::Opcode;
use moonrail_transport::testkit::Side;
use moonrail_wire::TraceContext;
use moonrail_wire::rail::{
    ANSWER_LEN, CANCEL, Cancel, FEATURES, Hello, Range, Request, RequestKind, TRACE, Trace, VERSION,
    WELCOME_LEN, Welcome,
};

const EPOCH: u64 = 42;
const PATIENCE: Duration = Duration::from_secs(5);

struct Server {
    side: Side,
    server: TcpServer,
    addr: u64,
    told: Receiver<TracedRequests>,
}

impl Server {
    fn new(traces: bool) -> Self {
        let side = Side::new();
        let addr = side.buffer(&[0; 8192]);
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let sink = TraceSink::new(move |requests| drop(tell.lock().unwrap().send(requests)));
        let options =
            ServerOptions { epoch: EPOCH, traces: traces.then_some(sink), ..ServerOptions::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = TcpServer::start(listener, Arc::clone(&side.regions), options).unwrap();
        Self { side, server, addr, told }
    }

    /// A lane, and the feature bits in force on it.
    fn lane(&self) -> (TcpStream, u32) {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let hello = Hello { version: VERSION, features: FEATURES, target_epoch: EPOCH };
        stream.write_all(&hello.encode()).unwrap();
        let mut bytes = [0; WELCOME_LEN];
        stream.read_exact(&mut bytes).unwrap();
        (stream, Welcome::decode(&bytes).unwrap().features)
    }

    fn write(&self, id: u64, addr: u64, bytes: &[u8]) -> Vec<u8> {
        let (first, payload) = (Range { addr, len: bytes.len() as u64 }, bytes.len() as u64);
        let request = Request { kind: RequestKind::Write, count: 1, id, payload, epoch: EPOCH, first };
        [&request.encode()[..], bytes].concat()
    }

    fn told(&self) -> TracedRequests {
        self.told.recv_timeout(PATIENCE).unwrap()
    }
}

fn context() -> TraceContext {
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap()
}

fn trace(id: u64, payload: u64) -> Vec<u8> {
    Trace { id, payload, context: context() }.encode().to_vec()
}

fn answers(lane: &mut TcpStream, count: usize) {
    lane.read_exact(&mut vec![0; count * ANSWER_LEN]).unwrap();
}

#[test]
fn the_requests_of_a_call_are_counted_up_to_its_last_byte() {
    let server = Server::new(true);
    let (mut lane, features) = server.lane();
    assert_eq!(features & TRACE, TRACE);
    lane.write_all(&trace(1, 12)).unwrap();
    lane.write_all(&server.write(1, server.addr, b"eight by")).unwrap();
    lane.write_all(&server.write(2, server.addr + 100, b"four")).unwrap();
    // Behind it, and no part of it.
    lane.write_all(&server.write(3, server.addr + 200, b"more")).unwrap();
    answers(&mut lane, 3);
    let told = server.told();
    assert_eq!(
        (told.context, told.opcode, told.client),
        (context(), Some(Opcode::Write), lane.local_addr().unwrap())
    );
    assert_eq!((told.requests, told.descriptors, told.bytes, told.refused), (2, 2, 12, 0));
    assert!(!told.unfinished && told.began <= told.ended);
    assert!(server.told.try_recv().is_err());
    assert_eq!(server.side.get(server.addr, 8), b"eight by");
}

#[test]
fn a_refusal_is_counted_and_the_lane_stays_in_step() {
    let server = Server::new(true);
    let (mut lane, _) = server.lane();
    lane.write_all(&trace(1, 4)).unwrap();
    lane.write_all(&server.write(1, 4096, b"evil")).unwrap();
    lane.write_all(&server.write(2, server.addr, b"good")).unwrap();
    answers(&mut lane, 2);
    let told = server.told();
    assert_eq!((told.requests, told.bytes, told.refused, told.unfinished), (1, 0, 1, false));
    assert_eq!(server.side.get(server.addr, 4), b"good");
}

#[test]
fn what_ends_early_is_told_as_that() {
    let server = Server::new(true);
    let (mut lane, features) = server.lane();
    assert_eq!(features & CANCEL, CANCEL);
    lane.write_all(&trace(1, 100)).unwrap();
    lane.write_all(&Cancel { id: 1, from: 1, epoch: EPOCH }.encode()).unwrap();
    answers(&mut lane, 1);
    assert!(server.told().unfinished);
    // Another call begins, and its client is lost.
    lane.write_all(&[trace(2, 100), server.write(2, server.addr, b"part")].concat()).unwrap();
    answers(&mut lane, 1);
    drop(lane);
    let told = server.told();
    assert_eq!((told.bytes, told.unfinished), (4, true));
}

#[test]
fn a_frame_that_names_no_trace_is_taken_and_told_to_nobody() {
    let server = Server::new(true);
    let (mut lane, _) = server.lane();
    let nothing = TraceContext { trace_id: [0; 16], span_id: [0; 8], flags: 0 };
    lane.write_all(&Trace { id: u64::MAX, payload: u64::MAX, context: nothing }.encode()).unwrap();
    lane.write_all(&server.write(1, server.addr, b"good")).unwrap();
    answers(&mut lane, 1);
    drop(lane);
    assert!(server.told.recv_timeout(Duration::from_millis(100)).is_err());
}

#[test]
fn a_target_that_collects_no_traces_takes_none() {
    let server = Server::new(false);
    let (mut lane, features) = server.lane();
    assert_eq!(features & TRACE, 0);
    lane.write_all(&[trace(1, 4), server.write(1, server.addr, b"evil")].concat()).unwrap();
    assert!(matches!(lane.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert_eq!(server.side.get(server.addr, 4), [0; 4]);
}
