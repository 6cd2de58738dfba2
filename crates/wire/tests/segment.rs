//! Segment descriptors: validation, defaults, release lines, keys, size.
#![allow(clippy::unwrap_used)]

use moonrail_wire::handshake::{DEFAULT_MAX_LEN, Decoder, FrameError, Kind, Message};
use moonrail_wire::segment::BufferFault;
use moonrail_wire::{
    Buffer, DataVersion, DescriptorError, Extension, JsonError, KeySpace, NamedBuffer, RailOffer,
    ReleaseLine, SegmentDescriptor,
};

#[test]
fn everything_but_the_protocol_may_be_missing() {
    let descriptor = read("{\"protocol\":\"tcp\"}").unwrap();
    let expected = SegmentDescriptor {
        protocol: "tcp".to_owned(),
        tcp_proto_version: 1,
        ..SegmentDescriptor::default()
    };
    assert_eq!(descriptor, expected);
    let nulls = read(
        "{\"protocol\":\"tcp\",\"name\":null,\"buffers\":null,\"tcp_data_port\":null,\"tcp_data_host\":null,
          \"tcp_proto_version\":null,\"timestamp\":null,\"rdma_server_name\":null,\"moonrail\":null}",
    );
    assert_eq!(nulls, Ok(expected));
}

#[test]
fn the_protocol_is_checked() {
    for body in ["{}", "{\"protocol\":\"\"}", "{\"protocol\":null}"] {
        assert_eq!(read(body), Err(DescriptorError::NoProtocol), "{body}");
    }
    for body in ["{\"protocol\":[]}", "{\"protocol\":[\"tcp\",\"rdma\"]}"] {
        assert_eq!(read(body), Err(DescriptorError::ProtocolArray), "{body}");
    }
    for protocol in ["nosuch", "TCP", "tcp ", "1"] {
        let error = DescriptorError::UnknownProtocol { protocol: protocol.to_owned() };
        assert_eq!(read(&format!("{{\"protocol\":\"{protocol}\"}}")), Err(error));
    }
    for protocol in ["tcp", "rdma", "nvlink_intra", "cxl", "nvmeof"] {
        assert_eq!(read(&format!("{{\"protocol\":\"{protocol}\"}}")).unwrap().protocol, protocol);
    }
}

#[test]
fn null_says_that_the_peer_uses_a_metadata_server() {
    assert_eq!(read("null\n"), Err(DescriptorError::Absent));
    assert_eq!(read("12"), Err(JsonError::NotAnObject { found: "a number" }.into()));
}

#[test]
fn one_bad_tcp_buffer_refuses_the_whole_descriptor() {
    let wrong = |field, expected, found| BufferFault::Field(JsonError::WrongType { field, expected, found });
    let negative = JsonError::OutOfRange { field: "addr", value: "-1".to_owned(), max: u64::MAX };
    let beyond =
        JsonError::OutOfRange { field: "length", value: "1.8446744073709552e19".to_owned(), max: u64::MAX };
    for (buffer, fault) in [
        ("{\"name\":\"\",\"addr\":1,\"length\":1}", BufferFault::NoName),
        ("{\"addr\":1,\"length\":1}", BufferFault::NoName),
        ("{\"name\":\"n\",\"addr\":0,\"length\":1}", BufferFault::ZeroAddress),
        ("{\"name\":\"n\",\"length\":1}", BufferFault::ZeroAddress),
        ("{\"name\":\"n\",\"addr\":1,\"length\":0}", BufferFault::ZeroLength),
        ("{\"name\":\"n\",\"addr\":1}", BufferFault::ZeroLength),
        (
            "{\"name\":\"n\",\"addr\":18446744073709551615,\"length\":1}",
            BufferFault::WrapAround { addr: u64::MAX, length: 1 },
        ),
        ("{\"name\":\"n\",\"addr\":-1,\"length\":1}", BufferFault::Field(negative)),
        ("{\"name\":\"n\",\"addr\":1,\"length\":18446744073709551616}", BufferFault::Field(beyond)),
        ("{\"name\":\"n\",\"addr\":\"1\",\"length\":1}", wrong("addr", "a number", "a string")),
        ("{\"name\":[],\"addr\":1,\"length\":1}", wrong("name", "a string", "an array")),
        ("7", BufferFault::NotAnObject { found: "a number" }),
        ("[]", BufferFault::NotAnObject { found: "an array" }),
        ("null", BufferFault::NoName),
        ("{}", BufferFault::NoName),
    ] {
        let good = "{\"name\":\"n\",\"addr\":4096,\"length\":9}";
        let body = format!("{{\"buffers\":[{good},{buffer},{buffer}],\"protocol\":\"tcp\"}}");
        assert_eq!(read(&body), Err(DescriptorError::Buffer { index: 1, fault }), "{body}");
    }
}

