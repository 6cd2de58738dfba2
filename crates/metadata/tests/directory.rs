//! Finding peers and being found: peer-to-peer, and through our own HTTP metadata server.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use moonrail_metadata::{
    Directory, HttpDirectory, MetadataErrorKind as Kind, MetadataServer, P2pDirectory, ServerLimits,
    WaitStage, open,
};
use moonrail_wire::address::HostPort;
use moonrail_wire::directory::RpcMeta;

fn server() -> (MetadataServer, String) {
    let server = MetadataServer::bind(SocketAddr::new(V4, 0), ServerLimits::default()).unwrap();
    let url = server.url("127.0.0.1");
    (server, url)
}

fn http(url: &str) -> HttpDirectory {
    HttpDirectory::new(url, None, client(2000)).unwrap()
}

fn meta(address: &HostPort) -> RpcMeta {
    RpcMeta { ip_or_host_name: address.host.clone(), rpc_port: address.port.unwrap() }
}

fn at_port(port: u16) -> RpcMeta {
    RpcMeta { ip_or_host_name: "127.0.0.1".to_owned(), rpc_port: port }
}

/// The kind and text of the error with which `open` fails.
fn failure(metadata_server: &str) -> (Kind, String) {
    match open(metadata_server, None, client(1000)) {
        Ok(_) => panic!("{metadata_server:?} was opened"),
        Err(error) => (error.kind, error.to_string()),
    }
}

#[test]
fn opens_what_it_knows_and_names_what_it_does_not() {
    within(5, || {
        assert!(open("P2PHANDSHAKE", None, client(1000)).unwrap().is_p2p());
        for url in [
            "http://127.0.0.1:8080/metadata",
            "https://meta.example:8443/metadata",
            "http://[::1]:80/metadata",
        ] {
            assert!(!open(url, Some("c"), client(1000)).unwrap().is_p2p());
        }
        for spelling in ["p2phandshake", "P2PHandshake"] {
            let (kind, text) = failure(spelling);
            assert_eq!(kind, Kind::BadAddress);
            assert!(text.contains("P2PHANDSHAKE"), "{text}");
        }
        for (string, plugin) in [
            ("etcd://127.0.0.1:2379", "etcd"),
            ("etcd://a:1;b:2", "etcd"),
            ("redis://127.0.0.1:6379", "redis"),
            ("127.0.0.1:2379", "etcd"),
            ("a:2379;b:2379", "etcd"),
        ] {
            let (kind, text) = failure(string);
            assert_eq!(kind, Kind::Unsupported, "{string}");
            assert!(text.contains(plugin) && text.contains("plugin"), "{text}");
        }
        for string in [
            "",
            "zork",
            "ftp://x/y",
            "http://",
            "http://:80/metadata",
            "http://h:99999/metadata",
            "http://h:x/",
            "P2P HANDSHAKE",
        ] {
            assert_eq!(failure(string).0, Kind::BadAddress, "{string}");
        }
    });
}

#[test]
fn peer_to_peer_lookup_gives_all_addresses() {
    within(10, || {
        for ip in [V4, V6] {
            let (_server, recorder, peer) = engine(ip);
            let directory = P2pDirectory::new(client(2000));
            let own = descriptor("me:1", 7);
            let found = directory.lookup(&peer.to_string(), &own).unwrap();
            assert_eq!((found.data_host.as_str(), found.data_port), ("127.0.0.1", 16792));
            assert_eq!(found.handshake, Some(peer.clone()));
            // Leading slashes are nobody's.
            assert_eq!(directory.lookup(&format!("//{peer}"), &own).unwrap(), found);

            // Releases before 0.3.13 name no host: it is the one that was opened, whatever the descriptor's name says.
            let mut old = descriptor("elsewhere:15000", 16100);
            old.tcp_data_host = None;
            *recorder.descriptor.lock().unwrap() = Some(old.to_json().into());
            let found = directory.lookup(&peer.to_string(), &own).unwrap();
            assert_eq!((found.data_host, found.data_port), (ip.to_string(), 16100));

            // And up to 0.3.4 no port either: it is the next one.
            old.tcp_data_port = 0;
            old.tcp_proto_version = 1;
            *recorder.descriptor.lock().unwrap() = Some(old.to_json().into());
            let found = directory.lookup(&peer.to_string(), &own).unwrap();
            assert_eq!(found.data_port, peer.port.unwrap() + 1);
        }
    });
}

