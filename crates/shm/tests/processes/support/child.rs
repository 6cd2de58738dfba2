//! What the children do.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_shm::{ShmContact, ShmPath, ShmServer};
use moonrail_sys::local_socket;
use moonrail_sys::poll::wait_readable;
use moonrail_transport::testkit::Side;
use moonrail_transport::{Entry, Opcode, Path};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::{execute, target};

pub(crate) fn run() {
    match std::env::var("MOONRAIL_TEST_ROLE").as_deref() {
        Ok("target") => be_target(),
        Ok("writer") => be_writer(),
        Ok("once") => try_once(),
        Ok("knock") => knock(),
        Ok(other) => panic!("no such role: {other}"),
        Err(_) => {}
    }
}

fn say(key: &str, what: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "@{key} {what}").unwrap();
    out.flush().unwrap();
}

fn fact(key: &str) -> String {
    std::env::var(key).unwrap_or_else(|_| panic!("{key} is not set"))
}

fn number(key: &str) -> u64 {
    fact(key).parse().unwrap()
}

/// Memory that other processes can map, unless PRIVATE is set.
fn side() -> Side {
    if std::env::var_os("PRIVATE").is_some() { Side::private() } else { Side::new() }
}

/// Serves one buffer of LEN bytes. Told `get`, says the buffer's bytes if they are all the same; told `mute`, makes
/// itself unreachable for copies. Told `more`, allocates another such buffer, which is the one then; told `free`, frees it;
/// told `files`, says how many descriptors it has.
fn be_target() {
    let side = side();
    let len = number("LEN") as usize;
    let mut buffer = side.buffer(&vec![0; len]);
    let server = ShmServer::start(Arc::clone(&side.regions), 1).unwrap();
    if std::env::var_os("MUTE").is_some() {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
    }
    say("contact", server.contact());
    say("buffer", buffer);
    for line in std::io::stdin().lock().lines() {
        match line.unwrap().as_str() {
            "get" => {
                let bytes = side.get(buffer, len);
                say(
                    "bytes",
                    if bytes.iter().all(|&byte| byte == bytes[0]) {
                        bytes[0].to_string()
                    } else {
                        "mixed".into()
                    },
                );
            }
            "mute" => {
                set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
                say("done", "");
            }
            "more" => {
                buffer = side.buffer(&vec![0; len]);
                say("buffer", buffer);
            }
            "free" => {
                side.free(buffer);
                say("done", "");
            }
            "files" => say("files", std::fs::read_dir("/proc/self/fd").unwrap().count()),
            other => panic!("no such order: {other}"),
        }
    }
}

/// Writes BYTE all over LEN bytes at REMOTE, again and again, whatever comes back.
fn be_writer() {
    let near = side();
    let len = number("LEN");
    let local = near.buffer(&vec![number("BYTE") as u8; len as usize]);
    let (path, target) = (ShmPath::new(), target(&fact("CONTACT")));
    let entry = Entry { local, remote: number("REMOTE"), len };
    // The answer to the question for its memory may take a while on a loaded machine.
    let (mappable, since) = (std::env::var_os("PRIVATE").is_none(), Instant::now());
    loop {
        execute(&path, &target, &near, Opcode::Write, &[entry]).unwrap();
        let mapped = path.mapped_bytes(&target) > 0;
        if mapped || !mappable || since.elapsed() > Duration::from_secs(5) {
            break;
        }
    }
    say("running", path.mapped_bytes(&target));
    loop {
        if let Err(failure) = execute(&path, &target, &near, Opcode::Write, &[entry])
            && failure.error.code() == moonrail_transport::Code::PeerGone
        {
            return;
        }
    }
}

/// Writes 64 bytes at REMOTE and says how that ended.
fn try_once() {
    let near = Side::new();
    let local = near.buffer(&[7; 64]);
    let (path, target) = (ShmPath::new(), target(&fact("CONTACT")));
    let entry = Entry { local, remote: number("REMOTE"), len: 64 };
    let outcome = execute(&path, &target, &near, Opcode::Write, &[entry]);
    let text = match outcome {
        Ok(()) => "ok".to_owned(),
        Err(failure) => {
            let (untouched, stale) = (failure.untouched, failure.stale);
            format!("untouched={untouched} stale={stale} {failure}")
        }
    };
    say("outcome", text);
    say("reason", path.why_not(&target).unwrap_or_default());
    path.forget(&target);
    say("forgotten", path.why_not(&target).is_none());
}

/// Connects to the target's socket without looking who it is, and says the first byte of the answer, and how many
/// descriptors came with it.
fn knock() {
    let contact: ShmContact = fact("CONTACT").parse().unwrap();
    let socket = local_socket::connect(contact.socket.as_bytes()).unwrap();
    wait_readable(&socket, None).unwrap();
    let mut bytes = [0; 512];
    let (len, fds) = local_socket::receive(&socket, &mut bytes).unwrap();
    say("answer", format!("{} {} {}", bytes[0], fds.len(), String::from_utf8_lossy(&bytes[1..len])));
}
