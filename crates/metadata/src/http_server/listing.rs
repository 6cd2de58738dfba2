//! What is registered, for people and programs that look at the metadata server with a browser or curl.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use moonrail_wire::directory::RpcMeta;
use moonrail_wire::segment::SegmentDescriptor;
use serde_json::{Value, json};

use super::store::{Entry, Store, descriptor_key, split_rpc_key};
use crate::liveness::address_of;

/// One engine, as far as its entries tell.
#[derive(Debug)]
pub(super) struct Segment {
    /// The key space, such as `mooncake/`.
    space: String,
    name: String,
    handshake: Option<String>,
    descriptor: Option<SegmentDescriptor>,
    seconds_since_write: u64,
}

/// What [`collect`] works on: a cheap copy of the store, so that reading thousands of descriptors holds nobody up.
pub(super) fn snapshot(store: &Store) -> Vec<(String, Entry)> {
    store.entries().map(|(key, entry)| (key.clone(), entry.clone())).collect()
}

pub(super) fn collect(entries: &[(String, Entry)]) -> Vec<Segment> {
    let mut segments: BTreeMap<String, Segment> = BTreeMap::new();
    for (key, entry) in entries {
        let seconds = entry.written.elapsed().as_secs();
        if let (Some((space, name)), Some(descriptor)) = (split_rpc_key(key), descriptor_key(key)) {
            let segment = segments.entry(descriptor).or_insert_with(|| Segment::new(space, name, seconds));
            segment.handshake =
                RpcMeta::from_json(&entry.value).ok().map(|meta| address_of(&meta).to_string());
            segment.seconds_since_write = segment.seconds_since_write.min(seconds);
        } else if let Ok(descriptor) = SegmentDescriptor::from_json(&entry.value) {
            let (space, name) = key.rsplit_once("ram/").unwrap_or(("", key));
            let segment = segments.entry(key.clone()).or_insert_with(|| Segment::new(space, name, seconds));
            segment.descriptor = Some(descriptor);
            segment.seconds_since_write = segment.seconds_since_write.min(seconds);
        }
    }
    segments.into_values().collect()
}

impl Segment {
    fn new(space: &str, name: &str, seconds: u64) -> Segment {
        Segment {
            space: space.to_owned(),
            name: name.to_owned(),
            handshake: None,
            descriptor: None,
            seconds_since_write: seconds,
        }
    }
}

/// One line a segment.
pub(super) fn to_text(segments: &[Segment]) -> String {
    let mut text = format!("{} segments\n", segments.len());
    for segment in segments {
        let handshake = segment.handshake.as_deref().unwrap_or("none");
        let space = segment.space.escape_debug();
        let _ = write!(text, "{:?} in {space} handshake {}", segment.name, handshake.escape_debug());
        if let Some(descriptor) = &segment.descriptor {
            let bytes = registered(descriptor);
            let host = descriptor.tcp_data_host.as_deref().unwrap_or("");
            let _ = write!(
                text,
                " protocol {} data {}:{} buffers {} bytes {bytes} release {}",
                descriptor.protocol.escape_debug(),
                host.escape_debug(),
                descriptor.tcp_data_port,
                descriptor.buffers.len(),
                descriptor.release_line(),
            );
        } else {
            text.push_str(" no descriptor");
        }
        let _ = writeln!(text, " written {} s ago", segment.seconds_since_write);
    }
    text
}

pub(super) fn to_json(segments: &[Segment]) -> String {
    let one = |segment: &Segment| {
        let descriptor = segment.descriptor.as_ref();
        json!({
            "space": segment.space,
            "name": segment.name,
            "handshake": segment.handshake,
            "protocol": descriptor.map(|d| d.protocol.as_str()),
            "data_host": descriptor.and_then(|d| d.tcp_data_host.as_deref()),
            "data_port": descriptor.map(|d| d.tcp_data_port),
            "buffers": descriptor.map(|d| d.buffers.len()),
            "bytes": descriptor.map(registered),
            "release": descriptor.map(|d| d.release_line().to_string()),
            "seconds_since_write": segment.seconds_since_write,
        })
    };
    let mut text = json!({ "segments": segments.iter().map(one).collect::<Vec<Value>>() }).to_string();
    text.push('\n');
    text
}

fn registered(descriptor: &SegmentDescriptor) -> u64 {
    descriptor.buffers.iter().fold(0, |sum, buffer| sum.saturating_add(buffer.length))
}
