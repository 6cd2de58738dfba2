//! Checksums: a proxy between two engines changes one bit, and neither engine takes it for the bytes that were meant.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

#[path = "tls/support.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use moonrail::{Code, Config, Engine, Entry, Opcode, Request, Retry};
use support::{Directory, LEN, Target, start};

/// Forwards connections to a data port. One bit of the byte at `requests` or `answers` of each is changed; `u64::MAX`: none.
struct Proxy {
    at: SocketAddr,
    requests: Arc<AtomicU64>,
    answers: Arc<AtomicU64>,
}

impl Proxy {
    fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let never = || Arc::new(AtomicU64::new(u64::MAX));
        let proxy = Self { at: listener.local_addr().unwrap(), requests: never(), answers: never() };
        let (requests, answers) = (Arc::clone(&proxy.requests), Arc::clone(&proxy.answers));
        // Ends with the test's process.
        thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(to).unwrap());
                let (back, forth) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (requests, answers) = (Arc::clone(&requests), Arc::clone(&answers));
                thread::spawn(move || carry(near, far, &requests));
                thread::spawn(move || carry(forth, back, &answers));
            }
        });
        proxy
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, flip: &AtomicU64) {
    let (mut passed, mut chunk) = (0_u64, vec![0; 64 << 10]);
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let place = flip.load(Ordering::Relaxed);
        if (passed..passed + count as u64).contains(&place) {
            chunk[(place - passed) as usize] ^= 0x10;
        }
        passed += count as u64;
        if to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// A target behind a proxy, and an initiator that has checksums or not.
fn pair(checksum: bool) -> (Directory, Target, Proxy, Engine) {
    let directory = Directory::new();
    let on_loopback = |config: &mut Config| {
        config.listen = Some(Ipv4Addr::LOCALHOST.into());
        config.checksum = checksum;
    };
    let target = Target::new(start("target", &directory.url, None, on_loopback));
    let data = target.engine.report().unwrap().data;
    let proxy = Proxy::new(data);
    let port = |port| format!(r#""tcp_data_port":{port}"#);
    directory.change("target", |text| text.replace(&port(data.port()), &port(proxy.at.port())));
    let initiator = start("initiator", &directory.url, None, on_loopback);
    (directory, target, proxy, initiator)
}

/// Where the payload of a first call lies: behind hello and head, or behind welcome and head, with room for heads of records.
const IN_PAYLOAD: u64 = 1000;

#[test]
fn a_bit_changed_in_a_write_is_not_stored_and_not_confirmed() {
    let (_directory, target, proxy, initiator) = pair(true);
    proxy.requests.store(IN_PAYLOAD, Ordering::Relaxed);
    let error = target.moved_by(&initiator, Opcode::Write).unwrap_err();
    assert_eq!((error.code(), error.retry()), (Code::ChecksumMismatch, Retry::Unsafe), "{error}");
    assert_eq!(error.peer(), Some("target"));
    assert!(target.bytes().iter().all(|&byte| byte == 0xa5), "nothing of it was stored");
    assert_eq!(target.engine.report().unwrap().bytes_in, 0);
    let told = support::log().lines().filter(|line| line.contains("checksum")).count();
    assert_eq!(told, 1, "{}", support::log());
    // The next call works.
    proxy.requests.store(u64::MAX, Ordering::Relaxed);
    target.moved_by(&initiator, Opcode::Write).unwrap();
    assert_eq!(target.bytes(), [7; LEN as usize]);
}

#[test]
fn a_bit_changed_in_a_read_does_not_reach_local_memory() {
    let (_directory, target, proxy, initiator) = pair(true);
    proxy.answers.store(IN_PAYLOAD, Ordering::Relaxed);
    let error = target.moved_by(&initiator, Opcode::Read).unwrap_err();
    assert_eq!((error.code(), error.retry()), (Code::ChecksumMismatch, Retry::Safe), "{error}");
    proxy.answers.store(u64::MAX, Ordering::Relaxed);
    target.moved_by(&initiator, Opcode::Read).unwrap();
}

#[test]
fn heads_are_checked_as_well() {
    // The head of a record, the head of a frame with its address, the head of an answer.
    for (requests, answers) in [(64, u64::MAX), (64 + 12 + 33, u64::MAX), (u64::MAX, 32 + 12 + 4)] {
        for opcode in [Opcode::Read, Opcode::Write] {
            let (_directory, target, proxy, initiator) = pair(true);
            proxy.requests.store(requests, Ordering::Relaxed);
            proxy.answers.store(answers, Ordering::Relaxed);
            let error = target.moved_by(&initiator, opcode).unwrap_err();
            assert_eq!(error.code(), Code::ChecksumMismatch, "{error}");
            if answers == u64::MAX {
                target.untouched();
            }
        }
    }
}

#[test]
fn without_checksums_the_same_bit_goes_unnoticed() {
    let (_directory, target, proxy, initiator) = pair(false);
    proxy.requests.store(IN_PAYLOAD, Ordering::Relaxed);
    target.moved_by(&initiator, Opcode::Write).unwrap();
    assert_eq!(target.bytes().iter().filter(|&&byte| byte != 7).count(), 1);
}

#[test]
fn batches_and_striped_transfers_arrive_whole() {
    const LARGE: u64 = (40 << 20) + 4321;
    let (_directory, target, _proxy, initiator) = pair(true);
    let pattern: Vec<u8> = (0..LARGE).map(|at| (at / 3 % 251) as u8).collect();
    let (far, near) = (target.engine.allocate(LARGE).unwrap(), initiator.allocate(LARGE).unwrap());
    let whole = vec![Entry { local: near, remote: far, len: LARGE }];
    let lengths = [1, 7, 64, 4095, 16 << 10, 65_535, 65_536, 100_001];
    let mut pieces = Vec::new();
    let mut at = 0;
    for &len in lengths.iter().cycle() {
        let len = len.min(LARGE - at);
        if len == 0 {
            break;
        }
        pieces.push(Entry { local: near + at, remote: far + at, len });
        at += len;
    }
    for entries in [whole, pieces] {
        for _ in 0..2 {
            initiator.write_local(near, &pattern).unwrap();
            initiator.transfer(&Request::new("target", Opcode::Write, entries.clone())).unwrap();
            initiator.write_local(near, &vec![0; LARGE as usize]).unwrap();
            initiator.transfer(&Request::new("target", Opcode::Read, entries.clone())).unwrap();
            let mut bytes = vec![0; LARGE as usize];
            initiator.read_local(near, &mut bytes).unwrap();
            assert!(bytes == pattern, "other bytes");
            target.engine.write_local(far, &vec![0; LARGE as usize]).unwrap();
        }
    }
}
