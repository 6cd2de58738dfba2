//! Data headers and statuses beyond what the captures show.
#![allow(clippy::unwrap_used)]

use moonrail_wire::data::{BadStatus, HEADER_LEN, decode_status, encode_status};
use moonrail_wire::{DataVersion, Op, RequestHeader};

#[test]
fn any_opcode_but_one_is_a_read() {
    for opcode in 0..=u8::MAX {
        let mut bytes = [0; HEADER_LEN];
        bytes[16] = opcode;
        let header = RequestHeader::decode(&bytes);
        assert_eq!(header.op == Op::Write, matches!(opcode, 0x01 | 0x81), "{opcode:#x}");
        assert_eq!(header.version == DataVersion::V2, opcode >= 0x80, "{opcode:#x}");
    }
}

#[test]
fn padding_is_ignored_and_written_as_zero() {
    let bytes = [0xff; HEADER_LEN];
    let header = RequestHeader::decode(&bytes);
    assert_eq!((header.size, header.addr), (u64::MAX, u64::MAX));
    assert_eq!(header.encode()[17..], [0; 7]);
}

#[test]
fn layout_is_little_endian() {
    let header = RequestHeader {
        size: 0x0102_0304_0506_0708,
        addr: 0x1112_1314_1516_1718,
        op: Op::Write,
        version: DataVersion::V2,
    };
    assert_eq!(
        header.encode(),
        [8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x81, 0, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn a_status_has_its_magic() {
    assert_eq!(encode_status(0), *b"\0\0\0\0VTCM");
    assert_eq!(encode_status(1), *b"\x01\0\0\0VTCM");
    assert_eq!(decode_status(b"\x07\0\0\0VTCM"), Ok(7));
    for bytes in [[0; 8], *b"\0\0\0\0VTCm", *b"VTCM\0\0\0\0", [0xff; 8]] {
        assert_eq!(decode_status(&bytes), Err(BadStatus { bytes }));
    }
}
