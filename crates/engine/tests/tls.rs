//! Engines with TLS, over real sockets: that bytes arrive whole, who is turned away and by which code, what the log says of it,
//! and that the memory of an engine stays as it was.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "../../access/tests/support/authority.rs"]
mod authority;
#[path = "tls/downgrade.rs"]
mod downgrade;
#[path = "tls/strangers.rs"]
mod strangers;
#[path = "tls/support.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use authority::{Authority, Wish};
use moonrail::{Code, Config, Entry, KeySource, Notify, Opcode, Request, TlsSource};
use rcgen::ExtendedKeyUsagePurpose;
use support::{Directory, LEN, Target, engine, log_of, start, told};

const KEY: &str = "the shared key of these tests";

#[test]
fn members_reach_each_other_in_tls_and_over_tcp_only() {
    let authority = Authority::new();
    for key in [None, Some(KEY)] {
        let make = |name| {
            start("127.0.0.1", "P2PHANDSHAKE", Some(authority.issue(name)), |config| {
                config.key = key.map(|key| KeySource::text("the test", key));
            })
        };
        let (target, initiator) = (Target::new(make("one")), make("two"));
        assert_eq!(target.engine.report().unwrap().paths, ["tcp"]);
        target.moved_by(&initiator, Opcode::Read).unwrap();
        target.moved_by(&initiator, Opcode::Write).unwrap();
        assert!(target.bytes().iter().all(|&byte| byte == 7));
        initiator.notify(target.engine.name(), &Notify { name: "a".into(), message: "b".into() }).unwrap();
        assert_eq!(target.engine.take_notifies().len(), 1);
        assert_eq!(initiator.peer(target.engine.name()).unwrap().dialect, "rail");
        initiator.probe(target.engine.name()).unwrap();
    }
}

#[test]
fn batches_and_striped_transfers_arrive_whole() {
    const LARGE: u64 = (40 << 20) + 4321;
    let authority = Authority::new();
    let (target, initiator) =
        (engine(Some(authority.issue("one")), ""), engine(Some(authority.issue("two")), ""));
    let pattern: Vec<u8> = (0..LARGE).map(|at| (at / 3 % 251) as u8).collect();
    let (far, near) = (target.allocate(LARGE).unwrap(), initiator.allocate(LARGE).unwrap());
    let check = |at: u64, engine: &moonrail::Engine| {
        let mut bytes = vec![0; LARGE as usize];
        engine.read_local(at, &mut bytes).unwrap();
        assert!(bytes == pattern, "other bytes");
        engine.write_local(at, &vec![0; LARGE as usize]).unwrap();
    };
    let one = vec![Entry { local: near, remote: far, len: LARGE }];
    // Pieces of every length around the sizes that records and copies have.
    let mut many = Vec::new();
    let mut at = 0;
    for nth in 0.. {
        let len = [1, 7, 64, 4095, 16 << 10, (16 << 10) + 1, 65_535, 100_001][nth % 8].min(LARGE - at);
        if len == 0 {
            break;
        }
        many.push(Entry { local: near + at, remote: far + at, len });
        at += len;
    }
    for entries in [one, many] {
        // More than once, so that more lanes are tried.
        for _ in 0..3 {
            initiator.write_local(near, &pattern).unwrap();
            initiator.transfer(&Request::new(target.name(), Opcode::Write, entries.clone())).unwrap();
            initiator.write_local(near, &vec![0; LARGE as usize]).unwrap();
            initiator.transfer(&Request::new(target.name(), Opcode::Read, entries.clone())).unwrap();
            check(near, &initiator);
            check(far, &target);
        }
    }
}

/// With a metadata server an engine listens, and is reached, where it is told to.
fn on_loopback(config: &mut Config) {
    config.listen = Some(Ipv4Addr::LOCALHOST.into());
}

/// What is wrong with the target's and the initiator's certificates, and how that ends.
struct Case {
    target: TlsSource,
    initiator: TlsSource,
    code: Code,
    /// Part of what the target logs.
    log: &'static str,
}