#[test]
fn other_protocols_keep_what_is_plain_memory() {
    let body = r#"{"protocol":"rdma","tcp_data_port":0,"devices":[{"name":"mlx5_0","lid":0,"gid":"00:01"}],
        "priority_matrix":{"cpu:0":[["mlx5_0"],[]]},
        "buffers":[{"name":"cpu:0","addr":4096,"length":8,"rkey":[1],"lkey":[2]},{"file_path":"/x","length":9}]}"#;
    let descriptor = read(body).unwrap();
    assert_eq!(descriptor.protocol, "rdma");
    assert_eq!(descriptor.buffers, [Buffer { name: "cpu:0".to_owned(), addr: 4096, length: 8 }]);
}

#[test]
fn the_last_byte_of_the_address_space_is_reachable_but_one() {
    let body = r#"{"protocol":"tcp","buffers":[{"name":"n","addr":18446744073709551614,"length":1}]}"#;
    assert_eq!(read(body).unwrap().buffers[0].addr, u64::MAX - 1);
}

#[test]
fn fields_of_wrong_type_are_errors() {
    for (body, field) in [
        ("\"tcp_data_port\":\"16976\"", "tcp_data_port"),
        ("\"tcp_data_port\":[1]", "tcp_data_port"),
        ("\"tcp_proto_version\":{}", "tcp_proto_version"),
        ("\"name\":{}", "name"),
        ("\"timestamp\":[]", "timestamp"),
        ("\"rdma_server_name\":[]", "rdma_server_name"),
        ("\"buffers\":{}", "buffers"),
        ("\"buffers\":\"\"", "buffers"),
        ("\"moonrail\":1", "moonrail"),
    ] {
        let result = read(&format!("{{\"protocol\":\"tcp\",{body}}}"));
        let Err(DescriptorError::Json(JsonError::WrongType { field: found, .. })) = result else {
            panic!("{body}: {result:?}");
        };
        assert_eq!(found, field);
    }
    for port in ["65536", "70000", "-1", "0.5"] {
        let result = read(&format!("{{\"protocol\":\"tcp\",\"tcp_data_port\":{port}}}"));
        let expected = matches!(
            result,
            Err(DescriptorError::Json(JsonError::OutOfRange { field: "tcp_data_port", max: 65535, .. }))
        );
        assert!(expected, "{port}: {result:?}");
    }
}

#[test]
fn a_data_host_counts_only_as_non_empty_text() {
    let host = |value: &str| {
        let body = format!("{{\"protocol\":\"tcp\",\"tcp_data_host\":{value}}}");
        read(&body).unwrap().tcp_data_host
    };
    assert_eq!(host("\"::1\"").as_deref(), Some("::1"));
    for value in ["\"\"", "null", "1", "true", "[]", "{\"a\":1}"] {
        assert_eq!(host(value), None, "{value}");
    }
    let empty = SegmentDescriptor { tcp_data_host: Some(String::new()), ..tcp() };
    assert!(!text(&empty.to_json()).contains("tcp_data_host"));
}

