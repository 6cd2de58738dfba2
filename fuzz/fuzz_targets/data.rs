//! Data header and status: any bytes decode, and encode to what means the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moonrail_wire::RequestHeader;
use moonrail_wire::data::{HEADER_LEN, STATUS_LEN, decode_status, encode_status};

fuzz_target!(|input: &[u8]| {
    if let Some(bytes) = input.first_chunk::<HEADER_LEN>() {
        let header = RequestHeader::decode(bytes);
        let encoded = header.encode();
        assert_eq!(RequestHeader::decode(&encoded), header);
        assert_eq!(encoded[..16], bytes[..16]);
    }
    if let Some(bytes) = input.first_chunk::<STATUS_LEN>() {
        match decode_status(bytes) {
            Ok(code) => assert_eq!(encode_status(code), *bytes),
            Err(error) => assert_eq!(error.bytes, *bytes),
        }
    }
});
