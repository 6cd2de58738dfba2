//! Targets that come, go and come back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_shm::{ShmContact, ShmPath, ShmServer};
use moonrail_transport::testkit::Side;
use moonrail_transport::{Code, Entry, Opcode, Path};

use crate::support::{Other, Way, execute, target};

const LEN: u64 = 300_000;

fn start() -> (Other, String, u64) {
    start_as(Way::Mapped)
}

fn start_as(way: Way) -> (Other, String, u64) {
    let mut facts = vec![("LEN", LEN.to_string())];
    facts.extend(way.fact());
    let mut other = Other::start("target", &facts);
    let contact = other.hear("contact");
    let buffer = other.hear("buffer").parse().unwrap();
    (other, contact, buffer)
}

#[test]
fn bytes_go_there_and_come_back() {
    let (mut other, contact, remote) = start();
    let (near, path, target) = (Side::new(), ShmPath::new(), target(&contact));
    let (local, back) = (near.buffer(&[33; LEN as usize]), near.buffer(&[0; LEN as usize]));
    assert!(path.same_host(&target));
    execute(&path, &target, &near, Opcode::Write, &[Entry { local, remote, len: LEN }]).unwrap();
    other.tell("get");
    assert_eq!(other.hear("bytes"), "33");
    execute(&path, &target, &near, Opcode::Read, &[Entry { local: back, remote, len: LEN }]).unwrap();
    assert!(near.get(back, LEN as usize) == vec![33; LEN as usize]);
    assert_eq!(path.why_not(&target), None);
}

#[test]
fn a_restarted_target_is_noticed_at_once() {
    let (near, path) = (Side::new(), ShmPath::new());
    let local = near.buffer(&[9; 4096]);
    let (mut first, old, remote) = start();
    let entry = |remote| [Entry { local, remote, len: 4096 }];
    execute(&path, &target(&old), &near, Opcode::Write, &entry(remote)).unwrap();
    first.kill();
    drop(first);
    // Over the link that is there, then by a new attempt.
    for _ in 0..2 {
        let since = Instant::now();
        let failure = execute(&path, &target(&old), &near, Opcode::Write, &entry(remote)).unwrap_err();
        assert_eq!(failure.error.code(), Code::PeerGone, "{failure}");
        assert!(failure.untouched && failure.stale, "{failure}");
        assert!(since.elapsed() < Duration::from_millis(100));
    }
    let (_second, new, remote) = start();
    assert_ne!(old, new);
    execute(&path, &target(&new), &near, Opcode::Write, &entry(remote)).unwrap();
}

#[test]
fn a_target_killed_under_load_never_counts_as_a_success() {
    killed_under_load(Way::Across);
}

#[test]
fn a_mapped_target_killed_under_load_never_counts_as_a_success() {
    killed_under_load(Way::Mapped);
}

fn killed_under_load(way: Way) {
    let (near, path) = (Side::new(), ShmPath::new());
    let local = near.buffer(&[9; LEN as usize]);
    for round in 0..10 {
        let (mut other, contact, remote) = start_as(way);
        let (target, entry) = (target(&contact), [Entry { local, remote, len: LEN }]);
        execute(&path, &target, &near, Opcode::Write, &entry).unwrap();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(700 * round));
            other.kill();
            drop(other);
        });
        let failure = loop {
            let dead = killer.is_finished();
            if let Err(failure) = execute(&path, &target, &near, Opcode::Write, &entry) {
                break failure;
            }
            assert!(!dead, "a write to a process that was dead before it began");
        };
        killer.join().unwrap();
        assert_eq!(failure.error.code(), Code::PeerGone, "{failure}");
        assert!(failure.stale);
    }
}

#[test]
fn a_closed_engine_is_gone_though_its_process_lives() {
    let (near, far, path) = (Side::new(), Side::new(), ShmPath::new());
    let (local, remote) = (near.buffer(&[9; 64]), far.buffer(&[0; 64]));
    let server = ShmServer::start(Arc::clone(&far.regions), 1).unwrap();
    let (target, entry) = (target(&server.contact().to_string()), [Entry { local, remote, len: 64 }]);
    execute(&path, &target, &near, Opcode::Write, &entry).unwrap();
    drop(server);
    for _ in 0..2 {
        let failure = execute(&path, &target, &near, Opcode::Write, &entry).unwrap_err();
        assert_eq!(failure.error.code(), Code::PeerGone, "{failure}");
        assert!(failure.untouched && failure.stale, "{failure}");
    }
    far.free(remote);
}

#[test]
fn a_contact_of_another_process_is_found_out() {
    let (_first, first, remote) = start();
    let (_second, second, _) = start();
    let (near, path) = (Side::new(), ShmPath::new());
    let local = near.buffer(&[9; 64]);
    let (first, second): (ShmContact, ShmContact) = (first.parse().unwrap(), second.parse().unwrap());
    // As when a process number, or a socket's name, has come to mean another process.
    let by_number = ShmContact { pid: second.pid, ..first.clone() };
    let by_memory = ShmContact { nonce: first.nonce, ..second.clone() };
    for forged in [by_number, by_memory] {
        let entry = [Entry { local, remote, len: 64 }];
        let failure = execute(&path, &target(&forged.to_string()), &near, Opcode::Write, &entry).unwrap_err();
        assert_eq!(failure.error.code(), Code::PeerGone, "{failure}");
        assert!(failure.untouched && failure.stale, "{failure}");
    }
}

#[test]
fn a_stopped_target_is_written_to_and_a_new_link_to_it_ends_in_time() {
    let (other, contact, remote) = start();
    let (near, path, target) = (Side::new(), ShmPath::new(), target(&contact));
    let local = near.buffer(&[9; 64]);
    let entry = [Entry { local, remote, len: 64 }];
    execute(&path, &target, &near, Opcode::Write, &entry).unwrap();
    other.freeze();
    // Its memory is there all the same.
    execute(&path, &target, &near, Opcode::Write, &entry).unwrap();
    path.forget(&target);
    let since = Instant::now();
    let failure = execute(&path, &target, &near, Opcode::Write, &entry).unwrap_err();
    assert_eq!(failure.error.code(), Code::PeerTimeout, "{failure}");
    assert!(failure.untouched);
    let waited = since.elapsed();
    assert!(waited > Duration::from_secs(4) && waited < Duration::from_secs(6), "{waited:?}");
}
