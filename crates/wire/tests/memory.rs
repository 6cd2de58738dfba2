//! Memory stays in proportion to the bytes received, whatever they declare or contain.
//!
//! One test, so that nothing else allocates in this process meanwhile. It watches the size of the address space,
//! in which an allocation counts whether or not it is touched.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use moonrail_wire::SegmentDescriptor;
use moonrail_wire::handshake::{ConnectionReply, Decoder, MAX_MAX_LEN, Notify};

const MIB: usize = 1 << 20;

#[test]
fn memory_follows_the_bytes_received() {
    let before = address_space("VmSize:");
    let mut header = (MAX_MAX_LEN as u64).to_le_bytes().to_vec();
    header.extend_from_slice(b"\x02{\"name\":");
    let mut decoders: Vec<Decoder> = (0..1000).map(|_| Decoder::new(MAX_MAX_LEN)).collect();
    for decoder in &mut decoders {
        assert_eq!(decoder.feed(&header), Ok(None));
    }
    let grown = address_space("VmSize:") - before;
    assert!(grown < 16 * MIB, "1000 open frames that declare 128 MiB each take {grown} bytes");
    drop(decoders);

    let unit = "{\"a\":1},";
    let objects = unit.repeat(MIB / unit.len());
    let numbers = "1,".repeat(MIB / 2);
    let mut bodies = Vec::new();
    for list in [&objects, &"{},".repeat(MIB / 3), &numbers, &"[],".repeat(MIB / 3), &"\"\",".repeat(MIB / 3)]
    {
        for key in ["buffers", "qp_num", "other", "name", "moonrail"] {
            bodies.push(format!("{{\"{key}\":[{list}0],\"protocol\":\"rdma\"}}"));
        }
    }
    bodies.push(format!("{{{}\"z\":0}}", "\"a\":1,".repeat(MIB / 6)));
    bodies.push(format!("{{\"x\":\"{}\"}}", "\\u0000".repeat(MIB / 6)));
    let before = address_space("VmPeak:");
    for body in &bodies {
        let _ = SegmentDescriptor::from_json(body.as_bytes());
        let _ = ConnectionReply::from_json(body.as_bytes());
        let _ = Notify::from_json(body.as_bytes());
    }
    let grown = address_space("VmPeak:") - before;
    assert!(grown < 16 * MIB, "reading hostile bodies of 1 MiB takes {grown} bytes");
}

fn address_space(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    let kib: usize = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kib * 1024
}
