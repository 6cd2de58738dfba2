//! Every capture of a genuine engine's traffic: decoded, checked, and encoded again to the same bytes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use moonrail_wire::data::{HEADER_LEN, STATUS_LEN, STATUS_OK, STATUS_REJECTED, decode_status, encode_status};
use moonrail_wire::handshake::{
    ConnectionReply, DEFAULT_MAX_LEN, Decoder, Kind, Message, Notify, NotifyReply, PROBE_REQUEST, ProbeReply,
};
use moonrail_wire::{
    DataVersion, DescriptorError, KeySpace, Op, ReleaseLine, RequestHeader, RpcMeta, SegmentDescriptor, json,
};

/// Checked by `data_requests`.
const DATA_REQUESTS: &[(&str, DataVersion, Op, u64, usize)] = &[
    ("client_data_v2_read16_hdr", DataVersion::V2, Op::Read, 16, 0),
    ("client_data_v2_write16_hdr", DataVersion::V2, Op::Write, 16, 0),
    ("data_v1_op7f_req", DataVersion::V1, Op::Read, 16, 0),
    ("data_v1_read16_req", DataVersion::V1, Op::Read, 16, 0),
    ("data_v1_read_badaddr_req", DataVersion::V1, Op::Read, 16, 0),
    ("data_v1_read_zero_req", DataVersion::V1, Op::Read, 0, 0),
    ("data_v1_write16_req", DataVersion::V1, Op::Write, 16, 16),
    ("data_v1_write_badaddr_req", DataVersion::V1, Op::Write, 16, 16),
    ("data_v2_op2_req", DataVersion::V2, Op::Read, 16, 0),
    ("data_v2_overflow_req", DataVersion::V2, Op::Read, u64::MAX, 0),
    ("data_v2_read16_req", DataVersion::V2, Op::Read, 16, 0),
    ("data_v2_read_badaddr_req", DataVersion::V2, Op::Read, 16, 0),
    ("data_v2_read_oob_req", DataVersion::V2, Op::Read, 16, 0),
    ("data_v2_read_zero_req", DataVersion::V2, Op::Read, 0, 0),
    ("data_v2_write16_req", DataVersion::V2, Op::Write, 16, 16),
    ("data_v2_write_badaddr_req", DataVersion::V2, Op::Write, 16, 16),
];

/// Checked by `data_replies`: the status and the payload length, once for each request.
const DATA_REPLIES: &[(&str, &[(u32, usize)])] = &[
    ("data_v2_op2_rsp", &[(STATUS_OK, 16)]),
    ("data_v2_overflow_rsp", &[(STATUS_REJECTED, 0)]),
    ("data_v2_pipelined_read8x3_rsp", &[(STATUS_OK, 8), (STATUS_OK, 8), (STATUS_OK, 8)]),
    ("data_v2_read16_rsp", &[(STATUS_OK, 16)]),
    ("data_v2_read_badaddr_rsp", &[(STATUS_REJECTED, 0)]),
    ("data_v2_read_oob_rsp", &[(STATUS_REJECTED, 0)]),
    ("data_v2_read_zero_rsp", &[(STATUS_REJECTED, 0)]),
    ("data_v2_write16_rsp", &[(STATUS_OK, 0)]),
    ("data_v2_write_badaddr_rsp", &[(STATUS_REJECTED, 0)]),
];

/// Replies of data protocol v1, which are bare payload.
const BARE_PAYLOAD: &[&str] = &["data_v1_op7f_rsp", "data_v1_read16_rsp"];

/// Checked by `handshake_frames` and by the test of each body.
const FRAMES: &[(&str, Kind)] = &[
    ("client_hs_metadata_req_from_wheel", Kind::Metadata),
    ("client_hs_notify_from_wheel", Kind::Notify),
    ("client_hs_probe_from_wheel", Kind::Probe),
    ("hs_connection_req_to_tcp", Kind::Connection),
    ("hs_connection_rsp_from_tcp", Kind::Connection),
    ("hs_metadata_minimal_req", Kind::Metadata),
    ("hs_metadata_rsp_tcp", Kind::Metadata),
    ("hs_notify_req", Kind::Notify),
    ("hs_notify_rsp", Kind::Notify),
    ("hs_oldproto_req", Kind::Untyped),
    ("hs_oldproto_rsp", Kind::Untyped),
    ("hs_probe_req", Kind::Probe),
    ("hs_probe_rsp", Kind::Probe),
];

