//! The handshake frame: limits, type bytes, bytes of other protocols, connections that end early.
#![allow(clippy::unwrap_used)]

use moonrail_wire::handshake::{DEFAULT_MAX_LEN, Decoder, FrameError, Kind, Message};

#[test]
fn length_limits_are_exact() {
    let mut longest = Message::new(Kind::Notify, vec![b' '; DEFAULT_MAX_LEN - 1]);
    assert_eq!(longest.frame_len(), DEFAULT_MAX_LEN);
    assert_eq!(decode(&longest.encode()), Ok(Some(longest.clone())));

    longest.body.push(b' ');
    let error = FrameError::TooLong { declared: 1_048_577, max: DEFAULT_MAX_LEN };
    assert_eq!(decode(&longest.encode()), Err(error.clone()));
    // The length alone is enough to refuse.
    assert_eq!(decode(&longest.encode()[..8]), Err(error));

    assert_eq!(decode(&[0; 8]), Err(FrameError::Empty));
    assert_eq!(decode(&[0xff; 8]), Err(FrameError::TooLong { declared: u64::MAX, max: DEFAULT_MAX_LEN }));
}

#[test]
fn a_higher_limit_takes_a_longer_frame() {
    let message = Message::new(Kind::Metadata, vec![b' '; DEFAULT_MAX_LEN]);
    let mut decoder = Decoder::new(2 * DEFAULT_MAX_LEN);
    assert_eq!(decoder.feed(&message.encode()), Ok(Some(message)));
}

#[test]
fn type_bytes() {
    for (byte, kind) in [(0, Kind::Connection), (1, Kind::Metadata), (2, Kind::Notify), (3, Kind::Probe)] {
        let bytes = [&[3, 0, 0, 0, 0, 0, 0, 0, byte], &b"{}"[..]].concat();
        assert_eq!(decode(&bytes), Ok(Some(Message::new(kind, "{}"))), "{byte}");
        assert_eq!(Message::new(kind, "{}").encode(), bytes);
    }
    // Without a type byte, what would be one belongs to the body.
    for byte in 4..=0x7f {
        let bytes = [2, 0, 0, 0, 0, 0, 0, 0, byte, b'}'];
        let message = Message::new(Kind::Untyped, [byte, b'}']);
        assert_eq!(decode(&bytes), Ok(Some(message.clone())), "{byte}");
        assert_eq!(message.encode(), bytes);
    }
    // Refused before the rest has come.
    for byte in 0x80..=0xff {
        let bytes = [9, 0, 0, 0, 0, 0, 0, 0, byte];
        assert_eq!(decode(&bytes), Err(FrameError::UnknownType { byte }), "{byte}");
    }
}

#[test]
fn a_type_byte_may_stand_alone() {
    assert_eq!(decode(&[1, 0, 0, 0, 0, 0, 0, 0, 3]), Ok(Some(Message::new(Kind::Probe, ""))));
}

#[test]
fn other_protocols_fail_at_eight_bytes_and_are_named() {
    for (bytes, name) in [
        (&b"GET / HT"[..], "HTTP"),
        (b"POST /me", "HTTP"),
        (b"PRI * HT", "HTTP"),
        (b"HTTP/1.1", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS"),
        (b"SSH-2.0-", "SSH"),
    ] {
        assert_eq!(decode(&bytes[..7]), Ok(None));
        let error = decode(bytes).unwrap_err();
        assert!(error.to_string().ends_with(&format!("(the peer speaks {name})")), "{error}");
    }
    let plain = decode(&[0xa5; 8]).unwrap_err();
    assert!(plain.to_string().ends_with("more than the limit of 1048576"), "{plain}");
}

#[test]
fn an_error_stays() {
    let mut decoder = Decoder::new(DEFAULT_MAX_LEN);
    assert_eq!(decoder.feed(&[0; 8]), Err(FrameError::Empty));
    assert_eq!(decoder.feed(b"more"), Err(FrameError::Empty));
    assert_eq!(decoder.feed(b""), Err(FrameError::Empty));
    assert_eq!(decoder.finish(), Err(FrameError::Empty));
}

#[test]
fn the_end_of_the_connection_is_judged() {
    let bytes = Message::new(Kind::Probe, "{}\n").encode();
    for received in 0..bytes.len() {
        let mut decoder = Decoder::new(DEFAULT_MAX_LEN);
        assert_eq!(decoder.feed(&bytes[..received]), Ok(None));
        assert_eq!(decoder.finish(), Err(FrameError::Truncated { received }));
    }
    let mut decoder = Decoder::new(DEFAULT_MAX_LEN);
    decoder.feed(&bytes).unwrap().unwrap();
    assert_eq!(decoder.finish(), Ok(()));
}

#[test]
fn bytes_behind_the_frame_are_counted_and_dropped() {
    let mut decoder = Decoder::new(DEFAULT_MAX_LEN);
    let message = Message::new(Kind::Probe, "{}\n");
    let bytes = [message.encode(), b"tail".to_vec()].concat();
    assert_eq!(decoder.feed(&bytes), Ok(Some(message)));
    assert_eq!(decoder.feed(b"more"), Ok(None));
    assert_eq!(decoder.excess(), 8);
    assert_eq!(decoder.finish(), Ok(()));
}

fn decode(bytes: &[u8]) -> Result<Option<Message>, FrameError> {
    Decoder::new(DEFAULT_MAX_LEN).feed(bytes)
}