#[test]
fn bad_names_are_errors_before_anything_is_dialled() {
    within(5, || {
        let directory = P2pDirectory::new(client(2000));
        for name in ["127.0.0.1:70000", "127.0.0.1:abc", "127.0.0.1:", ":15000", "", "///", "127.0.0.1:0"] {
            let error = directory.lookup(name, &descriptor("me:1", 7)).unwrap_err();
            assert_eq!(error.kind, Kind::BadAddress, "{name}: {error}");
        }
        let default = directory.handshake_address("nodeA").unwrap();
        assert_eq!(default, HostPort::new("nodeA", 12001));
    });
}

#[test]
fn an_engine_is_found_through_the_server_until_it_withdraws() {
    within(20, || {
        let (_server, url) = server();
        let (_engine, _, address) = engine(V4);
        let owner = http(&url);
        let reader = http(&url);
        let own = descriptor("nodeA:12345", 16191);
        assert_eq!(reader.lookup("nodeA:12345", &own).unwrap_err().kind, Kind::NotFound);
        owner.claim("nodeA:12345", &meta(&address)).unwrap();
        owner.publish(&own).unwrap();
        let found = reader.lookup("/nodeA:12345", &own).unwrap();
        assert_eq!(found.descriptor, own);
        assert_eq!((found.data_host.as_str(), found.data_port), ("127.0.0.1", 16191));
        assert_eq!(reader.handshake_address("nodeA:12345").unwrap(), address);

        // Without a host of its own the data address comes from the other key.
        let mut old = own.clone();
        old.tcp_data_host = None;
        owner.publish(&old).unwrap();
        let found = reader.lookup("nodeA:12345", &own).unwrap();
        assert_eq!((found.data_host.as_str(), found.handshake), ("127.0.0.1", Some(address)));

        owner.withdraw().unwrap();
        owner.withdraw().unwrap();
        assert_eq!(reader.lookup("nodeA:12345", &own).unwrap_err().kind, Kind::NotFound);
        assert_eq!(reader.handshake_address("nodeA:12345").unwrap_err().kind, Kind::NotFound);
    });
}

#[test]
fn clusters_do_not_see_each_other_and_names_may_hold_anything() {
    within(20, || {
        let (_server, url) = server();
        let (_engine, _, address) = engine(V4);
        let ours = HttpDirectory::new(&url, Some("ours"), client(2000)).unwrap();
        for name in ["n", "a/b c", "ü&key=x?#%", "[::1]:15000"] {
            let own = descriptor(name, 16191);
            ours.claim(name, &meta(&address)).unwrap();
            ours.publish(&own).unwrap();
            assert_eq!(ours.lookup(name, &own).unwrap().descriptor, own, "{name}");
            assert_eq!(http(&url).lookup(name, &own).unwrap_err().kind, Kind::NotFound, "{name}");
            ours.withdraw().unwrap();
        }
    });
}

#[test]
fn a_live_owner_keeps_its_name() {
    within(20, || {
        let (_server, url) = server();
        let (_one, _, first) = engine(V4);
        let (_two, _, second) = engine(V4);
        let owner = http(&url);
        let own = descriptor("nodeA", 16191);
        owner.claim("nodeA", &meta(&first)).unwrap();
        owner.publish(&own).unwrap();
        let rival = http(&url);
        let error = rival.claim("nodeA", &meta(&second)).unwrap_err();
        assert_eq!(error.kind, Kind::NameTaken);
        assert!(error.to_string().contains(&first.to_string()), "{error}");
        // The loser's way out must not take the winner's entries along.
        rival.withdraw().unwrap();
        assert_eq!(rival.lookup("nodeA", &own).unwrap().descriptor, own);
    });
}

