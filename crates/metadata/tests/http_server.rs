//! The HTTP metadata server as genuine engines and scanners see it: raw HTTP on real sockets.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use moonrail_metadata::{MetadataServer, ServerLimits};
use moonrail_wire::directory::RpcMeta;

/// Status line, `Content-Type` and body of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: String,
    kind: String,
    body: String,
}

/// One request on an open connection, as libcurl writes it in genuine engines.
fn ask(stream: &mut TcpStream, verb: &str, target: &str, body: Option<&str>) -> Answer {
    let mut request = format!("{verb} {target} HTTP/1.1\r\nHost: 127.0.0.1:18182\r\nAccept: */*\r\n");
    if let Some(body) = body {
        request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    request += "\r\n";
    request += body.unwrap_or("");
    stream.write_all(request.as_bytes()).unwrap();
    read_answer(stream, verb != "HEAD")
}

fn read_answer(stream: &mut TcpStream, with_body: bool) -> Answer {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0u8];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let field = |name: &str| {
        head.lines()
            .find_map(|line| line.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name)))
            .map(|(_, value)| value.to_owned())
    };
    let length: usize = field("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0u8; if with_body { length } else { 0 }];
    stream.read_exact(&mut body).unwrap();
    Answer {
        status: head.lines().next().unwrap().split_once(' ').unwrap().1.to_owned(),
        kind: field("content-type").unwrap_or_default(),
        body: String::from_utf8(body).unwrap(),
    }
}

fn said(status: &str, body: &str) -> Answer {
    Answer {
        status: status.to_owned(),
        kind: "application/json; charset=utf-8".to_owned(),
        body: body.to_owned(),
    }
}

fn value(body: &str) -> Answer {
    Answer { status: "200 OK".to_owned(), kind: "application/json".to_owned(), body: body.to_owned() }
}

fn server_with(limits: ServerLimits) -> MetadataServer {
    MetadataServer::bind(SocketAddr::new(V4, 0), limits).unwrap()
}

fn server() -> MetadataServer {
    server_with(ServerLimits::default())
}

