//! The segments that are registered, each read once for as long as it does not change.
//!
//! Owns what is kept of a descriptor: its figures, not its buffers. Asks nobody.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use moonrail_compat::{Engine, Seen, Side, place_of};
use moonrail_wire::directory::RpcMeta;
use moonrail_wire::segment::SegmentDescriptor;

use super::super::store::{Entry, descriptor_key, split_rpc_key};
use super::text::plain;
use crate::liveness::address_of;

/// One registered segment.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    /// The key of its descriptor; tells it apart from all others.
    pub(super) key: String,
    /// Its key space, such as `mooncake/`.
    pub(super) space: String,
    pub(super) name: String,
    /// `host:port` of its handshake port.
    pub(super) handshake: Option<String>,
    pub(super) descriptor: Descriptor,
    /// Of the later of its two entries.
    pub(super) written: Instant,
    /// What it may be judged by, where it can be read.
    pub(super) side: Option<Side>,
    /// Its engine is on this machine.
    pub(super) is_here: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Descriptor {
    /// It has registered its address and nothing more, or its descriptor was deleted.
    Missing,
    /// Why it cannot be read.
    Unreadable(String),
    Read(Arc<Summary>),
}

/// What is kept of a descriptor.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) release: String,
    engine: Engine,
    pub(super) protocol: String,
    data_host: Option<String>,
    data_port: u16,
    pub(super) data_version: u32,
    pub(super) buffers: usize,
    pub(super) bytes: u64,
    /// Of a Moonrail.
    pub(super) epoch: Option<u64>,
    place: Option<String>,
    /// Where it says that its figures are.
    pub(super) metrics: Option<String>,
}

/// Reads entries of the store, and remembers what it has read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// By key, with the number of the write.
    known: HashMap<String, (u64, Read)>,
}

#[derive(Debug, Clone)]
enum Read {
    Summary(Arc<Summary>),
    Fault(String),
    /// A value that is no descriptor, under a key that need not hold one.
    Other,
}

impl Reader {
    /// All segments, by name.
    pub(super) fn read(&mut self, entries: &[(String, Entry)]) -> Vec<Segment> {
        let here = addresses_of_this_machine();
        let mut segments: BTreeMap<String, Segment> = BTreeMap::new();
        let mut holders: HashMap<String, String> = HashMap::new();
        for (key, entry) in entries {
            if let (Some((space, name)), Some(descriptor)) = (split_rpc_key(key), descriptor_key(key)) {
                let segment = blank(&descriptor, space, name, entry.written);
                if let Ok(meta) = RpcMeta::from_json(&entry.value) {
                    holders.insert(descriptor.clone(), meta.ip_or_host_name.clone());
                    let handshake = plain(&address_of(&meta).to_string(), 300);
                    segments.insert(descriptor, Segment { handshake: Some(handshake), ..segment });
                } else {
                    segments.insert(descriptor, segment);
                }
            }
        }
        for (key, entry) in entries.iter().filter(|(key, _)| split_rpc_key(key).is_none()) {
            let read = self.read_one(key, entry);
            let descriptor = match read {
                Read::Summary(summary) => Descriptor::Read(summary),
                Read::Fault(why) if segments.contains_key(key) => Descriptor::Unreadable(why),
                Read::Fault(_) | Read::Other => continue,
            };
            let (space, name) = key.rsplit_once("ram/").unwrap_or(("", key));
            let segment =
                segments.entry(key.clone()).or_insert_with(|| blank(key, space, name, entry.written));
            segment.written = segment.written.max(entry.written);
            segment.descriptor = descriptor;
        }
        self.forget_all_but(entries);
        let mut segments: Vec<Segment> = segments.into_values().collect();
        for segment in &mut segments {
            let holder = holders.get(&segment.key).map(String::as_str);
            judge(segment, holder.unwrap_or_default(), &here);
        }
        segments.sort_by(|a, b| (&a.name, &a.space).cmp(&(&b.name, &b.space)));
        segments
    }

    fn read_one(&mut self, key: &str, entry: &Entry) -> Read {
        if let Some((change, read)) = self.known.get(key)
            && *change == entry.change
        {
            return read.clone();
        }
        let read = match SegmentDescriptor::from_json(&entry.value) {
            Ok(descriptor) => Read::Summary(Arc::new(Summary::of(&descriptor))),
            Err(error) if entry.value.trim_ascii_start().starts_with(b"{") => {
                Read::Fault(plain(&error.to_string(), 300))
            }
            Err(_) => Read::Other,
        };
        self.known.insert(key.to_owned(), (entry.change, read.clone()));
        read
    }

    fn forget_all_but(&mut self, entries: &[(String, Entry)]) {
        if self.known.len() > entries.len() {
            let alive: HashSet<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
            self.known.retain(|key, _| alive.contains(key.as_str()));
        }
    }
}

fn blank(key: &str, space: &str, name: &str, written: Instant) -> Segment {
    Segment {
        key: key.to_owned(),
        space: plain(space, 200),
        name: plain(name, 200),
        handshake: None,
        descriptor: Descriptor::Missing,
        written,
        side: None,
        is_here: false,
    }
}

/// Where its data port is, and what pairs with it may be judged by. `holder` is the host of its handshake port, which
/// releases before 0.3.13 serve data at too.
fn judge(segment: &mut Segment, holder: &str, here: &[IpAddr]) {
    let Descriptor::Read(summary) = &segment.descriptor else { return };
    let handshake_port =
        segment.handshake.as_ref().and_then(|address| address.rsplit_once(':')?.1.parse().ok());
    let data_host = summary.data_host.clone().unwrap_or_else(|| plain(holder, 300));
    let data_port = match summary.engine {
        Engine::Mooncake(moonrail_compat::Generation::UpTo0_3_4) => {
            handshake_port.and_then(|port: u16| port.checked_add(1)).unwrap_or_default()
        }
        _ => summary.data_port,
    };
    let local = is_here(&data_host, here);
    segment.is_here = local || is_here(holder, here);
    segment.side = Some(Side {
        engine: summary.engine,
        protocol: summary.protocol.clone(),
        data_host,
        data_port,
        handshake_port,
        place: summary.place.clone(),
        local,
    });
}

fn is_here(host: &str, here: &[IpAddr]) -> bool {
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback() || here.contains(&address),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

fn addresses_of_this_machine() -> Vec<IpAddr> {
    if_addrs::get_if_addrs().unwrap_or_default().iter().map(|interface| interface.ip()).collect()
}

impl Summary {
    fn of(descriptor: &SegmentDescriptor) -> Summary {
        let engine = Engine::of(descriptor, Seen::default());
        let extension = descriptor.moonrail.as_ref();
        Summary {
            release: match extension {
                Some(extension) => format!("{engine} {}", plain(&extension.release, 32)),
                None => engine.to_string(),
            },
            engine,
            protocol: plain(&descriptor.protocol, 32),
            data_host: descriptor.tcp_data_host.as_ref().map(|host| plain(host, 300)),
            data_port: descriptor.tcp_data_port,
            data_version: engine.data_version(),
            buffers: descriptor.buffers.len(),
            bytes: descriptor.buffers.iter().fold(0, |sum, buffer| sum.saturating_add(buffer.length)),
            epoch: extension.map(|extension| extension.epoch),
            place: extension.and_then(|extension| place_of(extension.same_host.as_deref()?)),
            metrics: extension.and_then(|extension| extension.metrics.clone()),
        }
    }
}
