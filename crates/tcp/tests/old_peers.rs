//! Our client against peers that close after each request (up to 0.3.9), that keep the connection without a
//! status (0.3.10, 0.3.11), that die, stall or talk nonsense. The peers here are small servers of the test's own;
//! the genuine releases are driven in tests/interop.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use moonrail_tcp::TcpPath;
use moonrail_transport::testkit::Side;
use moonrail_transport::{Code, Control, Dialect, Entry, Failure, Opcode, Path, Target, Work};

type Memory = Arc<Mutex<Vec<u8>>>;

/// What a peer of the test does with one connection; addresses are offsets into its memory.
#[derive(Clone, Copy, PartialEq)]
enum Habit {
    /// One request, then an orderly close (up to 0.3.9).
    ClosesEach,
    /// Requests in order on a kept connection (0.3.10, 0.3.11).
    KeepsOpen,
    /// Takes the header of a write and dies with the payload unread.
    DiesInPayload,
    /// Takes everything and answers nothing, ever.
    Mute,
    /// Answers a status that is none.
    Nonsense,
}

fn peer(habit: Habit, len: usize) -> (SocketAddr, Memory, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let memory: Memory = Arc::new(Mutex::new(vec![0; len]));
    let connections = Arc::new(AtomicUsize::new(0));
    let (served, count) = (Arc::clone(&memory), Arc::clone(&connections));
    thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::Relaxed);
            let memory = Arc::clone(&served);
            thread::spawn(move || serve(stream.unwrap(), habit, &memory));
        }
    });
    (address, memory, connections)
}

fn serve(mut stream: TcpStream, habit: Habit, memory: &Memory) {
    loop {
        let mut header = [0u8; 24];
        if stream.read_exact(&mut header).is_err() {
            return;
        }
        let size = u64::from_le_bytes(header[..8].try_into().unwrap()) as usize;
        let addr = u64::from_le_bytes(header[8..16].try_into().unwrap()) as usize;
        let write = header[16] & 0x7f == 1;
        match habit {
            Habit::Mute => {
                let _ = stream.read_to_end(&mut Vec::new());
                return;
            }
            Habit::DiesInPayload if write => return,
            Habit::Nonsense => {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                return;
            }
            _ => {}
        }
        if write {
            let mut payload = vec![0; size];
            if stream.read_exact(&mut payload).is_err() {
                return;
            }
            memory.lock().unwrap()[addr..addr + size].copy_from_slice(&payload);
        } else {
            let payload = memory.lock().unwrap()[addr..addr + size].to_vec();
            if stream.write_all(&payload).is_err() {
                return;
            }
        }
        if habit == Habit::ClosesEach {
            return;
        }
    }
}

fn run(
    address: SocketAddr,
    dialect: Dialect,
    near: &Side,
    opcode: Opcode,
    entries: &[Entry],
) -> Result<(), Failure> {
    let path = TcpPath::new(4);
    let target = Target {
        name: "old peer".to_owned(),
        addresses: vec![address],
        dialect,
        tls: None,
        generation: 1,
        same_host: None,
    };
    let want = match opcode {
        Opcode::Read => moonrail_memory::Want::Write,
        Opcode::Write => moonrail_memory::Want::Read,
    };
    let holds = near.regions.hold_all(entries.iter().map(|entry| (entry.local, entry.len)), want).unwrap();
    let limit = Duration::from_millis(800);
    let control = Control { deadline: None, connect: limit, progress: limit, stop: &|| None };
    path.execute(&target, &Work { opcode, entries, holds: &holds }, &control)
}

fn scattered(local: u64, count: u64, len: u64) -> Vec<Entry> {
    (0..count).map(|at| Entry { local: local + at * len, remote: (at * 7 % count) * len, len }).collect()
}

fn moves_bytes_both_ways(habit: Habit) {
    let (near, count, len) = (Side::new(), 50u64, 3000u64);
    let total = (count * len) as usize;
    let (address, memory, _) = peer(habit, total);
    let bytes: Vec<u8> = (0..total).map(|at| (at * 13 % 251) as u8).collect();
    let local = near.buffer(&bytes);
    let entries = scattered(local, count, len);
    run(address, Dialect::MooncakeV1, &near, Opcode::Write, &entries).unwrap();
    // Confirmed means stored: no waiting here.
    let there = memory.lock().unwrap().clone();
    for entry in &entries {
        let (from, to) = ((entry.local - local) as usize, entry.remote as usize);
        assert!(bytes[from..from + len as usize] == there[to..to + len as usize]);
    }
    let back = near.buffer(&vec![0; total]);
    let reads: Vec<_> =
        entries.iter().map(|entry| Entry { local: entry.local - local + back, ..*entry }).collect();
    run(address, Dialect::MooncakeV1, &near, Opcode::Read, &reads).unwrap();
    assert!(near.get(back, total) == bytes);
}

