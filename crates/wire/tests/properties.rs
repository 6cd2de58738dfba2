//! What holds for all input: no panic, round trips, and results that do not depend on how bytes are cut.
#![allow(clippy::unwrap_used)]

use moonrail_wire::data::{decode_status, encode_status};
use moonrail_wire::handshake::{
    ConnectionReply, DEFAULT_MAX_LEN, Decoder, FrameError, Kind, Message, Notify, NotifyReply, ProbeReply,
};
use moonrail_wire::{
    Buffer, DataVersion, Extension, HostPort, NamedBuffer, Op, RailOffer, RequestHeader, RpcMeta,
    SegmentDescriptor, json,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..400)) {
        read_all(&bytes);
        let _ = String::from_utf8_lossy(&bytes).parse::<HostPort>();
    }

    #[test]
    fn any_tokens_are_read_without_panic(tokens in tokens(NOISE)) {
        read_all(tokens.concat().as_bytes());
    }

    #[test]
    fn damaged_descriptors_are_read_without_panic(
        descriptor in descriptor(), at in any::<Index>(), byte in any::<u8>(), cut in any::<Index>(),
    ) {
        let mut bytes = descriptor.to_json();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        read_all(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        read_all(&bytes);
    }

    /// The passes ahead of the parser take nothing away: what strict JSON accepts is accepted, with the same result.
    #[test]
    fn strict_json_is_read_as_such(tokens in tokens(NOISE)) {
        let text = tokens.concat();
        if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) {
            prop_assert_eq!(json::check_object(text.as_bytes()).is_ok(), value.is_object() || value.is_null());
            if let (Some(name), Ok(notify)) = (value.get("name"), Notify::from_json(text.as_bytes()))
                && let Some(name) = name.as_str()
            {
                prop_assert_eq!(notify.name, name);
            }
        }
    }

    /// Comments between tokens change nothing.
    #[test]
    fn comments_are_white_space(tokens in tokens(&["{", "}", "[", "]", ",", ":", "1"])) {
        let plain = tokens.join(" ");
        for comment in ["/**/", "/* \" ] \\ */", "// { \" \n", "//\r"] {
            let commented = tokens.join(comment);
            let (a, b) = (Notify::from_json(plain.as_bytes()), Notify::from_json(commented.as_bytes()));
            // Positions in error texts differ.
            prop_assert_eq!(a.as_ref().ok(), b.as_ref().ok(), "{} / {}", plain, commented);
            let (a, b) = (json::shape_of(plain.as_bytes()), json::shape_of(commented.as_bytes()));
            prop_assert_eq!(a.ok(), b.ok());
        }
    }

    #[test]
    fn frames_round_trip(message in message()) {
        let bytes = message.encode();
        prop_assert_eq!(bytes.len(), 8 + message.frame_len());
        prop_assert_eq!(Decoder::new(DEFAULT_MAX_LEN).feed(&bytes), Ok(Some(message)));
    }

    #[test]
    fn frames_do_not_depend_on_the_cut(
        message in message(), tail in vec(any::<u8>(), 0..20), cuts in vec(any::<Index>(), 0..12),
    ) {
        let bytes = [message.encode(), tail].concat();
        let whole = Outcome::of([bytes.as_slice()]);
        prop_assert_eq!(&whole.message, &Some(message));
        prop_assert_eq!(Outcome::of(pieces(&bytes, &cuts)), whole);
    }

    #[test]
    fn refusals_do_not_depend_on_the_cut(
        head in vec(select(vec![0_u8, 1, 2, 3, 5, 0x7b, 0x80, 0xff]), 0..12),
        rest in vec(any::<u8>(), 0..20),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let bytes = [head, rest].concat();
        prop_assert_eq!(Outcome::of(pieces(&bytes, &cuts)), Outcome::of([bytes.as_slice()]));
        prop_assert_eq!(Outcome::of(bytes.chunks(1)), Outcome::of([bytes.as_slice()]));
    }

    /// A body never takes more than twice the bytes received for it, whatever length was declared.
    #[test]
    fn a_body_is_no_larger_than_what_came(len in 0_usize..5000, piece in 1_usize..700) {
        let bytes = Message::new(Kind::Notify, vec![b' '; len]).encode();
        let mut decoder = Decoder::new(DEFAULT_MAX_LEN);
        let mut message = None;
        for bytes in bytes.chunks(piece) {
            message = message.or(decoder.feed(bytes).unwrap());
        }
        prop_assert!(message.unwrap().body.capacity() <= (2 * len).max(8).max(piece));
    }

    #[test]
    fn descriptors_round_trip(descriptor in descriptor()) {
        let json = descriptor.to_json();
        prop_assert_eq!(SegmentDescriptor::from_json(&json), Ok(descriptor.clone()));
        let http = descriptor.to_http_json();
        prop_assert_eq!(&json[..json.len() - 1], &http);
        // Written with sorted keys, without white space: the same text that a sorting writer makes.
        let value: serde_json::Value = serde_json::from_slice(&http).unwrap();
        prop_assert_eq!(serde_json::to_vec(&value).unwrap(), http);
    }

    #[test]
    fn bodies_round_trip(
        name in any::<String>(), message in any::<String>(), accepted in any::<bool>(),
        lid in any::<u16>(), pairs in vec(any::<u32>(), 0..5),
    ) {
        let notify = Notify { name, message };
        prop_assert_eq!(Notify::from_json(&notify.to_json()), Ok(notify.clone()));
        let reply = NotifyReply { accepted };
        prop_assert_eq!(NotifyReply::from_json(&reply.to_json()), Ok(reply));
        let probe = ProbeReply { status: notify.name.clone() };
        prop_assert_eq!(ProbeReply::from_json(&probe.to_json()), Ok(probe));
        let meta = RpcMeta { ip_or_host_name: notify.name.clone(), rpc_port: lid };
        prop_assert_eq!(RpcMeta::from_json(&meta.to_json()), Ok(meta));
        let connection = ConnectionReply {
            local_gid: notify.message.clone(),
            local_lid: lid,
            local_nic_path: notify.name.clone(),
            payload: notify.message.clone(),
            peer_nic_path: notify.name.clone(),
            qp_num: pairs,
            reply_msg: notify.message,
        };
        prop_assert_eq!(ConnectionReply::from_json(&connection.to_json()), Ok(connection));
    }

    #[test]
    fn data_headers_round_trip(size: u64, addr: u64, write: bool, v2: bool, bytes: [u8; 24]) {
        let header = RequestHeader {
            size,
            addr,
            op: if write { Op::Write } else { Op::Read },
            version: if v2 { DataVersion::V2 } else { DataVersion::V1 },
        };
        prop_assert_eq!(RequestHeader::decode(&header.encode()), header);
        let any = RequestHeader::decode(&bytes);
        prop_assert_eq!(RequestHeader::decode(&any.encode()), any);
        prop_assert_eq!(&any.encode()[..16], &bytes[..16]);
    }

    #[test]
    fn statuses_round_trip(code: u32, bytes: [u8; 8]) {
        prop_assert_eq!(decode_status(&encode_status(code)), Ok(code));
        match decode_status(&bytes) {
            Ok(code) => prop_assert_eq!(encode_status(code), bytes),
            Err(error) => prop_assert_eq!(error.bytes, bytes),
        }
    }

    #[test]
    fn addresses_round_trip(host in host(), port in option::of(any::<u16>())) {
        let address = HostPort { host, port };
        prop_assert_eq!(address.to_string().parse::<HostPort>(), Ok(address));
    }

    #[test]
    fn what_parses_as_an_address_prints_as_the_same(text in "[a-f0-9:.%\\[\\]]{0,24}") {
        if let Ok(address) = text.parse::<HostPort>() {
            prop_assert_eq!(address.to_string().parse::<HostPort>(), Ok(address));
        }
    }
}