#[test]
fn no_capture_is_left_out() {
    let tested: BTreeSet<String> = (DATA_REQUESTS.iter().map(|case| case.0))
        .chain(DATA_REPLIES.iter().map(|case| case.0))
        .chain(BARE_PAYLOAD.iter().copied())
        .chain(FRAMES.iter().map(|case| case.0))
        .map(|name| format!("{name}.hex"))
        .collect();
    let present: BTreeSet<String> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".hex"))
        .collect();
    assert_eq!(present, tested);
}

#[test]
fn data_requests() {
    for &(name, version, op, size, payload) in DATA_REQUESTS {
        let bytes = capture(name);
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>().unwrap();
        let decoded = RequestHeader::decode(header);
        assert_eq!((decoded.version, decoded.op, decoded.size), (version, op, size), "{name}");
        assert_eq!(rest.len(), payload, "{name}");
        let mut expected = *header;
        if matches!(name, "data_v1_op7f_req" | "data_v2_op2_req") {
            // Opcodes that no engine sends: they mean read, and are written as read.
            expected[16] &= 0x80;
        }
        assert_eq!(decoded.encode(), expected, "{name}");
    }
    let bytes = capture("data_v2_write16_req");
    let header = RequestHeader::decode(bytes.first_chunk().unwrap());
    assert_eq!(header.addr, 0x7f03_9b7f_f410);
    assert_eq!(bytes[HEADER_LEN..], (0x64..0x74).collect::<Vec<u8>>());
}

#[test]
fn data_replies() {
    for (name, replies) in DATA_REPLIES {
        let bytes = capture(name);
        let mut rest = bytes.as_slice();
        let mut next = 0_u8;
        for &(code, payload) in *replies {
            let (status, behind) = rest.split_first_chunk::<STATUS_LEN>().unwrap();
            assert_eq!(decode_status(status), Ok(code), "{name}");
            assert_eq!(encode_status(code), *status, "{name}");
            let (data, behind) = behind.split_at(payload);
            for &byte in data {
                assert_eq!(byte, next, "{name}");
                next += 1;
            }
            rest = behind;
        }
        assert!(rest.is_empty(), "{name}");
    }
    for name in BARE_PAYLOAD {
        let bytes = capture(name);
        assert_eq!(bytes, (0..16).collect::<Vec<u8>>(), "{name}");
        // The very confusion the magic is for: payload in the place of a status is noticed.
        assert!(decode_status(bytes.first_chunk().unwrap()).is_err(), "{name}");
    }
}

#[test]
fn handshake_frames() {
    for &(name, kind) in FRAMES {
        let message = frame(name);
        assert_eq!(message.kind, kind, "{name}");
        assert_eq!(message.encode(), capture(name), "{name}");
        assert_eq!(json::check_object(&message.body), Ok(()), "{name}");
    }
}

#[test]
fn descriptors() {
    for (name, port, addr) in [
        ("client_hs_metadata_req_from_wheel", 16976, 139_858_093_789_200),
        ("hs_metadata_rsp_tcp", 16792, 139_653_470_482_448),
    ] {
        let body = frame(name).body;
        let descriptor = SegmentDescriptor::from_json(&body).unwrap();
        assert_eq!(descriptor.protocol, "tcp");
        assert_eq!(descriptor.tcp_data_port, port);
        assert_eq!(descriptor.tcp_data_host.as_deref(), Some("127.0.0.1"));
        assert_eq!(descriptor.tcp_proto_version, 2);
        assert_eq!(descriptor.rdma_server_name.as_deref(), Some(""));
        assert_eq!(descriptor.buffers.len(), 1);
        assert_eq!((descriptor.buffers[0].addr, descriptor.buffers[0].length), (addr, 8 << 20));
        assert_eq!(descriptor.buffers[0].name, descriptor.name);
        assert_eq!(descriptor.moonrail, None);
        assert_eq!(descriptor.release_line(), ReleaseLine::V0_3_13);
        assert_eq!(text(&descriptor.to_json()), text(&body), "{name}");
    }
    // What a request of the least effort looks like; servers answer it without reading it.
    assert_eq!(
        SegmentDescriptor::from_json(&frame("hs_metadata_minimal_req").body),
        Err(DescriptorError::NoProtocol)
    );
}