#[test]
fn a_peer_that_closes_after_each_request_is_served_one_connection_each() {
    moves_bytes_both_ways(Habit::ClosesEach);
}

#[test]
fn a_peer_that_keeps_the_connection_is_confirmed_by_reading_back() {
    moves_bytes_both_ways(Habit::KeepsOpen);
}

#[test]
fn which_rule_holds_is_learnt_once_for_each_batch_of_a_new_path() {
    let near = Side::new();
    let local = near.buffer(&[5; 64]);
    for (habit, expected) in [(Habit::KeepsOpen, 2), (Habit::ClosesEach, 6)] {
        let (address, _, connections) = peer(habit, 64);
        run(address, Dialect::MooncakeV1, &near, Opcode::Write, &scattered(local, 4, 16)).unwrap();
        assert_eq!(connections.load(Ordering::Relaxed), expected);
    }
}

#[test]
fn a_v1_write_whose_payload_was_not_taken_is_a_failure() {
    let near = Side::new();
    for len in [16u64, 4 << 20] {
        let local = near.buffer(&vec![7; len as usize]);
        let (address, memory, _) = peer(Habit::DiesInPayload, len as usize);
        let entry = Entry { local, remote: 0, len };
        let failure = run(address, Dialect::MooncakeV1, &near, Opcode::Write, &[entry]).unwrap_err();
        assert!(matches!(failure.error.code(), Code::PeerGone | Code::Unconfirmed), "{failure}");
        assert!(memory.lock().unwrap().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_peer_that_dies_in_a_v2_write_is_named_as_gone() {
    let near = Side::new();
    let len = 32 << 20;
    let local = near.buffer(&vec![7; len as usize]);
    let (address, ..) = peer(Habit::DiesInPayload, 64);
    let failure = run(address, Dialect::MooncakeV2, &near, Opcode::Write, &[Entry { local, remote: 0, len }])
        .unwrap_err();
    assert_eq!(failure.error.code(), Code::PeerGone, "{failure}");
    assert!(failure.stale);
}

#[test]
fn a_mute_peer_costs_the_progress_limit_and_no_more() {
    let near = Side::new();
    let local = near.buffer(&[7; 64]);
    for dialect in [Dialect::MooncakeV1, Dialect::MooncakeV2] {
        for opcode in [Opcode::Read, Opcode::Write] {
            let (address, ..) = peer(Habit::Mute, 64);
            let since = Instant::now();
            let failure =
                run(address, dialect, &near, opcode, &[Entry { local, remote: 0, len: 64 }]).unwrap_err();
            assert_eq!(failure.error.code(), Code::PeerTimeout, "{failure}");
            assert!(since.elapsed() < Duration::from_millis(1500));
        }
    }
}

#[test]
fn a_status_that_is_none_is_a_protocol_error_that_shows_the_bytes() {
    let near = Side::new();
    let local = near.buffer(&[7; 64]);
    let (address, ..) = peer(Habit::Nonsense, 64);
    let failure =
        run(address, Dialect::MooncakeV2, &near, Opcode::Read, &[Entry { local, remote: 0, len: 64 }])
            .unwrap_err();
    assert_eq!(failure.error.code(), Code::ProtocolError, "{failure}");
    assert!(failure.to_string().contains("48, 54, 54, 50"), "{failure}");
}

#[test]
fn unregistering_local_memory_does_not_wait_for_a_mute_peer() {
    for dialect in [Dialect::MooncakeV1, Dialect::MooncakeV2, Dialect::Rail { epoch: 1 }] {
        let near = Side::new();
        let local = near.buffer(&[7; 64]);
        let (address, ..) = peer(Habit::Mute, 64);
        thread::scope(|scope| {
            let near = &near;
            let call = scope.spawn(move || {
                run(address, dialect, near, Opcode::Write, &[Entry { local, remote: 0, len: 64 }])
            });
            thread::sleep(Duration::from_millis(50));
            let since = Instant::now();
            near.free(local);
            assert!(since.elapsed() < Duration::from_millis(500));
            assert_eq!(call.join().unwrap().unwrap_err().error.code(), Code::Cancelled);
        });
    }
}