#[test]
fn release_lines() {
    for (fields, line, version, port) in [
        (
            "\"tcp_data_port\":7,\"tcp_proto_version\":2,\"tcp_data_host\":\"h\"",
            ReleaseLine::V0_3_13,
            2,
            Some(7),
        ),
        ("\"tcp_data_port\":7,\"tcp_proto_version\":2", ReleaseLine::V0_3_12, 2, Some(7)),
        ("\"tcp_data_port\":7,\"tcp_proto_version\":3", ReleaseLine::V0_3_12, 2, Some(7)),
        ("\"tcp_data_port\":7,\"tcp_proto_version\":1", ReleaseLine::V1, 1, Some(7)),
        ("\"tcp_data_port\":7,\"tcp_proto_version\":0", ReleaseLine::V1, 1, Some(7)),
        ("\"tcp_data_port\":7", ReleaseLine::V1, 1, Some(7)),
        ("\"name\":\"h:1\"", ReleaseLine::V0_3_4, 1, Some(15001)),
        // A port of 0 where there should be one is not taken for the old rule.
        ("\"tcp_data_port\":0,\"tcp_proto_version\":2", ReleaseLine::V0_3_12, 2, None),
        (
            "\"tcp_data_port\":7,\"tcp_proto_version\":2,\"moonrail\":{\"release\":\"0.1.0\",\"epoch\":\"a\"}",
            ReleaseLine::Moonrail,
            2,
            Some(7),
        ),
    ] {
        let descriptor = read(&format!("{{\"protocol\":\"tcp\",{fields}}}")).unwrap();
        assert_eq!(descriptor.release_line(), line, "{fields}");
        let expected = if version == 2 { DataVersion::V2 } else { DataVersion::V1 };
        assert_eq!(descriptor.data_version(), expected, "{fields}");
        assert_eq!(descriptor.data_port(Some(15000)), port, "{fields}");
    }
    assert_eq!(read("{\"protocol\":\"tcp\"}").unwrap().data_port(Some(u16::MAX)), None);
    assert_eq!(read("{\"protocol\":\"tcp\"}").unwrap().data_port(None), None);
    assert_eq!(ReleaseLine::V1.to_string(), "Mooncake 0.3.5–0.3.11 (data protocol v1)");
}

#[test]
fn text_of_an_older_release_comes_back_the_same() {
    for body in [
        // 0.3.5 to 0.3.11: no data version, no rdma_server_name.
        "{\"buffers\":[{\"addr\":4096,\"length\":9,\"name\":\"h:1\"}],\"name\":\"h:1\",\"protocol\":\"tcp\",\
         \"tcp_data_port\":7,\"timestamp\":\"2025-08-01 00:00:00.000000\"}\n",
        // 0.3.12.
        "{\"buffers\":[],\"name\":\"h:1\",\"protocol\":\"tcp\",\"tcp_data_port\":7,\"tcp_proto_version\":2,\
         \"timestamp\":\"2026-07-25 00:00:00.000000\"}\n",
    ] {
        assert_eq!(text(&read(body).unwrap().to_json()), body);
    }
}

#[test]
fn the_extension_is_one_object_that_others_skip() {
    let descriptor = SegmentDescriptor {
        name: "h:1".to_owned(),
        moonrail: Some(Extension {
            release: "0.1.0".to_owned(),
            epoch: 0xfedc_ba98,
            metrics: Some("http://h:9100".to_owned()),
            names: vec![NamedBuffer { name: "weights".to_owned(), addr: 4096, length: 9 }],
            rail: Some(RailOffer { features: 5, max: 2, min: 1 }),
            same_host: Some("near".to_owned()),
            refuses_v1: true,
        }),
        ..tcp()
    };
    let json = descriptor.to_json();
    assert_eq!(
        text(&json),
        "{\"buffers\":[],\"moonrail\":{\"epoch\":\"00000000fedcba98\",\"metrics\":\"http://h:9100\",\"names\":[{\"addr\":4096,\"length\":9,\
         \"name\":\"weights\"}],\"rail\":{\"features\":5,\"max\":2,\"min\":1},\"refuses_v1\":true,\"release\":\"0.1.0\",\"same_host\":\"near\"},\"name\":\"h:1\",\"protocol\":\"tcp\",\"tcp_data_port\":7,\
         \"tcp_proto_version\":2,\"timestamp\":\"\"}\n"
    );
    assert_eq!(SegmentDescriptor::from_json(&json), Ok(descriptor));
    // Fields that a later release may add are skipped.
    let later = read("{\"protocol\":\"tcp\",\"moonrail\":{\"epoch\":\"FF\",\"later\":{\"v\":[2]}}}").unwrap();
    assert_eq!(
        later.moonrail,
        Some(Extension {
            release: String::new(),
            epoch: 255,
            metrics: None,
            names: Vec::new(),
            rail: None,
            same_host: None,
            refuses_v1: false,
        })
    );
}

