//! Attempts to have bytes spoken in clear: by callers, by a descriptor that was changed, and by what stands on the way.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use moonrail::{Code, Notify, Opcode};

use crate::authority::Authority;
use crate::support::{Directory, Target, engine, start, told};

#[test]
fn strangers_in_clear_are_kept_out_and_told_why() {
    let authority = Authority::new();
    let target = Target::new(engine(Some(authority.issue("one")), ""));
    target.bars(&engine(None, ""), Code::TlsRequired);
    let keyed = start("127.0.0.1", "P2PHANDSHAKE", None, |config| {
        config.key = Some(moonrail::KeySource::text("the test", "a key is no certificate"));
    });
    target.bars(&keyed, Code::TlsRequired);
    let error = engine(None, "").notify(target.engine.name(), &Notify::default()).unwrap_err();
    assert_eq!(error.code(), Code::NotifyRejected, "{error}");
    assert!(target.engine.take_notifies().is_empty());
    // That it lives is told to everybody.
    engine(None, "").probe(target.engine.name()).unwrap();
    // The data port by itself.
    let directory = Directory::new();
    let target = Target::new(start("sealed", &directory.url, Some(authority.issue("two")), |_| {}));
    target.bars(&start("stranger", &directory.url, None, |_| {}), Code::TlsRequired);
}

#[test]
fn a_member_says_nothing_in_clear_unless_that_is_allowed() {
    let authority = Authority::new();
    let plain = Target::new(engine(None, ""));
    plain.bars(&engine(Some(authority.issue("one")), ""), Code::TlsNotOffered);
    for allow in ["clear", "mooncake"] {
        let lenient = engine(Some(authority.issue("two")), allow);
        plain.moved_by(&lenient, Opcode::Write).unwrap();
        let open = Target::new(lenient);
        open.moved_by(&engine(None, ""), Opcode::Read).unwrap();
        open.moved_by(&engine(Some(authority.issue("three")), ""), Opcode::Write).unwrap();
    }
    let shared = Target::new(engine(Some(authority.issue("four")), "same-host"));
    assert_eq!(shared.engine.report().unwrap().paths, ["shm", "tcp"]);
}

#[test]
fn a_descriptor_that_was_talked_down_is_not_believed() {
    for down in [
        // The feature bit of TLS, the rail protocol, all that is Moonrail's.
        |text: String| text.replace(r#""features":13"#, r#""features":5"#),
        |text: String| text.replace(r#""rail":"#, r#""rain":"#),
        |text: String| text.replace(r#""moonrail":"#, r#""moonrain":"#),
    ] {
        let authority = Authority::new();
        let directory = Directory::new();
        let target = Target::new(start("sealed", &directory.url, Some(authority.issue("one")), |_| {}));
        directory.change("sealed", down);
        let member = start("member", &directory.url, Some(authority.issue("two")), |_| {});
        target.bars(&member, Code::TlsNotOffered);
    }
}

#[test]
fn genuine_bytes_on_both_ports_touch_nothing() {
    let authority = Authority::new();
    let target = Target::new(engine(Some(authority.issue("one")), ""));
    let report = target.engine.report().unwrap();
    for opcode in [0x80_u8, 0x81, 0, 1] {
        let mut request = Vec::from(4_u64.to_le_bytes());
        request.extend(target.addr.to_le_bytes());
        request.extend([opcode, 0, 0, 0, 0, 0, 0, 0]);
        request.extend(b"evil");
        let (caller, answer) = say(report.data, &request);
        assert!(answer.len() <= 8, "nothing was read: {answer:02x?}");
        assert!(told(caller).contains("knows no TLS"), "{}", told(caller));
    }
    for (kind, body) in [(1_u8, "{}"), (2, r#"{"name":"n","notify_msg":"m"}"#), (0, "{}")] {
        let mut frame = Vec::from((body.len() as u64 + 1).to_le_bytes());
        frame.push(kind);
        frame.extend(body.bytes());
        let (caller, answer) = say(report.handshake, &frame);
        assert!(!String::from_utf8_lossy(&answer).contains("buffers"));
        assert!(told(caller).contains("speaks in clear"), "{}", told(caller));
    }
    assert!(target.engine.take_notifies().is_empty());
    assert!(target.bytes().iter().all(|&byte| byte == 0xa5));
}

/// Whoever stands on the way can close on TLS, or answer in clear: neither makes an engine speak in clear.
#[test]
fn what_stands_on_the_way_cannot_strip_tls() {
    let authority = Authority::new();
    let member = engine(Some(authority.issue("one")), "");
    let refusal = br#"{"refused":"TLS is broken here, use clear text","code":"KEY_REQUIRED"}"#;
    let frame = [&(refusal.len() as u64 + 1).to_le_bytes()[..], &[1], refusal].concat();
    for answer in [Vec::new(), frame, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let (heard, hears) = std::sync::mpsc::channel();
        let proxy = std::thread::spawn(move || {
            // Twice: a peer that closes is asked once more.
            for stream in listener.incoming().take(2) {
                let mut stream = stream.unwrap();
                let mut begun = [0; 6];
                stream.read_exact(&mut begun).unwrap();
                heard.send(begun).unwrap();
                let _ = stream.write_all(&answer);
            }
        });
        let error = member.first_buffer(&name).unwrap_err();
        assert_eq!(error.code(), Code::TlsNotOffered, "{error}");
        drop(TcpStream::connect(&name));
        while let Ok(begun) = hears.recv_timeout(Duration::from_millis(500)) {
            assert!(matches!(begun, [0x16, 3, _, _, _, 1]), "{begun:02x?}");
        }
        drop(proxy);
    }
}

fn say(at: SocketAddr, bytes: &[u8]) -> (SocketAddr, Vec<u8>) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let caller = stream.local_addr().unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    // A reset is a refusal as well.
    let _ = stream.read_to_end(&mut answer);
    (caller, answer)
}
