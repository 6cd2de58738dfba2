//! What a failure says, and leaves in memory, when it comes in the middle: each was found by the fault suite.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use moonrail_memory::Want;
use moonrail_tcp::{ServerOptions, TcpPath, TcpServer};
use moonrail_transport::testkit::Side;
use moonrail_transport::{Code, Control, Dialect, Entry, Failure, Opcode, Path, Target, Work};

const EPOCH: u64 = 9;

fn execute(
    path: &TcpPath,
    address: SocketAddr,
    dialect: Dialect,
    near: &Side,
    opcode: Opcode,
    entries: &[Entry],
) -> Result<(), Failure> {
    let (name, addresses) = ("far".to_owned(), vec![address]);
    let target = Target { name, addresses, dialect, tls: None, generation: 1, same_host: None };
    let want = if opcode == Opcode::Read { Want::Write } else { Want::Read };
    let holds = near.regions.hold_all(entries.iter().map(|entry| (entry.local, entry.len)), want).unwrap();
    let limit = Duration::from_millis(700);
    let control = Control { deadline: None, connect: limit, progress: limit, stop: &|| None };
    path.execute(&target, &Work { opcode, entries, holds: &holds }, &control)
}

/// Behind the refusal of one frame stand the answers to the frames that were sent ahead.
#[test]
fn answers_behind_a_refused_read_are_not_taken_for_its_payload() {
    let (near, far) = (Side::new(), Side::new());
    let len = 8 << 20;
    let (local, remote) = (near.buffer(&vec![0x55; len]), far.buffer(&vec![1; len]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ServerOptions { epoch: EPOCH, ..ServerOptions::default() };
    let server = TcpServer::start(listener, Arc::clone(&far.regions), options).unwrap();
    far.free(remote);
    let entry = Entry { local, remote, len: len as u64 };
    let path = TcpPath::new(1);
    for _ in 0..20 {
        let dialect = Dialect::Rail { epoch: EPOCH };
        let failure = execute(&path, server.address(), dialect, &near, Opcode::Read, &[entry]).unwrap_err();
        assert_eq!(failure.error.code(), Code::RemoteRefused, "{failure}");
        assert!(near.get(local, len).iter().all(|&byte| byte == 0x55), "protocol bytes in local memory");
    }
}

/// A v1 server that keeps connections: it answers the first one, and resets the others after so many bytes.
fn ends_after(bytes: usize, answers: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            // The two one-byte reads by which the client learns that the connection is kept.
            if nth == 0 {
                for _ in 0..answers {
                    stream.read_exact(&mut [0; 24]).unwrap();
                    std::io::Write::write_all(&mut stream, &[0]).unwrap();
                }
                continue;
            }
            let _ = stream.read_exact(&mut vec![0; bytes]);
        }
    });
    address
}

#[test]
fn what_was_only_sent_to_a_v1_peer_is_not_said_to_be_applied() {
    let near = Side::new();
    let len = 1 << 20;
    let local = near.buffer(&vec![7; 16 * len]);
    let entries: Vec<Entry> = (0..16)
        .map(|at| Entry { local: local + at * len as u64, remote: 4096 + at * len as u64, len: len as u64 })
        .collect();
    let address = ends_after(2 * len, 2);
    let failure =
        execute(&TcpPath::new(1), address, Dialect::MooncakeV1, &near, Opcode::Write, &entries).unwrap_err();
    assert!(failure.error.message().contains("0 of 16 descriptors are known to be applied"), "{failure}");
}

#[test]
fn calls_that_wait_for_the_lane_of_a_silent_peer_end_with_the_call_that_has_it() {
    wait_for_a_silent_peer(64);
}

#[test]
fn large_calls_that_wait_for_the_lane_of_a_silent_peer_end_with_the_call_that_has_it() {
    wait_for_a_silent_peer(8 << 20);
}

/// Each would wait for the peer as long as the one before it.
fn wait_for_a_silent_peer(len: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let lanes = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&lanes);
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            opened.fetch_add(1, Ordering::Relaxed);
            kept.push(stream);
        }
    });
    let near = Side::new();
    let local = near.buffer(&vec![7; len]);
    let path = TcpPath::new(1);
    thread::scope(|scope| {
        let calls: Vec<_> = (0..12)
            .map(|_| {
                let (path, near) = (&path, &near);
                scope.spawn(move || {
                    let entry = Entry { local, remote: 4096, len: len as u64 };
                    execute(path, address, Dialect::Rail { epoch: EPOCH }, near, Opcode::Write, &[entry])
                })
            })
            .collect();
        for call in calls {
            let failure = call.join().unwrap().unwrap_err();
            assert_eq!(failure.error.code(), Code::PeerTimeout, "{failure}");
        }
    });
    // A thread may have begun to wait only behind the first failure.
    assert!(
        lanes.load(Ordering::Relaxed) <= 3,
        "{} lanes, one after the other",
        lanes.load(Ordering::Relaxed)
    );
}

/// The reset looks like the habit of the oldest peers, which close after each request.
#[test]
fn a_connection_that_breaks_while_a_peers_habit_is_learnt_teaches_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut header = [0; 24];
                while stream.read_exact(&mut header).is_ok() {
                    let size = u64::from_le_bytes(header[..8].try_into().unwrap()) as usize;
                    if header[16] == 1 {
                        stream.read_exact(&mut vec![0; size]).unwrap();
                    } else {
                        std::io::Write::write_all(&mut stream, &vec![0; size]).unwrap();
                    }
                    if nth == 0 {
                        return;
                    }
                }
            });
        }
    });
    let near = Side::new();
    let local = near.buffer(&[7; 64]);
    let path = TcpPath::new(1);
    let entry = Entry { local, remote: 4096, len: 64 };
    for _ in 0..3 {
        execute(&path, address, Dialect::MooncakeV1, &near, Opcode::Write, &[entry]).unwrap();
    }
}