#[test]
fn a_dead_owner_is_replaced_and_its_buffers_are_never_seen_again() {
    within(20, || {
        let (_server, url) = server();
        let (first_engine, _, first) = engine(V4);
        let dead = http(&url);
        dead.claim("nodeA", &meta(&first)).unwrap();
        dead.publish(&descriptor("nodeA", 16191)).unwrap();
        drop(first_engine);

        let (_two, _, second) = engine(V4);
        let next = http(&url);
        let mut own = descriptor("nodeA", 16192);
        own.buffers.clear();
        let started = Instant::now();
        next.claim("nodeA", &meta(&second)).unwrap();
        assert!(started.elapsed() < Duration::from_secs(1), "took {:?}", started.elapsed());
        assert_eq!(next.lookup("nodeA", &own).unwrap_err().kind, Kind::NotFound);
        next.publish(&own).unwrap();
        assert_eq!(next.lookup("nodeA", &own).unwrap().descriptor, own);

        // The one that was replaced, should it come back, finds that out and leaves things alone.
        assert_eq!(dead.reannounce(&descriptor("nodeA", 16191)).unwrap_err().kind, Kind::NameTaken);
        dead.withdraw().unwrap();
        assert_eq!(next.lookup("nodeA", &own).unwrap().descriptor, own);
        assert_eq!(next.handshake_address("nodeA").unwrap(), second);
    });
}

/// Releases up to 0.3.7 publish a handshake port that they do not open when there is a metadata server.
#[test]
fn an_old_owner_that_only_serves_data_keeps_its_name() {
    within(20, || {
        let data = TcpListener::bind((V4, 0)).unwrap();
        for url in [server_for_ever(), genuine_like_server()] {
            let old = http(&url);
            old.claim("nodeA", &at_port(dead_port())).unwrap();
            let mut own = descriptor("nodeA", data.local_addr().unwrap().port());
            (own.tcp_proto_version, own.tcp_data_host, own.moonrail) = (1, None, None);
            old.publish(&own).unwrap();
            let (_two, _, second) = engine(V4);
            assert_eq!(http(&url).claim("nodeA", &meta(&second)).unwrap_err().kind, Kind::NameTaken);
        }
    });
}

/// A server that lives as long as the test's process.
fn server_for_ever() -> String {
    let (server, url) = server();
    std::mem::forget(server);
    url
}

#[test]
fn a_genuine_server_that_never_replaces_is_cleaned_up_by_the_claim() {
    within(30, || {
        let url = genuine_like_server();
        let dead = http(&url);
        dead.claim("nodeA", &at_port(dead_port())).unwrap();
        dead.publish(&descriptor("nodeA", 16191)).unwrap();

        let (_two, _, second) = engine(V4);
        let next = http(&url);
        next.claim("nodeA", &meta(&second)).unwrap();
        assert_eq!(next.lookup("nodeA", &descriptor("nodeA", 1)).unwrap_err().kind, Kind::NotFound);
        assert_eq!(next.handshake_address("nodeA").unwrap(), second);
        // Again, from the same engine, as after a lost answer.
        next.claim("nodeA", &meta(&second)).unwrap();

        let (_three, _, third) = engine(V4);
        assert_eq!(http(&url).claim("nodeA", &meta(&third)).unwrap_err().kind, Kind::NameTaken);
        next.withdraw().unwrap();
        http(&url).claim("nodeA", &meta(&third)).unwrap();
    });
}

