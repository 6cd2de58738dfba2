//! What the tests of this crate share: a time limit, a handler that records, raw sockets, peers that misbehave.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use moonrail_metadata::{HandshakeClient, HandshakeHandler, HandshakeServer, HandshakeTimeouts, Limits};
use moonrail_wire::address::HostPort;
use moonrail_wire::handshake::Notify;
use moonrail_wire::segment::{Buffer, SegmentDescriptor};

pub const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Runs the test on a thread of its own and fails it when it takes longer.
pub fn within(seconds: u64, test: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let worker = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match finished.recv_timeout(Duration::from_secs(seconds)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test took longer than {seconds} s"),
        _ => {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Answers with one descriptor and keeps the notes.
#[derive(Default)]
pub struct Recorder {
    pub descriptor: Mutex<Option<Arc<[u8]>>>,
    pub notes: Mutex<Vec<Notify>>,
    pub callers: Mutex<Vec<Option<String>>>,
    pub refusal: Mutex<Option<String>>,
    pub reject_notes: bool,
}

impl HandshakeHandler for Recorder {
    fn descriptor(&self) -> Option<Arc<[u8]>> {
        self.descriptor.lock().unwrap().clone()
    }

    fn notify(&self, note: Notify) -> Result<(), String> {
        assert_ne!(note.name, "panic", "the test asked for a panic");
        if self.reject_notes {
            return Err("rejecting, as told".to_owned());
        }
        self.notes.lock().unwrap().push(note);
        Ok(())
    }

    fn refuse(&self, caller: Option<&SegmentDescriptor>) -> Option<String> {
        self.callers.lock().unwrap().push(caller.map(|c| c.name.clone()));
        self.refusal.lock().unwrap().clone()
    }
}

pub fn descriptor(name: &str, data_port: u16) -> SegmentDescriptor {
    SegmentDescriptor {
        name: name.to_owned(),
        protocol: "tcp".to_owned(),
        tcp_data_port: data_port,
        tcp_data_host: Some("127.0.0.1".to_owned()),
        tcp_proto_version: 2,
        timestamp: "2026-11-30 22:36:47.592880".to_owned(),
        rdma_server_name: Some(String::new()),
        buffers: vec![Buffer { name: name.to_owned(), addr: 0x7f00_0000_0000, length: 8 << 20 }],
        moonrail: None,
    }
}

/// A handshake server on a free port, whose descriptor carries that port.
pub fn engine(ip: IpAddr) -> (HandshakeServer, Arc<Recorder>, HostPort) {
    engine_with(ip, Limits::default())
}

pub fn engine_with(ip: IpAddr, limits: Limits) -> (HandshakeServer, Arc<Recorder>, HostPort) {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let address = HostPort::new(ip.to_string(), listener.local_addr().unwrap().port());
    let recorder = Arc::new(Recorder::default());
    *recorder.descriptor.lock().unwrap() = Some(descriptor(&address.to_string(), 16792).to_json().into());
    let server = HandshakeServer::start(listener, recorder.clone(), limits).unwrap();
    (server, recorder, address)
}

/// A client with this long for connecting and again for the reply.
pub fn client(milliseconds: u64) -> HandshakeClient {
    let each = Duration::from_millis(milliseconds);
    HandshakeClient::new(HandshakeTimeouts { connect: each, reply: each }, 1 << 20)
}

pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u64 + 1).to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend_from_slice(body);
    bytes
}

pub fn untyped(body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends raw bytes and reads until the other side closes. A reset counts as a close with nothing more.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    let _ = stream.write_all(bytes);
    drain(&mut stream)
}

pub fn drain(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut chunk = [0u8; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return answer,
            Ok(count) => answer.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return answer,
            Err(error) => panic!("the server neither answered nor closed: {error}"),
        }
    }
}

/// A peer that treats each connection as `act` says, for as long as the test process lives.
pub fn peer(act: impl Fn(usize, TcpStream) + Send + 'static) -> HostPort {
    let listener = TcpListener::bind((V4, 0)).unwrap();
    let address = HostPort::new("127.0.0.1", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        for (count, stream) in listener.incoming().enumerate() {
            act(count, stream.unwrap());
        }
    });
    address
}

/// Reads one whole frame, as an honest peer does before it answers.
pub fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0u8; 8];
    if stream.read_exact(&mut length).is_err() {
        return Vec::new();
    }
    let mut body = vec![0u8; usize::try_from(u64::from_le_bytes(length)).unwrap()];
    stream.read_exact(&mut body).unwrap();
    body
}

/// A port on which nothing listens.
pub fn dead_port() -> u16 {
    TcpListener::bind((V4, 0)).unwrap().local_addr().unwrap().port()
}

/// The middle one of five durations: what a call takes, without the hiccups of a busy machine.
pub fn typically(mut call: impl FnMut()) -> Duration {
    let mut taken: Vec<Duration> = (0..5)
        .map(|_| {
            let started = std::time::Instant::now();
            call();
            started.elapsed()
        })
        .collect();
    taken.sort();
    taken[2]
}
