//! Processes that may not reach each other's memory: the reason is said, and nothing is touched. As root, as the tests of
//! other users need it; elsewhere these do nothing.

use std::process::Command;
use std::sync::Arc;

use moonrail_shm::ShmServer;
use moonrail_transport::testkit::Side;

use crate::support::{NOBODY, Other};

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

fn facts(contact: &str, remote: impl ToString) -> [(&'static str, String); 2] {
    [("CONTACT", contact.to_owned()), ("REMOTE", remote.to_string())]
}

fn fallback(other: &mut Other, reason: &str) {
    let outcome = other.hear("outcome");
    assert!(outcome.starts_with("untouched=true stale=false UNSUPPORTED_PEER"), "{outcome}");
    assert!(outcome.contains(reason), "{outcome}");
    let kept = other.hear("reason");
    assert!(kept.contains(reason), "{kept}");
    assert_eq!(other.hear("forgotten"), "true");
}

#[test]
fn the_kernel_forbids_it() {
    if !root() {
        return;
    }
    // Both without root's privileges: a process that is not dumpable is closed to its own user too.
    let facts_of_target = [("LEN", "4096".to_owned()), ("MUTE", "1".to_owned())];
    let mut closed = Other::start_as(NOBODY, "target", &facts_of_target);
    let (contact, buffer) = (closed.hear("contact"), closed.hear("buffer"));
    let mut initiator = Other::start_as(NOBODY, "once", &facts(&contact, buffer));
    fallback(&mut initiator, "the kernel forbids cross-memory copies");
    closed.tell("get");
    assert_eq!(closed.hear("bytes"), "0");
    // The same without that works.
    let mut open = Other::start_as(NOBODY, "target", &[("LEN", "64".to_owned())]);
    let (contact, buffer) = (open.hear("contact"), open.hear("buffer"));
    assert_eq!(Other::start_as(NOBODY, "once", &facts(&contact, &buffer)).hear("outcome"), "ok");
    open.tell("get");
    assert_eq!(open.hear("bytes"), "7");
}

#[test]
fn another_user() {
    if !root() {
        return;
    }
    let side = Side::new();
    let server = ShmServer::start(Arc::clone(&side.regions), 1).unwrap();
    let buffer = side.buffer(&[0; 64]);
    let contact = server.contact().to_string();
    let mut initiator = Other::start_as(NOBODY, "once", &facts(&contact, buffer));
    fallback(&mut initiator, "runs as user 0");
    // One that does not care is turned away by the target, without a descriptor.
    let answer = Other::start_as(NOBODY, "knock", &facts(&contact, buffer)).hear("answer");
    assert!(answer.starts_with("2 0 ") && answer.contains("the caller as 65534"), "{answer}");
    assert_eq!(side.get(buffer, 64), [0; 64]);
}

#[test]
fn other_namespaces() {
    let side = Side::new();
    let server = ShmServer::start(Arc::clone(&side.regions), 1).unwrap();
    let buffer = side.buffer(&[0; 64]);
    let contact = server.contact().to_string();
    for (option, reason) in [
        ("--pid", "another pid namespace"),
        ("--net", "another network namespace"),
        ("--user", "another user namespace"),
    ] {
        let permitted = Command::new("unshare").args([option, "--fork", "true"]).output();
        if !permitted.is_ok_and(|output| output.status.success()) {
            continue;
        }
        let mut command = Command::new("unshare");
        command.args([option, "--fork"]).arg(std::env::current_exe().unwrap());
        let mut initiator = Other::start_with(command, "once", &facts(&contact, buffer));
        fallback(&mut initiator, reason);
    }
    assert_eq!(side.get(buffer, 64), [0; 64]);
}