/// Keeps keys and refuses the second PUT of an `rpc_meta` key, whoever holds it (Mooncake TE wire, metadata over HTTP).
fn genuine_like_server() -> String {
    let listener = TcpListener::bind((V4, 0)).unwrap();
    let url = format!("http://{}/metadata", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut store = std::collections::HashMap::<String, String>::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut text = String::new();
            let mut chunk = [0u8; 4096];
            let (head, body) = loop {
                let count = stream.read(&mut chunk).unwrap();
                text += std::str::from_utf8(&chunk[..count]).unwrap();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head
                    .to_lowercase()
                    .lines()
                    .find_map(|line| {
                        line.strip_prefix("content-length: ").map(|n| n.parse::<usize>().unwrap())
                    })
                    .unwrap_or(0);
                if body.len() >= length {
                    break (head.to_owned(), body.to_owned());
                }
            };
            let mut words = head.split(' ');
            let (verb, key) = (words.next().unwrap(), words.next().unwrap().to_owned());
            let (status, answer) = match verb {
                "GET" => store.get(&key).map_or((404, "metadata not found".to_owned()), |v| (200, v.clone())),
                "PUT" if key.contains("rpc_meta") && store.contains_key(&key) => {
                    (400, "Duplicate rpc_meta key not allowed".to_owned())
                }
                "PUT" => {
                    store.insert(key, body);
                    (200, "metadata updated".to_owned())
                }
                _ => store
                    .remove(&key)
                    .map_or((404, "metadata not found".to_owned()), |_| (200, "x".to_owned())),
            };
            let length = answer.len();
            let _ = write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{answer}");
        }
    });
    url
}

#[test]
fn a_restarted_server_learns_of_us_again() {
    within(20, || {
        let (mut server, url) = server();
        let at = server.local_addr();
        let (_engine, _, address) = engine(V4);
        let directory = http(&url);
        let own = descriptor("nodeA", 16191);
        // Not claimed yet: nothing to announce.
        assert!(!directory.reannounce(&own).unwrap());
        directory.claim("nodeA", &meta(&address)).unwrap();
        directory.publish(&own).unwrap();
        assert!(!directory.reannounce(&own).unwrap());

        server.stop();
        assert_eq!(directory.reannounce(&own).unwrap_err().kind, Kind::Refused);
        let error = directory.lookup("nodeA", &own).unwrap_err();
        assert_eq!(error.kind, Kind::Refused);
        assert!(error.to_string().contains(&url), "{error}");

        let _server = MetadataServer::bind(at, ServerLimits::default()).unwrap();
        assert_eq!(directory.lookup("nodeA", &own).unwrap_err().kind, Kind::NotFound);
        assert!(directory.reannounce(&own).unwrap());
        assert_eq!(http(&url).lookup("nodeA", &own).unwrap().descriptor, own);
        assert_eq!(http(&url).handshake_address("nodeA").unwrap(), address);
        assert!(!directory.reannounce(&own).unwrap());
    });
}

#[test]
fn a_mute_server_is_bounded() {
    within(20, || {
        let listener = TcpListener::bind((V4, 0)).unwrap();
        let directory = http(&format!("http://{}/metadata", listener.local_addr().unwrap()));
        let started = Instant::now();
        let error = directory.lookup("nodeA", &descriptor("me", 1)).unwrap_err();
        assert_eq!(error.kind, Kind::Timeout { stage: WaitStage::Reply }, "{error}");
        assert!((2..5).contains(&started.elapsed().as_secs()), "took {:?}", started.elapsed());
    });
}

#[test]
fn what_is_no_metadata_server_is_an_error() {
    within(20, || {
        let (_engine, _, address) = engine(V4);
        let directory = http(&format!("http://{address}/metadata"));
        let error = directory.lookup("nodeA", &descriptor("me", 1)).unwrap_err();
        assert!(matches!(error.kind, Kind::Reset | Kind::Protocol | Kind::Io), "{error:?}");

        let teapot = common::peer(|_, mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 418 Teapot\r\nContent-Length: 5\r\n\r\nshort");
        });
        let directory = http(&format!("http://{teapot}/metadata"));
        let error = directory.claim("nodeA", &at_port(15000)).unwrap_err();
        assert_eq!(error.kind, Kind::Http(418));
        assert!(error.message.contains("short"), "{error}");

        let (_server, url) = server();
        let directory = http(&url);
        let agent = ureq::agent();
        agent.put(format!("{url}?key=mooncake/ram/bad")).send("{\"protocol\":[\"tcp\"]}").unwrap();
        let error = directory.lookup("bad", &descriptor("me", 1)).unwrap_err();
        assert_eq!(error.kind, Kind::Protocol, "{error}");
    });
}