fn read_all(bytes: &[u8]) {
    let _ = Outcome::of([bytes]);
    let _ = json::check_object(bytes);
    let _ = json::shape_of(bytes);
    let _ = Notify::from_json(bytes);
    let _ = NotifyReply::from_json(bytes);
    let _ = ProbeReply::from_json(bytes);
    let _ = ConnectionReply::from_json(bytes);
    let _ = RpcMeta::from_json(bytes);
    if let Ok(descriptor) = SegmentDescriptor::from_json(bytes) {
        assert_eq!(SegmentDescriptor::from_json(&descriptor.to_json()), Ok(descriptor));
    }
}

/// All that a decoder tells about some input.
#[derive(Debug, PartialEq)]
struct Outcome {
    message: Option<Message>,
    error: Option<FrameError>,
    excess: usize,
    end: Result<(), FrameError>,
}

impl Outcome {
    fn of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut decoder = Decoder::new(DEFAULT_MAX_LEN);
        let (mut message, mut error) = (None, None);
        for piece in pieces {
            match decoder.feed(piece) {
                Ok(Some(complete)) => assert_eq!(message.replace(complete), None, "a second message"),
                Ok(None) => {}
                Err(refused) => error = Some(refused),
            }
        }
        Self { message, error, excess: decoder.excess(), end: decoder.finish() }
    }
}

fn pieces<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.sort_unstable();
    ends.push(bytes.len());
    let mut start = 0;
    ends.into_iter().map(|end| &bytes[std::mem::replace(&mut start, end)..end]).collect()
}

