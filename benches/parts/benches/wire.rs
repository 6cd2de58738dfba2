//! Bytes of the wire, made and read: segment descriptors, handshake frames, rail frames.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use moonrail_wire::handshake::{Decoder, Kind, MAX_MAX_LEN, Message};
use moonrail_wire::rail::{RANGE_LEN, REQUEST_LEN, Range, Request, RequestKind};
use moonrail_wire::segment::PROTOCOL_TCP;
use moonrail_wire::{Buffer, SegmentDescriptor};

const BUFFERS: u64 = 16_000;
const RANGES: u32 = 1000;

fn descriptor() -> SegmentDescriptor {
    let buffer = |at| Buffer {
        name: "10.0.0.1:15432".to_owned(),
        addr: 0x7f00_0000_0000 + at * (64 << 20),
        length: 64 << 20,
    };
    SegmentDescriptor {
        name: "10.0.0.1:15432".to_owned(),
        protocol: PROTOCOL_TCP.to_owned(),
        tcp_data_port: 16_000,
        tcp_proto_version: 2,
        buffers: (0..BUFFERS).map(buffer).collect(),
        ..SegmentDescriptor::default()
    }
}

fn descriptors(c: &mut Criterion) {
    let descriptor = descriptor();
    let json = descriptor.to_json();
    let mut group = c.benchmark_group("descriptor of 16000 buffers");
    group.throughput(Throughput::Elements(BUFFERS));
    group.bench_function("to JSON", |b| b.iter(|| black_box(&descriptor).to_json()));
    group.bench_function("from JSON", |b| {
        b.iter(|| SegmentDescriptor::from_json(black_box(&json)).unwrap());
    });
}

fn handshake(c: &mut Criterion) {
    let frame = Message::new(Kind::Metadata, descriptor().to_json()).encode();
    let mut group = c.benchmark_group("handshake frame");
    group.throughput(Throughput::Bytes(frame.len() as u64));
    group.bench_function("decode, in pieces of 64 KiB", |b| {
        b.iter(|| {
            let mut decoder = Decoder::new(MAX_MAX_LEN);
            black_box(&frame).chunks(64 << 10).find_map(|piece| decoder.feed(piece).unwrap()).unwrap()
        });
    });
}

fn rail(c: &mut Criterion) {
    let range = |at: u32| Range { addr: 0x7f00_0000_0000 + u64::from(at) * 8192, len: 4096 };
    let head = Request {
        kind: RequestKind::Write,
        count: RANGES,
        id: 1,
        payload: u64::from(RANGES) * 4096,
        epoch: 7,
        first: range(0),
    };
    let encode = |bytes: &mut Vec<u8>| {
        bytes.clear();
        bytes.extend_from_slice(&black_box(&head).encode());
        (1..RANGES).for_each(|at| bytes.extend_from_slice(&range(at).encode()));
    };
    let mut bytes = Vec::new();
    encode(&mut bytes);
    let mut group = c.benchmark_group("rail frame of 1000 ranges");
    group.throughput(Throughput::Elements(u64::from(RANGES)));
    group.bench_function("encode", |b| {
        let mut bytes = Vec::new();
        b.iter(|| {
            encode(&mut bytes);
            bytes.len()
        });
    });
    group.bench_function("decode", |b| {
        b.iter(|| {
            let (head, table) = black_box(&bytes).split_first_chunk::<REQUEST_LEN>().unwrap();
            let head = Request::decode(head).unwrap();
            let (ranges, _) = table[..head.table_len()].as_chunks::<RANGE_LEN>();
            ranges.iter().map(Range::decode).fold(head.first.len, |sum, range| sum + range.len)
        });
    });
}

criterion_group!(benches, descriptors, handshake, rail);
criterion_main!(benches);