#[test]
fn a_bad_extension_is_an_error() {
    let extension = |body: &str| read(&format!("{{\"protocol\":\"tcp\",\"moonrail\":{body}}}")).unwrap_err();
    for epoch in ["", "xyz", "+1", "0x1", "00000000000000001", " 1"] {
        let expected = DescriptorError::Epoch { epoch: epoch.to_owned() };
        assert_eq!(extension(&format!("{{\"epoch\":\"{epoch}\"}}")), expected);
    }
    assert_eq!(extension("{}"), DescriptorError::Epoch { epoch: String::new() });
    assert_eq!(
        extension("{\"epoch\":\"1\",\"names\":[{\"name\":\"n\",\"addr\":1}]}"),
        DescriptorError::NamedBuffer { index: 0, fault: BufferFault::ZeroLength }
    );
}

#[test]
fn very_many_buffers_take_linear_work() {
    // With quadratic work this test would not end.
    let mut descriptor = SegmentDescriptor { name: "127.0.0.1:15589".to_owned(), ..tcp() };
    for index in 0..200_000 {
        let name = descriptor.name.clone();
        descriptor.buffers.push(Buffer { name, addr: 0x7f00_0000_0000 + index * 8192, length: 4096 });
    }
    let json = descriptor.to_json();
    assert_eq!(SegmentDescriptor::from_json(&json), Ok(descriptor));
    // The frame limit is what bounds the number of buffers in P2P mode.
    let message = Message::new(Kind::Metadata, json);
    let result = Decoder::new(DEFAULT_MAX_LEN).feed(&message.encode());
    assert!(matches!(result, Err(FrameError::TooLong { .. })), "{result:?}");
    assert_eq!(Decoder::new(16 << 20).feed(&message.encode()), Ok(Some(message)));
}

#[test]
fn keys() {
    for cluster in [None, Some("")] {
        let keys = KeySpace::new(cluster);
        assert_eq!(keys.prefix(), "mooncake/");
        assert_eq!(keys.rpc_meta("nodeA:12345"), "mooncake/rpc_meta/nodeA:12345");
        assert_eq!(keys.ram("nodeA:12345"), "mooncake/ram/nodeA:12345");
        assert_eq!(keys.ram("a/b"), "mooncake/a/b");
        assert_eq!(keys.rpc_meta("a/b"), "mooncake/rpc_meta/a/b");
    }
    for cluster in ["clu", "clu/"] {
        assert_eq!(KeySpace::new(Some(cluster)).ram("n"), "mooncake/clu/ram/n");
        assert_eq!(KeySpace::new(Some(cluster)).rpc_meta("n"), "mooncake/clu/rpc_meta/n");
    }
}

fn tcp() -> SegmentDescriptor {
    SegmentDescriptor {
        protocol: "tcp".to_owned(),
        tcp_data_port: 7,
        tcp_proto_version: 2,
        ..SegmentDescriptor::default()
    }
}

fn read(body: &str) -> Result<SegmentDescriptor, DescriptorError> {
    SegmentDescriptor::from_json(body.as_bytes())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