fn message() -> impl Strategy<Value = Message> {
    let typed =
        (select(vec![Kind::Connection, Kind::Metadata, Kind::Notify, Kind::Probe]), vec(any::<u8>(), 0..200))
            .prop_map(|(kind, body)| Message { kind, body });
    let untyped = (4_u8..0x80, vec(any::<u8>(), 0..200))
        .prop_map(|(first, rest)| Message { kind: Kind::Untyped, body: [vec![first], rest].concat() });
    prop_oneof![3 => typed, 1 => untyped]
}

/// What [`tokens`] strews in to break the syntax.
const NOISE: &[&str] = &["{", "}", "[", "]", ",", ":", "\"", "/", "*/", "\\", "1"];

/// Pieces of JSON with up to two pieces of noise among them.
fn tokens(noise: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    let scalar = select(vec![
        "null",
        "true",
        "0",
        "-1",
        "2.5",
        "70000",
        "18446744073709551615",
        "1e400",
        "\"x\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"//\"",
        "\"/*\"",
        "\"\\\\\"",
        "\"[\"",
        "\"tcp\"",
    ]);
    let key = select(vec![
        "\"name\"",
        "\"notify_msg\"",
        "\"protocol\"",
        "\"buffers\"",
        "\"addr\"",
        "\"length\"",
        "\"qp_num\"",
        "\"moonrail\"",
        "\"epoch\"",
        "\"rpc_port\"",
        "\"tcp_data_port\"",
        "\"other\"",
    ]);
    let leaf = scalar.clone().prop_map(|token| vec![token.to_owned()]);
    let value = leaf.prop_recursive(4, 40, 4, move |inner| {
        let array = vec(inner.clone(), 0..4).prop_map(|items| bracketed("[", items, "]"));
        let member = (key.clone(), inner)
            .prop_map(|(key, value)| [vec![key.to_owned(), ":".to_owned()], value].concat());
        let object = vec(member, 0..5).prop_map(|members| bracketed("{", members, "}"));
        prop_oneof![1 => array, 3 => object]
    });
    let noise = select(noise);
    (value, vec((any::<Index>(), noise), 0..2)).prop_map(|(mut tokens, noise)| {
        for (at, token) in noise {
            tokens.insert(at.index(tokens.len() + 1), token.to_owned());
        }
        tokens
    })
}

fn bracketed(open: &str, items: Vec<Vec<String>>, close: &str) -> Vec<String> {
    let mut tokens = vec![open.to_owned()];
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            tokens.push(",".to_owned());
        }
        tokens.extend(item);
    }
    tokens.push(close.to_owned());
    tokens
}

fn descriptor() -> impl Strategy<Value = SegmentDescriptor> {
    let identity = (any::<String>(), select(vec!["tcp", "rdma", "nvlink"]), any::<String>());
    let data = (any::<u16>(), option::of(".{1,20}"), any::<u32>());
    let rest = (option::of(any::<String>()), vec(range(), 0..6), option::of(extension()));
    (identity, data, rest).prop_map(
        |((name, protocol, timestamp), (port, host, version), (rdma, ranges, ext))| SegmentDescriptor {
            name,
            protocol: protocol.to_owned(),
            tcp_data_port: port,
            tcp_data_host: host,
            tcp_proto_version: version,
            timestamp,
            rdma_server_name: rdma,
            buffers: ranges.into_iter().map(|(name, addr, length)| Buffer { name, addr, length }).collect(),
            moonrail: ext,
        },
    )
}

fn extension() -> impl Strategy<Value = Extension> {
    (any::<String>(), any::<u64>(), vec(range(), 0..4)).prop_map(|(release, epoch, ranges)| Extension {
        release,
        epoch,
        metrics: (epoch % 7 == 0).then(|| format!("http://h:{epoch}")),
        names: ranges.into_iter().map(|(name, addr, length)| NamedBuffer { name, addr, length }).collect(),
        rail: (epoch % 2 == 0).then_some(RailOffer { features: epoch as u32, max: epoch as u16, min: 1 }),
        same_host: (epoch % 3 == 0).then(|| format!("contact {epoch}")),
        refuses_v1: epoch % 5 == 0,
    })
}

/// A name, an address and a length that do not wrap around.
fn range() -> impl Strategy<Value = (String, u64, u64)> {
    ("(?s).{1,12}", 1..u64::MAX).prop_flat_map(|(name, addr)| (Just(name), Just(addr), 1..=u64::MAX - addr))
}

fn host() -> impl Strategy<Value = String> {
    let ipv6 = any::<std::net::Ipv6Addr>().prop_map(|address| address.to_string());
    let zoned = any::<std::net::Ipv6Addr>().prop_map(|address| format!("{address}%eth0.7"));
    prop_oneof!["[a-z0-9._-]{1,40}", any::<std::net::Ipv4Addr>().prop_map(|a| a.to_string()), ipv6, zoned]
}