#[test]
fn who_is_not_believed_reads_and_writes_nothing() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let strange = |mut source: TlsSource, ca: &TlsSource| {
        source.ca.clone_from(&ca.ca);
        source
    };
    let wish = |wish: Wish<'static>, name: &str| ours.issue_as(name, &wish);
    let good = || ours.issue("good");
    let server_only = [ExtendedKeyUsagePurpose::ServerAuth];
    let cases = [
        // The initiator does not believe the target's authority, name, dates.
        Case { target: theirs.issue("other"), initiator: good(), code: Code::TlsUntrusted, log: "UnknownCA" },
        Case {
            target: wish(Wish { names: &["elsewhere.test"], ..Wish::default() }, "named"),
            initiator: good(),
            code: Code::TlsUntrusted,
            log: "BadCertificate",
        },
        Case {
            target: wish(Wish { expired: true, ..Wish::default() }, "late"),
            initiator: good(),
            code: Code::TlsUntrusted,
            log: "CertificateExpired",
        },
        // The target does not believe the initiator's authority, dates, usages.
        Case {
            target: good(),
            initiator: strange(theirs.issue("stranger"), &good()),
            code: Code::TlsRefused,
            log: "no authority in the CA files",
        },
        Case {
            target: good(),
            initiator: wish(Wish { expired: true, ..Wish::default() }, "late-caller"),
            code: Code::TlsRefused,
            log: "it has expired",
        },
        Case {
            target: good(),
            initiator: ours.issue_as("server-only", &Wish { usages: &server_only, ..Wish::default() }),
            code: Code::TlsRefused,
            log: "extended key usage",
        },
        // A key that is not pinned, on either side.
        Case {
            target: good(),
            initiator: TlsSource { pins: Some(theirs.pins("stranger")), ..ours.issue("pinning") },
            code: Code::TlsUntrusted,
            log: "alert",
        },
        Case {
            target: TlsSource { ca: Vec::new(), pins: Some(theirs.pins("stranger")), ..ours.issue("pinned") },
            initiator: good(),
            code: Code::TlsRefused,
            log: "none of the pinned ones",
        },
    ];
    for (nth, case) in cases.into_iter().enumerate() {
        // Peer-to-peer it is found on the handshake port, with a metadata server on the data port.
        let directory = Directory::new();
        for metadata in ["P2PHANDSHAKE", &directory.url] {
            let name = if metadata == directory.url { "target" } else { "127.0.0.1" };
            let target = Target::new(start(name, metadata, Some(case.target.clone()), on_loopback));
            let name = if metadata == directory.url { "initiator" } else { "127.0.0.1" };
            let initiator = start(name, metadata, Some(case.initiator.clone()), on_loopback);
            let before = log_of(&target).len();
            target.bars(&initiator, case.code);
            let lines = log_of(&target);
            let new: Vec<&String> = lines.iter().skip(before).collect();
            assert_eq!(new.len(), 2, "case {nth}: one for the read, one for the write: {new:#?}");
            assert!(new.iter().all(|line| line.contains(case.log)), "case {nth}: {new:#?}");
        }
    }
}

#[test]
fn pinned_keys_need_no_authority_and_a_name_may_stand_for_all_hosts() {
    let authority = Authority::new();
    let named = Wish { names: &["moonrail.test"], ..Wish::default() };
    let (one, two) = (authority.issue_as("one", &named), authority.issue_as("two", &named));
    let pinned = |source: &TlsSource, peer: &str| TlsSource {
        ca: Vec::new(),
        pins: Some(authority.pins(peer)),
        ..source.clone()
    };
    let target = Target::new(engine(Some(pinned(&one, "two")), ""));
    target.moved_by(&engine(Some(pinned(&two, "one")), ""), Opcode::Write).unwrap();
    let expects = |source: &TlsSource| TlsSource { name: Some("moonrail.test".to_owned()), ..source.clone() };
    let target = Target::new(engine(Some(expects(&one)), ""));
    target.moved_by(&engine(Some(expects(&two)), ""), Opcode::Read).unwrap();
    target.moved_by(&engine(Some(two), ""), Opcode::Read).unwrap_err();
}

#[test]
fn certificates_are_replaced_under_running_engines() {
    let (old, new) = (Authority::new(), Authority::new());
    let (theirs, ours) = (old.issue("theirs"), old.issue("ours"));
    let target = Target::new(engine(Some(theirs.clone()), ""));
    let initiator = engine(Some(ours.clone()), "");
    let go_on = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        // Transfers run all the while, on lanes that are open.
        let busy = scope.spawn(|| {
            let mut count = 0;
            while go_on.load(std::sync::atomic::Ordering::Relaxed) {
                target.moved_by(&initiator, Opcode::Write).unwrap();
                count += 1;
            }
            count
        });
        // Another authority, in its files; what is broken in between changes nothing.
        old.put("theirs.pem", "no certificate", 0o644);
        Target::new(engine(Some(old.issue("third")), "")).moved_by(&initiator, Opcode::Read).unwrap();
        target.moved_by(&engine(Some(old.issue("fourth")), ""), Opcode::Read).unwrap();
        let text = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
        let fresh = new.issue("fresh");
        let authorities = format!("{}{}", text(&old.issue("any").ca[0]), text(&fresh.ca[0]));
        old.put("ca.pem", &authorities, 0o644);
        old.put("theirs.pem", &text(&fresh.cert), 0o644);
        old.put("theirs.key", &text(&fresh.key), 0o600);
        // A caller that knows the new authority alone.
        let mut late = old.issue("late");
        late.ca.clone_from(&fresh.ca);
        target.moved_by(&engine(Some(late), ""), Opcode::Read).unwrap();
        go_on.store(false, std::sync::atomic::Ordering::Relaxed);
        assert!(busy.join().unwrap() > 0);
    });
    let broken = support::log().lines().filter(|line| line.contains("theirs.pem")).count();
    assert!(broken >= 1, "it is told that the new certificate cannot be used");
}

