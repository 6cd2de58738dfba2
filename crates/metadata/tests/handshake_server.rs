//! The handshake server against raw bytes: what genuine callers send, and what nobody should.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use moonrail_metadata::{HandshakeServer, Limits};
use moonrail_wire::handshake::DEFAULT_MAX_LEN;

const EMPTY_ACCEPT: &str = concat!(
    r#"{"local_gid":"","local_lid":0,"local_nic_path":"","payload":"","peer_nic_path":"","qp_num":[],"reply_msg":""}"#,
    "\n"
);
const NOTIFY_OK: &[u8] = b"{\"name\":\"\",\"notify_msg\":\"success\"}\n";
const PROBE_OK: &[u8] = b"{\"status\":\"success\"}\n";

fn probe_works(address: SocketAddr) {
    assert_eq!(raw(address, &frame(3, b"{}\n")), frame(3, PROBE_OK));
}

#[test]
fn answers_every_type_byte_for_byte_as_genuine_engines_do() {
    within(20, || {
        for ip in [V4, V6] {
            let (server, recorder, _) = engine(ip);
            let at = server.local_addr();
            let own = recorder.descriptor.lock().unwrap().clone().unwrap();

            let connection = br#"{"local_nic_path":"a:1@x","peer_nic_path":"b:2@y","qp_num":[1,2]}"#;
            let mut with_newline = connection.to_vec();
            with_newline.push(b'\n');
            assert_eq!(raw(at, &frame(0, &with_newline)), frame(0, EMPTY_ACCEPT.as_bytes()));
            assert_eq!(raw(at, &untyped(connection)), untyped(EMPTY_ACCEPT.as_bytes()));

            assert_eq!(raw(at, &frame(1, b"{}")), frame(1, &own));
            // Genuine engines do not look at the body, as long as it is JSON.
            assert_eq!(raw(at, &frame(1, b"12")), frame(1, &own));

            let note = b"{\"name\":\"n1\",\"notify_msg\":\"hello\"}\n";
            assert_eq!(raw(at, &frame(2, note)), frame(2, NOTIFY_OK));
            let notes = std::mem::take(&mut *recorder.notes.lock().unwrap());
            assert_eq!(notes.len(), 1);
            assert_eq!((notes[0].name.as_str(), notes[0].message.as_str()), ("n1", "hello"));

            probe_works(at);
        }
    });
}

#[test]
fn answers_null_in_metadata_server_mode_and_serves_the_rest() {
    within(10, || {
        let (server, recorder, _) = engine(V4);
        *recorder.descriptor.lock().unwrap() = None;
        assert_eq!(
            raw(server.local_addr(), &frame(1, b"{}\n")),
            [6, 0, 0, 0, 0, 0, 0, 0, 1, 0x6e, 0x75, 0x6c, 0x6c, 0xa]
        );
        probe_works(server.local_addr());
    });
}