#[test]
fn notifies() {
    for (name, expected) in
        [("client_hs_notify_from_wheel", ("nm", "mg")), ("hs_notify_req", ("n1", "hello"))]
    {
        let body = frame(name).body;
        let notify = Notify::from_json(&body).unwrap();
        assert_eq!((notify.name.as_str(), notify.message.as_str()), expected, "{name}");
        assert_eq!(text(&notify.to_json()), text(&body), "{name}");
    }
    let body = frame("hs_notify_rsp").body;
    let reply = NotifyReply::from_json(&body).unwrap();
    assert!(reply.accepted);
    assert_eq!(text(&reply.to_json()), text(&body));
}

#[test]
fn probes() {
    assert_eq!(frame("client_hs_probe_from_wheel").body, PROBE_REQUEST);
    assert_eq!(frame("hs_probe_req").body, PROBE_REQUEST);
    let body = frame("hs_probe_rsp").body;
    assert_eq!(ProbeReply::from_json(&body), Ok(ProbeReply::success()));
    assert_eq!(text(&ProbeReply::success().to_json()), text(&body));
}

#[test]
fn connection_replies() {
    for name in ["hs_connection_rsp_from_tcp", "hs_oldproto_rsp"] {
        let body = frame(name).body;
        assert_eq!(ConnectionReply::from_json(&body), Ok(ConnectionReply::empty_accept()), "{name}");
        assert_eq!(text(&ConnectionReply::empty_accept().to_json()), text(&body), "{name}");
    }
}

#[test]
fn http_values() {
    let transcript = transcript();
    let (mut metas, mut descriptors) = (0, 0);
    for line in transcript.lines().filter(|line| line.starts_with('{')) {
        if line.contains("rpc_port") {
            let meta = RpcMeta::from_json(line.as_bytes()).unwrap();
            assert_eq!(text(&meta.to_json()), line);
            metas += 1;
        } else {
            let descriptor = SegmentDescriptor::from_json(line.as_bytes()).unwrap();
            assert_eq!(descriptor.release_line(), ReleaseLine::V0_3_13);
            assert_eq!(text(&descriptor.to_http_json()), line);
            descriptors += 1;
        }
    }
    assert_eq!((metas, descriptors), (6, 10));
}

#[test]
fn http_keys() {
    let common = KeySpace::new(None);
    let cluster = KeySpace::new(Some("clu"));
    let mut expected: BTreeSet<String> = ["nodeA:12345", "nodeB", "nope", "127.0.0.1:17999"]
        .iter()
        .flat_map(|name| [common.rpc_meta(name), common.ram(name)])
        .collect();
    expected.extend([cluster.rpc_meta("nodeD"), cluster.ram("nodeD")]);
    let seen: BTreeSet<String> = transcript()
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("/metadata?key="))
        .map(|key| key.replace("%2F", "/").replace("%3A", ":"))
        .collect();
    assert_eq!(seen, expected);
}

fn frame(name: &str) -> Message {
    let mut decoder = Decoder::new(DEFAULT_MAX_LEN);
    let message = decoder.feed(&capture(name)).unwrap().unwrap();
    assert_eq!(decoder.finish(), Ok(()), "{name}");
    assert_eq!(decoder.excess(), 0, "{name}");
    message
}

fn capture(name: &str) -> Vec<u8> {
    let hex = std::fs::read_to_string(directory().join(format!("{name}.hex"))).unwrap();
    let digits = hex.trim().as_bytes();
    assert_eq!(digits.len() % 2, 0, "{name}");
    digits.chunks(2).map(|pair| u8::from_str_radix(text(pair), 16).unwrap()).collect()
}

fn transcript() -> String {
    std::fs::read_to_string(directory().join("http_metadata_transcript.txt")).unwrap()
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