fn rpc(port: u16) -> String {
    format!(r#"{{"ip_or_host_name":"127.0.0.1","rpc_port":{port}}}"#)
}

const RPC_A: &str = "/metadata?key=mooncake%2Frpc_meta%2FnodeA%3A12345";
const RAM_A: &str = "/metadata?key=mooncake%2Fram%2FnodeA%3A12345";

#[test]
fn speaks_as_in_the_transcript_of_genuine_engines() {
    within(20, || {
        // The life of an engine, a second one that opens it, and a duplicate, all on kept connections.
        let server = server();
        let (_alive, _, live) = engine(V4);
        let mut first = connect(server.local_addr());
        let mut second = connect(server.local_addr());
        let mut third = connect(server.local_addr());
        let updated = || said("200 OK", "metadata updated");
        let missing = || said("404 Not Found", "metadata not found");
        let deleted = || said("200 OK", "metadata deleted");
        let meta = rpc(live.port.unwrap());
        let empty = concat!(
            r#"{"buffers":[],"name":"nodeA:12345","protocol":"tcp","rdma_server_name":"","tcp_data_host":"192.0.2.2","#,
            r#""tcp_data_port":16191,"tcp_proto_version":2,"timestamp":"2026-11-30 22:40:44.570407"}"#
        );
        let full = concat!(
            r#"{"buffers":[{"addr":140563391176720,"length":8388608,"name":"nodeA:12345"}],"name":"nodeA:12345","#,
            r#""protocol":"tcp","rdma_server_name":"","tcp_data_host":"192.0.2.2","tcp_data_port":16191,"#,
            r#""tcp_proto_version":2,"timestamp":"2026-11-30 22:40:44.576164"}"#
        );
        assert_eq!(ask(&mut first, "PUT", RPC_A, Some(&meta)), updated());
        assert_eq!(ask(&mut first, "GET", RAM_A, None), missing());
        assert_eq!(ask(&mut first, "PUT", RAM_A, Some(empty)), updated());
        assert_eq!(ask(&mut first, "PUT", RAM_A, Some(full)), updated());
        assert_eq!(ask(&mut second, "GET", RAM_A, None), value(full));
        assert_eq!(ask(&mut second, "GET", RPC_A, None), value(&meta));
        assert_eq!(ask(&mut second, "GET", "/metadata?key=mooncake%2Frpc_meta%2Fnope", None), missing());
        assert_eq!(
            ask(&mut third, "PUT", RPC_A, Some(&rpc(16903))),
            said("400 Bad Request", "Duplicate rpc_meta key not allowed")
        );
        assert_eq!(ask(&mut second, "GET", RPC_A, None), value(&meta));
        assert_eq!(ask(&mut second, "GET", RAM_A, None), value(full));
        assert_eq!(ask(&mut first, "DELETE", RPC_A, None), deleted());
        assert_eq!(ask(&mut first, "DELETE", RAM_A, None), deleted());
        assert_eq!(ask(&mut third, "DELETE", RPC_A, None), missing());
    });
}

#[test]
fn answers_odd_requests_as_the_genuine_server_does() {
    within(20, || {
        let server = server();
        let mut stream = connect(server.local_addr());
        let key_required = || said("400 Bad Request", "metadata key is required");
        let not_allowed = || said("405 Method Not Allowed", "Method not allowed");
        assert_eq!(ask(&mut stream, "GET", "/metadata", None), key_required());
        assert_eq!(ask(&mut stream, "POST", "/metadata", Some("x")), key_required());
        assert_eq!(ask(&mut stream, "GET", "/metadata?key=", None), key_required());
        assert_eq!(ask(&mut stream, "POST", "/metadata?key=a", Some("x")), not_allowed());
        assert_eq!(ask(&mut stream, "OPTIONS", "/metadata?key=a", None), not_allowed());
        assert_eq!(ask(&mut stream, "HEAD", "/metadata?key=a", None).status, "405 Method Not Allowed");
        assert_eq!(ask(&mut stream, "GET", "/elsewhere", None).status, "404 Not Found");
        assert_eq!(ask(&mut stream, "GET", "/metadata/?key=a", None).status, "404 Not Found");
        // Spaces in either encoding are the same key; the first of two keys counts; any value is kept as it is.
        assert_eq!(ask(&mut stream, "PUT", "/metadata?key=a%20b+c", Some("x y\n")).body, "metadata updated");
        assert_eq!(ask(&mut stream, "GET", "/metadata?key=a+b%20c", None), value("x y\n"));
        assert_eq!(ask(&mut stream, "GET", "/metadata?key=a+b+c&key=other", None), value("x y\n"));
        assert_eq!(ask(&mut stream, "PUT", "/metadata?key=empty", Some("")).body, "metadata updated");
        assert_eq!(ask(&mut stream, "GET", "/metadata?key=empty", None), value(""));
        assert_eq!(ask(&mut stream, "GET", "/metadata?key=%ff%00", None).status, "404 Not Found");
    });
}

#[test]
fn a_name_whose_engine_is_gone_is_given_away_with_its_stale_descriptor() {
    within(20, || {
        let server = server();
        let mut stream = connect(server.local_addr());
        let stale = r#"{"buffers":[{"addr":4096,"length":4096,"name":"nodeA:12345"}],"protocol":"tcp"}"#;
        ask(&mut stream, "PUT", RPC_A, Some(&rpc(dead_port())));
        ask(&mut stream, "PUT", RAM_A, Some(stale));
        let started = Instant::now();
        assert_eq!(ask(&mut stream, "PUT", RPC_A, Some(&rpc(15001))), said("200 OK", "metadata updated"));
        assert!(started.elapsed() < Duration::from_secs(1), "took {:?}", started.elapsed());
        assert_eq!(ask(&mut stream, "GET", RPC_A, None), value(&rpc(15001)));
        // A genuine engine would take these buffers over as its own.
        assert_eq!(ask(&mut stream, "GET", RAM_A, None).status, "404 Not Found");
    });
}

#[test]
fn a_descriptor_left_behind_without_its_address_does_not_survive_a_new_engine() {
    within(20, || {
        let server = server();
        let mut stream = connect(server.local_addr());
        for (rpc_key, ram_key) in [
            ("/metadata?key=mooncake/rpc_meta/n", "/metadata?key=mooncake/ram/n"),
            ("/metadata?key=mooncake/c/rpc_meta/n", "/metadata?key=mooncake/c/ram/n"),
            ("/metadata?key=mooncake/rpc_meta/n/0", "/metadata?key=mooncake/n/0"),
        ] {
            ask(&mut stream, "PUT", ram_key, Some("{}"));
            ask(&mut stream, "PUT", rpc_key, Some(&rpc(15002)));
            assert_eq!(ask(&mut stream, "GET", ram_key, None).status, "404 Not Found", "{ram_key}");
            ask(&mut stream, "DELETE", rpc_key, None);
        }
    });
}

#[test]
fn an_address_that_moved_to_another_name_no_longer_holds_the_old_one() {
    within(20, || {
        let server = server();
        let (_alive, _, live) = engine(V4);
        let mut stream = connect(server.local_addr());
        let meta = rpc(live.port.unwrap());
        ask(&mut stream, "PUT", RPC_A, Some(&meta));
        // The engine of that port is now another one, registered later: nodeA's is gone although the port answers.
        ask(&mut stream, "PUT", "/metadata?key=mooncake/rpc_meta/nodeB", Some(&meta));
        assert_eq!(ask(&mut stream, "PUT", RPC_A, Some(&rpc(15003))).status, "200 OK");
        // The other way round nodeB's entry is the latest for its port and stands.
        assert_eq!(
            ask(&mut stream, "PUT", "/metadata?key=mooncake/rpc_meta/nodeB", Some(&rpc(15004))).status,
            "400 Bad Request"
        );
    });
}

#[test]
fn the_same_address_may_register_again() {
    within(20, || {
        let server = server();
        let (_alive, _, live) = engine(V4);
        let mut stream = connect(server.local_addr());
        let meta = rpc(live.port.unwrap());
        ask(&mut stream, "PUT", RPC_A, Some(&meta));
        ask(&mut stream, "PUT", RAM_A, Some("{}"));
        assert_eq!(ask(&mut stream, "PUT", RPC_A, Some(&meta)).status, "200 OK");
        assert_eq!(ask(&mut stream, "GET", RAM_A, None).status, "404 Not Found");
    });
}

#[test]
fn a_silent_owner_keeps_its_name_and_delays_nobody_else() {
    within(20, || {
        let server = server();
        let at = server.local_addr();
        // Connected by the kernel, answered by nobody: a stopped process, or a genuine engine that is busy.
        let silent = TcpListener::bind((V4, 0)).unwrap();
        let mut stream = connect(at);
        ask(&mut stream, "PUT", RPC_A, Some(&rpc(silent.local_addr().unwrap().port())));
        let asking = thread::spawn(move || {
            let started = Instant::now();
            let answer = ask(&mut connect(at), "PUT", RPC_A, Some(&rpc(15005)));
            (answer.status, started.elapsed())
        });
        thread::sleep(Duration::from_millis(100));
        let taken = typically(|| drop(ask(&mut stream, "GET", RPC_A, None)));
        assert!(taken < Duration::from_millis(50), "took {taken:?}");
        let (status, elapsed) = asking.join().unwrap();
        assert_eq!(status, "400 Bad Request");
        assert!(elapsed < Duration::from_millis(1300), "took {elapsed:?}");
    });
}

#[test]
fn two_engines_that_want_a_dead_name_at_once_do_not_both_get_it() {
    within(30, || {
        let server = server();
        let at = server.local_addr();
        for round in 0..5 {
            let (_one, _, first) = engine(V4);
            let (_two, _, second) = engine(V4);
            let target = format!("/metadata?key=mooncake/rpc_meta/race{round}");
            ask(&mut connect(at), "PUT", &target, Some(&rpc(dead_port())));
            let racers: Vec<_> = [first, second]
                .into_iter()
                .map(|peer| {
                    let target = target.clone();
                    thread::spawn(move || {
                        ask(&mut connect(at), "PUT", &target, Some(&rpc(peer.port.unwrap()))).status
                    })
                })
                .collect();
            let mut statuses: Vec<String> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();
            statuses.sort();
            assert_eq!(statuses, ["200 OK", "400 Bad Request"]);
        }
    });
}

#[test]
fn an_unreadable_holder_is_kept_as_the_genuine_server_does() {
    within(10, || {
        let server = server();
        let mut stream = connect(server.local_addr());
        ask(&mut stream, "PUT", "/metadata?key=xrpc_metay", Some("x"));
        assert_eq!(ask(&mut stream, "PUT", "/metadata?key=xrpc_metay", Some("x")).status, "400 Bad Request");
    });
}

#[test]
fn limits_hold() {
    within(20, || {
        let limits = ServerLimits { value: 1000, key: 100, keys: 3, total: 1500, ..ServerLimits::default() };
        let server = server_with(limits);
        let at = server.local_addr();
        let put = |key: &str, length: usize| {
            ask(&mut connect(at), "PUT", &format!("/metadata?key={key}"), Some(&"v".repeat(length))).status
        };
        assert_eq!(put("a", 1001), "413 Payload Too Large");
        assert_eq!(put(&"k".repeat(101), 1), "414 URI Too Long");
        assert_eq!(put("a", 1000), "200 OK");
        assert_eq!(put("b", 1000), "507 Insufficient Storage");
        // Replacing gives back what was there.
        assert_eq!(put("a", 900), "200 OK");
        assert_eq!(put("b", 500), "200 OK");
        assert_eq!(put("a", 10), "200 OK");
        assert_eq!(put("c", 10), "200 OK");
        assert_eq!(put("d", 10), "507 Insufficient Storage");
        assert_eq!(ask(&mut connect(at), "DELETE", "/metadata?key=b", None).status, "200 OK");
        assert_eq!(put("d", 900), "200 OK");
    });
}

#[test]
fn idle_connections_are_closed_and_delay_nobody() {
    within(20, || {
        let limits = ServerLimits { idle: Duration::from_millis(500), ..ServerLimits::default() };
        let server = server_with(limits);
        let at = server.local_addr();
        let mut idle: Vec<TcpStream> = (0..200).map(|_| connect(at)).collect();
        idle[0].write_all(b"GET /metadata?key=a HT").unwrap();
        let mut used = connect(at);
        let taken = typically(|| drop(ask(&mut used, "GET", "/metadata?key=a", None)));
        assert!(taken < Duration::from_millis(50), "took {taken:?}");
        let started = Instant::now();
        for stream in &mut idle {
            drain(stream);
        }
        assert!(started.elapsed() < Duration::from_secs(3));
    });
}

#[test]
fn scanners_do_no_harm() {
    within(20, || {
        let server = server();
        let at = server.local_addr();
        for bytes in [
            &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
            b"\x00\x01\x02\x03\r\n\r\n",
            &frame(3, b"{}\n\r\n\r\n"),
            b"GET / HTTP/9.9\r\n\r\n",
            b"PUT /metadata?key=a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        ] {
            let answer = raw(at, bytes);
            assert!(
                answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
                "{:?}",
                String::from_utf8_lossy(&answer)
            );
        }
        assert_eq!(ask(&mut connect(at), "GET", "/metadata?key=a", None).status, "404 Not Found");
    });
}

#[test]
fn lists_segments_as_text_and_as_json() {
    within(20, || {
        let server = server();
        let mut stream = connect(server.local_addr());
        assert_eq!(ask(&mut stream, "GET", "/", None).body, "0 segments\n");
        let meta = RpcMeta { ip_or_host_name: "10.1.2.3".to_owned(), rpc_port: 15006 };
        ask(&mut stream, "PUT", RPC_A, Some(std::str::from_utf8(&meta.to_json()).unwrap()));
        let json = descriptor("nodeA:12345", 16000).to_json();
        ask(&mut stream, "PUT", RAM_A, Some(std::str::from_utf8(&json).unwrap().trim_end()));
        ask(&mut stream, "PUT", "/metadata?key=mooncake/rpc_meta/half", Some(&rpc(15007)));
        ask(&mut stream, "PUT", "/metadata?key=whatever", Some("not a descriptor"));

        let text = ask(&mut stream, "GET", "/", None);
        assert_eq!(text.kind, "text/plain; charset=utf-8");
        let mut lines = text.body.lines();
        assert_eq!(lines.next().unwrap(), "2 segments");
        let line = lines.next().unwrap();
        for part in ["\"half\" in mooncake/ handshake 127.0.0.1:15007", "no descriptor"] {
            assert!(line.contains(part), "{line}");
        }
        let line = lines.next().unwrap();
        for part in
            ["nodeA:12345", "10.1.2.3:15006", "data 127.0.0.1:16000", "buffers 1 bytes 8388608", "0.3.13"]
        {
            assert!(line.contains(part), "{line}");
        }
        let json: serde_json::Value =
            serde_json::from_str(&ask(&mut stream, "GET", "/?json", None).body).unwrap();
        assert_eq!(json["segments"][1]["name"], "nodeA:12345");
        assert_eq!(json["segments"][1]["bytes"], 8 << 20);
        assert_eq!(json["segments"][0]["protocol"], serde_json::Value::Null);
    });
}

#[test]
fn listens_only_where_told_and_stops_quickly() {
    within(20, || {
        let mut server = server();
        let at = server.local_addr();
        assert!(TcpStream::connect((V6, at.port())).is_err());
        let mut kept = connect(at);
        ask(&mut kept, "GET", "/metadata?key=a", None);
        let started = Instant::now();
        server.stop();
        assert!(started.elapsed() < Duration::from_millis(100), "took {:?}", started.elapsed());
        assert!(matches!(kept.read(&mut [0; 8]), Ok(0) | Err(_)));
        // The port is free for the next server at once.
        MetadataServer::bind(at, ServerLimits::default()).unwrap();

        let server = MetadataServer::bind(SocketAddr::new(V6, 0), ServerLimits::default()).unwrap();
        assert_eq!(server.url("::1"), format!("http://[::1]:{}/metadata", server.local_addr().port()));
        assert_eq!(
            ask(&mut connect(server.local_addr()), "GET", "/metadata?key=a", None).status,
            "404 Not Found"
        );
    });
}
