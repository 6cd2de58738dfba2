//! Host and port text: every form, and every way to get it wrong.
#![allow(clippy::unwrap_used)]

use moonrail_wire::HostPort;
use moonrail_wire::address::AddressFault;

#[test]
fn forms() {
    for (text, host, port) in [
        ("localhost", "localhost", None),
        ("localhost:99", "localhost", Some(99)),
        ("127.0.0.1", "127.0.0.1", None),
        ("127.0.0.1:15589", "127.0.0.1", Some(15589)),
        ("0.0.0.0:15332", "0.0.0.0", Some(15332)),
        ("node_1.rack-2.example.", "node_1.rack-2.example.", None),
        ("host:0", "host", Some(0)),
        ("host:65535", "host", Some(65535)),
        ("host:00080", "host", Some(80)),
        ("::1", "::1", None),
        ("::", "::", None),
        ("[::1]", "::1", None),
        ("[::1]:15498", "::1", Some(15498)),
        ("[::ffff:10.0.0.1]:80", "::ffff:10.0.0.1", Some(80)),
        ("2001:db8::7", "2001:db8::7", None),
        // Could be address and port, but is an address.
        ("fe80::1:8000", "fe80::1:8000", None),
        // No group of an address has five digits.
        ("fe80::1:15000", "fe80::1", Some(15000)),
        // Eight groups are a whole address, so the ninth number is a port.
        ("2001:db8:0:0:0:0:0:1:15000", "2001:db8:0:0:0:0:0:1", Some(15000)),
        ("fe80::1%eth0", "fe80::1%eth0", None),
        ("fe80::1%eth0:15000", "fe80::1%eth0", Some(15000)),
        ("[fe80::1%eth0]:15000", "fe80::1%eth0", Some(15000)),
        ("[fe80::1%2]", "fe80::1%2", None),
    ] {
        let parsed: HostPort = text.parse().unwrap();
        assert_eq!((parsed.host.as_str(), parsed.port), (host, port), "{text}");
        assert_eq!(parsed.to_string().parse::<HostPort>().unwrap(), parsed, "{text}");
    }
}

#[test]
fn display() {
    assert_eq!(HostPort::new("::1", 15498).to_string(), "[::1]:15498");
    assert_eq!(HostPort::new("fe80::1%eth0", 1).to_string(), "[fe80::1%eth0]:1");
    assert_eq!(HostPort::new("node", 7).to_string(), "node:7");
    assert_eq!(HostPort { host: "::1".to_owned(), port: None }.to_string(), "[::1]");
    assert_eq!(HostPort { host: "node".to_owned(), port: None }.to_string(), "node");
}

#[test]
fn faults() {
    let long = "x".repeat(256);
    for (text, fault) in [
        ("", AddressFault::EmptyHost),
        (":15903", AddressFault::EmptyHost),
        ("host:", AddressFault::EmptyPort),
        ("[::1]:", AddressFault::EmptyPort),
        ("host:abc", AddressFault::PortNotANumber),
        ("host:+80", AddressFault::PortNotANumber),
        ("host:-1", AddressFault::PortNotANumber),
        ("host: 80", AddressFault::PortNotANumber),
        ("host:80 ", AddressFault::PortNotANumber),
        ("host:٣", AddressFault::PortNotANumber),
        ("host:65536", AddressFault::PortTooLarge),
        ("host:70000", AddressFault::PortTooLarge),
        ("host:99999999999999999999999", AddressFault::PortTooLarge),
        ("[::1", AddressFault::Brackets),
        ("[::1]x", AddressFault::Brackets),
        ("[::1]15000", AddressFault::Brackets),
        ("[host]:80", AddressFault::NotIpv6),
        ("[]:80", AddressFault::NotIpv6),
        ("host:1:2", AddressFault::NotIpv6),
        ("a::b::c", AddressFault::NotIpv6),
        ("http://host:80", AddressFault::NotIpv6),
        ("fe80::1%", AddressFault::EmptyZone),
        ("[fe80::1%]:80", AddressFault::EmptyZone),
        ("my host", AddressFault::HostCharacter),
        ("host\n:80", AddressFault::HostCharacter),
        ("host\0:80", AddressFault::HostCharacter),
        ("a/b:80", AddressFault::HostCharacter),
        ("host]:80", AddressFault::HostCharacter),
        ("host%eth0:80", AddressFault::HostCharacter),
        ("fe80::1%e th", AddressFault::HostCharacter),
        (&long, AddressFault::HostTooLong),
    ] {
        let error = text.parse::<HostPort>().unwrap_err();
        assert_eq!(error.reason, fault, "{text:?}");
    }
}

#[test]
fn an_error_repeats_the_text_but_not_all_of_it() {
    let error = "host:70000".parse::<HostPort>().unwrap_err();
    assert_eq!(error.to_string(), "bad address \"host:70000\": the port is above 65535");
    let error = "é".repeat(10_000).parse::<HostPort>().unwrap_err();
    assert_eq!(error.text.chars().count(), 80);
}
