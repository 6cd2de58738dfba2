//! The error reference from the metadata server: raw HTTP on real sockets.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use moonrail_metadata::{MetadataServer, ServerLimits};
use serde_json::Value;

struct Got {
    status: u16,
    head: String,
    body: String,
}

impl Got {
    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

fn get(server: &MetadataServer, path: &str, more: &str) -> Got {
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n").unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let text = String::from_utf8(all).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Got { status, head: head.to_owned(), body: body.to_owned() }
}

#[test]
fn records_are_served_as_json_and_not_sent_twice() {
    let server = MetadataServer::bind("127.0.0.1:0".parse().unwrap(), ServerLimits::default()).unwrap();
    let list = get(&server, "/api/errors", "");
    assert_eq!((list.status, list.field("content-type")), (200, Some("application/json")));
    let errors: Value = serde_json::from_str(&list.body).unwrap();
    let id = errors["errors"][0]["id"].as_str().unwrap();

    let record = get(&server, &format!("/api/errors/{id}"), "");
    assert_eq!(serde_json::from_str::<Value>(&record.body).unwrap()["id"], id);
    let etag = record.field("etag").unwrap();
    let again = get(&server, &format!("/api/errors/{id}"), &format!("If-None-Match: {etag}\r\n"));
    assert_eq!((again.status, again.body.as_str(), again.field("etag")), (304, "", Some(etag)));

    assert_eq!(get(&server, "/api/errors/schema", "").field("content-type"), Some("application/schema+json"));
    assert_eq!(get(&server, "/api/errors/PEER_GONE", "").status, 200);
    assert_eq!(get(&server, "/api/errors/nosuch", "").status, 404);
    // The server's own paths stay as they were.
    assert_eq!(get(&server, "/metadata?key=x", "").status, 404);
    assert!(get(&server, "/", "").body.starts_with("0 segments"));
}

#[test]
fn pages_load_nothing_from_elsewhere_and_escape_what_they_are_asked() {
    let server = MetadataServer::bind("127.0.0.1:0".parse().unwrap(), ServerLimits::default()).unwrap();
    for path in ["/errors", "/errors/PEER_GONE", "/errors/style.css", "/errors/search.js", "/errors?q=peer"] {
        let page = get(&server, path, "");
        assert_eq!(page.status, 200, "{path}");
        assert!(page.field("content-security-policy").unwrap().starts_with("default-src 'none'"), "{path}");
    }
    let evil = get(&server, "/errors/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "");
    assert_eq!(evil.status, 404);
    assert!(!evil.body.contains("<script>alert"), "{}", evil.body);
    assert_eq!(get(&server, "/errors/..%2F..%2Fetc%2Fpasswd", "").status, 404);
}