#[test]
fn bodies_that_kill_genuine_engines_get_an_answer_or_a_close() {
    within(30, || {
        let (server, recorder, _) = engine(V4);
        let at = server.local_addr();
        let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
        let deep_field = [br#"{"a":"#.repeat(50_000), b"1".to_vec(), vec![b'}'; 50_000]].concat();
        let bodies: Vec<&[u8]> = vec![
            b"12",
            b"[]",
            br#"{"qp_num":["x"]}"#,
            br#"{"qp_num":[-1]}"#,
            br#"{"local_nic_path":[]}"#,
            br#"{"notify_msg":{}}"#,
            br#"{"name":[1],"notify_msg":"x"}"#,
            br#"{"name":{"a":1},"notify_msg":[[]]}"#,
            b"",
            b"\n",
            b"nonsense",
            b"\xff\xfe\x00",
            b"{",
            &deep,
            &deep_field,
        ];
        for kind in [0u8, 1, 2, 3, 4, 0x7b, 0x7f, 0x80, 0xff] {
            for body in &bodies {
                let answer = raw(at, &frame(kind, body));
                if !answer.is_empty() {
                    assert_eq!(u64::from_le_bytes(answer[..8].try_into().unwrap()), answer.len() as u64 - 8);
                    assert!(matches!(kind, 0..=3), "a body of unknown type was answered");
                    assert_eq!(answer[8], kind);
                }
            }
        }
        for note in recorder.notes.lock().unwrap().iter() {
            assert_eq!(
                (note.name.as_str(), note.message.as_str()),
                ("", ""),
                "a wrongly typed note was delivered"
            );
        }
        probe_works(at);
    });
}

#[test]
fn tolerates_what_genuine_engines_tolerate_in_notes() {
    within(10, || {
        let (server, recorder, _) = engine(V4);
        for (body, name, message) in [
            (&br#"{"name":1,"notify_msg":2.5}"#[..], "1", "2.5"),
            (br#"{"name":true,"notify_msg":null}"#, "true", ""),
            (br#"{}"#, "", ""),
            (br#"{"name":"a","name":"b","notify_msg":"m"} trailing"#, "b", "m"),
            (br#"/* c */{"name":"a\u0000b","notify_msg":"m"}"#, "a\0b", "m"),
        ] {
            assert_eq!(raw(server.local_addr(), &frame(2, body)), frame(2, NOTIFY_OK), "{body:?}");
            let note = recorder.notes.lock().unwrap().pop().unwrap();
            assert_eq!((note.name.as_str(), note.message.as_str()), (name, message));
        }
        assert_eq!(
            raw(server.local_addr(), &frame(2, b"{\"name\":\"\xff\",\"notify_msg\":\"m\"}")),
            frame(2, NOTIFY_OK)
        );
    });
}

#[test]
fn scanners_are_dropped_at_once() {
    within(10, || {
        let (server, _, _) = engine(V4);
        let random: Vec<u8> = (0..8192u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"SSH-2.0-OpenSSH_9.2\r\n",
            &random,
            &[0; 8],
        ] {
            let started = Instant::now();
            assert_eq!(raw(server.local_addr(), bytes), b"");
            assert!(started.elapsed() < Duration::from_millis(500), "waited for more of a scanner's bytes");
        }
        probe_works(server.local_addr());
    });
}

#[test]
fn length_is_limited_to_exactly_one_mebibyte() {
    within(20, || {
        let (server, recorder, _) = engine(V4);
        let at = server.local_addr();
        let note = |total: usize| {
            let rest = br#"{"name":"n","notify_msg":""}"#.len() + 1;
            frame(2, format!(r#"{{"name":"n","notify_msg":"{}"}}"#, "x".repeat(total - rest)).as_bytes())
        };
        assert_eq!(note(DEFAULT_MAX_LEN).len(), 8 + (1 << 20));
        assert_eq!(raw(at, &note(DEFAULT_MAX_LEN)), frame(2, NOTIFY_OK));
        assert_eq!(recorder.notes.lock().unwrap().pop().unwrap().message.len(), (1 << 20) - 29);
        assert_eq!(raw(at, &note(DEFAULT_MAX_LEN + 1)), b"");
        assert_eq!(raw(at, &[0xff; 9]), b"");
        assert!(recorder.notes.lock().unwrap().is_empty());
    });
}

#[test]
fn idle_callers_do_not_delay_an_honest_one() {
    within(20, || {
        let (server, _, _) = engine(V4);
        let at = server.local_addr();
        let mut idle: Vec<TcpStream> = (0..200).map(|_| connect(at)).collect();
        for (index, stream) in idle.iter_mut().enumerate() {
            // Some have said half of something, some nothing.
            if index % 2 == 0 {
                stream.write_all(&[4, 0, 0, 0, 0]).unwrap();
            }
        }
        let taken = typically(|| probe_works(at));
        assert!(taken < Duration::from_millis(50), "took {taken:?}");
    });
}

#[test]
fn trickling_and_silent_callers_are_cut_at_the_deadline() {
    within(20, || {
        let limits = Limits { request: Duration::from_millis(600), ..Limits::default() };
        let (server, _, _) = engine_with(V4, limits);
        let at = server.local_addr();
        let silent = thread::spawn(move || {
            let started = Instant::now();
            assert_eq!(drain(&mut connect(at)), b"");
            started.elapsed()
        });
        let started = Instant::now();
        let mut stream = connect(at);
        let request = frame(2, &[b' '; 4000]);
        let cut = request.iter().find_map(|byte| {
            thread::sleep(Duration::from_millis(20));
            stream.write_all(&[*byte]).err().map(|_| started.elapsed())
        });
        let cut = cut.expect("a caller that sends a byte now and then was served for ever");
        for elapsed in [cut, silent.join().unwrap()] {
            assert!(
                (Duration::from_millis(550)..Duration::from_millis(1200)).contains(&elapsed),
                "{elapsed:?}"
            );
        }
    });
}

#[test]
fn half_closes_after_the_reply_and_gives_up_on_callers_that_stay() {
    within(20, || {
        let limits = Limits { close: Duration::from_millis(500), ..Limits::default() };
        let (server, _, _) = engine_with(V4, limits);
        let mut stream = connect(server.local_addr());
        stream.write_all(&frame(3, b"{}\n")).unwrap();
        assert_eq!(drain(&mut stream), frame(3, PROBE_OK));
        // Its sending side is closed, the connection is not: what we send now is still taken.
        stream.write_all(b"x").unwrap();
        thread::sleep(Duration::from_millis(900));
        let _ = stream.write_all(b"x");
        thread::sleep(Duration::from_millis(50));
        assert!(stream.write_all(b"x").is_err(), "the server kept a caller that does not close");
    });
}

#[test]
fn a_request_in_pieces_is_answered() {
    within(10, || {
        let (server, _, _) = engine(V4);
        let mut stream = connect(server.local_addr());
        for byte in frame(3, b"{}\n") {
            stream.write_all(&[byte]).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(drain(&mut stream), frame(3, PROBE_OK));
    });
}

#[test]
fn refusals_and_rejections_are_told() {
    within(10, || {
        let (server, recorder, _) = engine(V4);
        let at = server.local_addr();
        *recorder.refusal.lock().unwrap() = Some("not \"you\"".to_owned());
        let answer = raw(at, &frame(0, b"{}"));
        assert!(String::from_utf8_lossy(&answer).contains(r#""reply_msg":"not \"you\"""#));
        assert_eq!(raw(at, &frame(1, b"{}")), frame(1, b"{\"refused\":\"not \\\"you\\\"\"}\n"));
        // Liveness is nobody's secret.
        probe_works(at);
        drop(server);

        let listener = TcpListener::bind((V4, 0)).unwrap();
        let handler = Arc::new(Recorder { reject_notes: true, ..Recorder::default() });
        let server = HandshakeServer::start(listener, handler, Limits::default()).unwrap();
        assert_eq!(
            raw(server.local_addr(), &frame(2, b"{}")),
            frame(2, b"{\"name\":\"\",\"notify_msg\":\"\"}\n")
        );
    });
}

#[test]
fn the_handler_sees_who_asks() {
    within(10, || {
        let (server, recorder, _) = engine(V4);
        raw(server.local_addr(), &frame(1, &descriptor("10.0.0.1:15000", 1).to_json()));
        raw(server.local_addr(), &frame(1, b"{}"));
        assert_eq!(*recorder.callers.lock().unwrap(), [Some("10.0.0.1:15000".to_owned()), None]);
    });
}

#[test]
fn a_panic_in_the_handler_costs_one_connection() {
    within(10, || {
        let (server, _, _) = engine(V4);
        assert_eq!(raw(server.local_addr(), &frame(2, br#"{"name":"panic","notify_msg":""}"#)), b"");
        probe_works(server.local_addr());
    });
}

#[test]
fn stops_quickly_and_frees_the_port() {
    within(10, || {
        let (mut server, _, _) = engine(V4);
        let at = server.local_addr();
        let mut busy = connect(at);
        busy.write_all(&[9, 0, 0]).unwrap();
        probe_works(at);
        let started = Instant::now();
        server.stop();
        assert!(started.elapsed() < Duration::from_millis(100), "took {:?}", started.elapsed());
        server.stop();
        assert!(matches!(busy.read(&mut [0; 8]), Ok(0) | Err(_)));
        assert!(TcpStream::connect(at).is_err());
        TcpListener::bind(at).unwrap();
    });
}

#[test]
fn idle_callers_beyond_the_limit_make_room() {
    within(20, || {
        let limits = Limits { connections: 1, ..Limits::default() };
        let (server, _, _) = engine_with(V4, limits);
        probe_works(server.local_addr());
        let limits = Limits { connections: 4, ..Limits::default() };
        let (server, _, _) = engine_with(V4, limits);
        let at = server.local_addr();
        let mut idle: Vec<TcpStream> = (0..20).map(|_| connect(at)).collect();
        let taken = typically(|| probe_works(at));
        assert!(taken < Duration::from_secs(1), "took {taken:?}");
        // The first to come was the first to go.
        let started = Instant::now();
        assert_eq!(drain(&mut idle[0]), b"");
        assert!(started.elapsed() < Duration::from_secs(1));
    });
}

#[test]
fn accepts_again_after_running_out_of_descriptors() {
    const INSIDE: &str = "MOONRAIL_TEST_FEW_DESCRIPTORS";
    within(30, || {
        if std::env::var_os(INSIDE).is_none() {
            // In a process of its own, with few descriptors.
            let status = std::process::Command::new("sh")
                .arg("-c")
                .arg("ulimit -n 40 && exec \"$0\" --exact accepts_again_after_running_out_of_descriptors")
                .arg(std::env::current_exe().unwrap())
                .env(INSIDE, "1")
                .status()
                .unwrap();
            assert!(status.success());
            return;
        }
        let (server, _, _) = engine(V4);
        let at = server.local_addr();
        let mut open = Vec::new();
        while let Ok(stream) = TcpStream::connect(at) {
            open.push(stream);
            thread::sleep(Duration::from_millis(5));
            assert!(open.len() < 40, "descriptors do not run out");
        }
        thread::sleep(Duration::from_millis(300));
        drop(open);
        probe_works(at);
        let taken = typically(|| probe_works(at));
        assert!(taken < Duration::from_millis(50), "took {taken:?}");
    });
}
