//! JSON bodies: what was read is written and read again to the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moonrail_wire::handshake::{ConnectionReply, Notify, NotifyReply, ProbeReply};
use moonrail_wire::{RpcMeta, json};

fuzz_target!(|body: &[u8]| {
    let shape = json::shape_of(body);
    let object = matches!(shape, Ok("an object" | "null"));
    assert_eq!(json::check_object(body).is_ok(), object);
    if let Ok(notify) = Notify::from_json(body) {
        assert!(object);
        assert_eq!(NotifyReply::from_json(body), Ok(NotifyReply { accepted: !notify.message.is_empty() }));
        assert_eq!(Notify::from_json(&notify.to_json()), Ok(notify));
    }
    if let Ok(reply) = ProbeReply::from_json(body) {
        assert_eq!(ProbeReply::from_json(&reply.to_json()), Ok(reply));
    }
    if let Ok(reply) = ConnectionReply::from_json(body) {
        assert_eq!(ConnectionReply::from_json(&reply.to_json()), Ok(reply));
    }
    if let Ok(meta) = RpcMeta::from_json(body) {
        assert_eq!(RpcMeta::from_json(&meta.to_json()), Ok(meta));
    }
});
