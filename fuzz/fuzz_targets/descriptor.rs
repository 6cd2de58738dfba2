//! Segment descriptors: what was read keeps its promises, and is written and read again to the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moonrail_wire::SegmentDescriptor;

fuzz_target!(|body: &[u8]| {
    let Ok(descriptor) = SegmentDescriptor::from_json(body) else { return };
    assert!(!descriptor.protocol.is_empty());
    assert_ne!(descriptor.tcp_data_host.as_deref(), Some(""));
    assert_ne!(descriptor.data_port(Some(15_000)), Some(0));
    for buffer in &descriptor.buffers {
        assert!(!buffer.name.is_empty() && buffer.addr != 0 && buffer.length != 0);
        assert!(buffer.addr.checked_add(buffer.length).is_some());
    }
    assert_eq!(SegmentDescriptor::from_json(&descriptor.to_json()).as_ref(), Ok(&descriptor));
    assert_eq!(SegmentDescriptor::from_json(&descriptor.to_http_json()), Ok(descriptor));
});