#[test]
fn certificates_that_cannot_be_used_stop_the_engine_from_starting() {
    let authority = Authority::new();
    let good = authority.issue("good");
    let other = authority.issue("other");
    let cases = [
        (TlsSource { ca: Vec::new(), ..good.clone() }, "something to check peers against"),
        (TlsSource { key: other.key.clone(), ..good.clone() }, "good.pem"),
        (TlsSource { cert: good.key.clone(), ..good.clone() }, "no certificate"),
        (TlsSource { key: good.cert.clone(), ..good.clone() }, "mode 0644"),
        (TlsSource { key: authority.put("empty", "", 0o600), ..good.clone() }, "no private key"),
        (TlsSource { ca: vec![authority.put("open", "", 0o666)], ..good.clone() }, "mode 0666"),
        (TlsSource { pins: Some(authority.put("pin", "abc", 0o644)), ..good.clone() }, "64 hexadecimal"),
        (TlsSource { cert: "/nowhere/at/all".into(), ..good }, "No such file"),
    ];
    for (source, part) in cases {
        let mut config = moonrail::Config::new("127.0.0.1", "P2PHANDSHAKE");
        config.tls = Some(source);
        let error = moonrail::Engine::start(config).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.to_string().contains("PRIVATE"), "{error}");
    }
}

#[test]
fn garbage_and_halves_of_tls_delay_nobody_and_are_told_once() {
    let authority = Authority::new();
    let target = Target::new(engine(Some(authority.issue("one")), ""));
    let initiator = engine(Some(authority.issue("two")), "");
    let report = target.engine.report().unwrap();
    // Callers that begin TLS and say no more, on both ports.
    let idle: Vec<TcpStream> = [report.data, report.handshake]
        .into_iter()
        .flat_map(|at| {
            (0..40).map(move |nth| {
                let mut stream = TcpStream::connect(at).unwrap();
                stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc][..1 + nth % 9]).unwrap();
                stream
            })
        })
        .collect();
    for at in [report.data, report.handshake] {
        for begun in [
            // A ClientHello that is none, and a record longer than any may be.
            [0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0].to_vec(),
            [vec![0x16, 3, 1, 0xff, 0xff, 1], vec![0; 70_000]].concat(),
        ] {
            let mut stream = TcpStream::connect(at).unwrap();
            let caller = stream.local_addr().unwrap();
            let _ = stream.write_all(&begun);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.len() < 64, "nothing but an alert: {answer:02x?}");
            assert!(told(caller).contains("TLS"), "{}", told(caller));
        }
    }
    let began = Instant::now();
    target.moved_by(&initiator, Opcode::Write).unwrap();
    target.moved_by(&initiator, Opcode::Read).unwrap_or_default();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    drop(idle);
    assert_eq!(target.bytes(), [7; LEN as usize]);
}

#[test]
fn deadlines_hold_and_a_cancelled_call_writes_no_more() {
    const LARGE: u64 = 64 << 20;
    let authority = Authority::new();
    let (target, initiator) =
        (engine(Some(authority.issue("one")), ""), engine(Some(authority.issue("two")), ""));
    let (far, near) = (target.allocate(LARGE).unwrap(), initiator.allocate(LARGE).unwrap());
    let entries = vec![Entry { local: near, remote: far, len: LARGE }];
    for millis in [0, 1, 5, 10, 20] {
        initiator.write_local(near, &vec![millis as u8 + 1; LARGE as usize]).unwrap();
        let mut request = Request::new(target.name(), Opcode::Write, entries.clone());
        request.timeout = Some(Duration::from_millis(millis));
        let began = Instant::now();
        let outcome = initiator.transfer(&request);
        assert!(began.elapsed() < Duration::from_secs(2));
        let mut before = vec![0; LARGE as usize];
        target.read_local(far, &mut before).unwrap();
        match outcome {
            Ok(()) => assert!(before.iter().all(|&byte| byte == millis as u8 + 1)),
            Err(error) => {
                assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
                // Nothing lands after the failure was reported.
                std::thread::sleep(Duration::from_millis(50));
                let mut after = vec![0; LARGE as usize];
                target.read_local(far, &mut after).unwrap();
                assert!(before == after, "bytes landed after the failure");
            }
        }
    }
    initiator.transfer(&Request::new(target.name(), Opcode::Write, entries)).unwrap();
}
