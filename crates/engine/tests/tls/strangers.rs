//! Callers that speak TLS and are no Moonrail: without a certificate, without the port's protocol, or with another one inside.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use moonrail::TlsSource;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use crate::authority::Authority;
use crate::support::{Target, engine, told};

/// A TLS caller of its own making; what it heard after it said `bytes`.
fn say(at: SocketAddr, source: &TlsSource, cert: bool, alpn: &str, bytes: &[u8]) -> (SocketAddr, Vec<u8>) {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&source.ca[0]).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = if cert {
        let chain = CertificateDer::pem_file_iter(&source.cert).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(&source.key).unwrap();
        builder.with_client_auth_cert(chain, key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    if !alpn.is_empty() {
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    }
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let caller = socket.local_addr().unwrap();
    let mut stream = Stream::new(&mut connection, &mut socket);
    let _ = stream.write_all(bytes);
    let mut answer = vec![0; 4096];
    let got = stream.read(&mut answer).unwrap_or(0);
    answer.truncate(got);
    (caller, answer)
}

/// A rail hello for a run of the target.
fn hello(epoch: u64) -> Vec<u8> {
    let mut hello = vec![0; 64];
    hello[..8].copy_from_slice(b"MRAIL\0\x01\xff");
    hello[8] = 1;
    hello[16..24].copy_from_slice(&epoch.to_le_bytes());
    hello
}

#[test]
fn callers_without_a_certificate_are_turned_away_unless_that_is_allowed() {
    let authority = Authority::new();
    let source = authority.issue("one");
    let target = Target::new(engine(Some(source.clone()), ""));
    let report = target.engine.report().unwrap();
    let probe = [&2_u64.to_le_bytes()[..], &[3], b"{", b"}"].concat();
    for (at, alpn, bytes) in [
        (report.data, "moonrail-rail", hello(report.epoch)),
        (report.handshake, "moonrail-handshake", probe.clone()),
    ] {
        let (caller, answer) = say(at, &source, false, alpn, &bytes);
        assert_eq!(answer, b"", "{alpn}");
        assert!(told(caller).contains("it showed none"), "{}", told(caller));
    }
    target.untouched();
    let open = Target::new(engine(Some(source.clone()), "anonymous"));
    let report = open.engine.report().unwrap();
    let (_, answer) = say(report.data, &source, false, "moonrail-rail", &hello(report.epoch));
    assert_eq!((&answer[..8], answer[10]), (&b"MRAIL\0\x01\xff"[..], 0), "a welcome");
    // A certificate that is shown is still looked at.
    let other = Authority::new();
    let mixed = TlsSource { ca: source.ca.clone(), ..other.issue("strange") };
    let (caller, answer) = say(report.data, &mixed, true, "moonrail-rail", &hello(report.epoch));
    assert_eq!(answer, b"");
    assert!(told(caller).contains("no authority"), "{}", told(caller));
}

#[test]
fn what_is_meant_for_one_port_is_nothing_on_the_other() {
    let authority = Authority::new();
    let source = authority.issue("one");
    let target = Target::new(engine(Some(source.clone()), ""));
    let report = target.engine.report().unwrap();
    for (at, alpn) in [
        (report.data, "moonrail-handshake"),
        (report.handshake, "moonrail-rail"),
        (report.data, ""),
        (report.handshake, ""),
        (report.data, "h2"),
    ] {
        let (caller, answer) = say(at, &source, true, alpn, &hello(report.epoch));
        assert_eq!(answer, b"", "{alpn}");
        assert!(!told(caller).is_empty());
    }
    target.untouched();
}

#[test]
fn only_rail_is_spoken_inside() {
    let authority = Authority::new();
    let source = authority.issue("one");
    // Also where Mooncake's protocol is allowed in clear.
    for allow in ["", "mooncake"] {
        let target = Target::new(engine(Some(source.clone()), allow));
        let report = target.engine.report().unwrap();
        for opcode in [0x80_u8, 0x81, 0, 1] {
            let mut request = Vec::from(4_u64.to_le_bytes());
            request.extend(target.addr.to_le_bytes());
            request.extend([opcode, 0, 0, 0, 0, 0, 0, 0]);
            request.extend(b"evil");
            let (caller, answer) = say(report.data, &source, true, "moonrail-rail", &request);
            assert!(answer.len() <= 8, "nothing was read: {answer:02x?}");
            assert!(told(caller).contains("only rail"), "{}", told(caller));
        }
        target.untouched();
    }
}
