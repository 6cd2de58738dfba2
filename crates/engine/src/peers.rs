//! What is known of each peer, and whether it can still be believed.
//!
//! Owns: the views made from peers' descriptors, and the check of remote ranges against them.
//! Must not know: how descriptors are fetched, how bytes move.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use foldhash::HashMap;
use moonrail_access::{Allow, Tls};
use moonrail_compat::Seen;
use moonrail_metadata::Located;
use moonrail_shm::ShmPeer;
use moonrail_transport::{Code, Dialect, Entry, Error, Retry, Stage, Target};
use moonrail_wire::address::HostPort;
use moonrail_wire::auth::{FEATURE_KEY, FEATURE_TLS};
use moonrail_wire::data::DataVersion;
use moonrail_wire::rail;
use moonrail_wire::segment::{PROTOCOL_TCP, SegmentDescriptor};
use parking_lot::RwLock;

use crate::metrics::PeerMetrics;

/// What this engine speaks to peers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Speaks<'a> {
    /// Only data protocol v1.
    pub force_v1: bool,
    /// With a shared key: what is allowed without it.
    pub access: Option<Allow>,
    /// TLS, unless something else is allowed.
    pub tls: Option<&'a Tls>,
}

/// A peer's descriptor, in the shape that transfers need. Never changes; a new fetch makes a new view.
pub(crate) struct View {
    pub target: Target,
    /// The peer as the same-host path knows it, if it is on this host.
    pub near: Option<Arc<ShmPeer>>,
    /// The peer's figures, where some are kept.
    pub metrics: Option<Arc<PeerMetrics>>,
    pub descriptor: SegmentDescriptor,
    pub handshake: Option<HostPort>,
    /// When the fetch began that brought it.
    pub fetched: Instant,
    /// Start and end of each buffer, by start.
    ranges: Vec<(u64, u64)>,
}

impl View {
    /// Makes the view, resolving the data host.
    pub(crate) fn new(
        name: &str,
        located: Located,
        fetched: Instant,
        generation: u64,
        speaks: Speaks<'_>,
    ) -> Result<Self, Error> {
        let Located { descriptor, handshake, data_host, data_port } = located;
        if descriptor.protocol != PROTOCOL_TCP {
            let message = format!(
                "its segment speaks {:?}, and this build only tcp; start it with protocol tcp (MC_FORCE_TCP=1)",
                descriptor.protocol
            );
            return Err(resolve_error(Code::UnsupportedPeer, name, message));
        }
        if data_port == 0 {
            return Err(resolve_error(
                Code::UnsupportedPeer,
                name,
                "its descriptor names no data port".to_owned(),
            ));
        }
        let addresses = resolve(&data_host, data_port).map_err(|error| {
            resolve_error(Code::NameResolution, name, format!("data host {data_host:?}: {error}"))
        })?;
        let dialect = dialect(name, &descriptor, speaks)?;
        // Whom the caller meant, not whom the descriptor names: it says so of itself.
        let host = handshake.as_ref().map_or(data_host.as_str(), |handshake| &handshake.host);
        let tls = certificate_name(name, &descriptor, dialect, host, speaks.tls)?;
        let mut ranges: Vec<(u64, u64)> = descriptor
            .buffers
            .iter()
            .map(|buffer| (buffer.addr, buffer.addr.saturating_add(buffer.length)))
            .collect();
        ranges.sort_unstable();
        let same_host = descriptor.moonrail.as_ref().and_then(|extension| extension.same_host.clone());
        let same_host = same_host.filter(|_| !speaks.force_v1);
        let target = Target { name: name.to_owned(), addresses, dialect, tls, generation, same_host };
        Ok(Self { target, near: None, metrics: None, descriptor, handshake, fetched, ranges })
    }

    /// The epoch of a Moonrail peer.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.descriptor.moonrail.as_ref().map(|extension| extension.epoch)
    }

    /// The first entry whose remote range does not lie inside one buffer of the peer.
    pub(crate) fn first_outside(&self, entries: &[Entry]) -> Option<usize> {
        let mut hint = 0;
        entries.iter().position(|entry| entry.len > 0 && !self.holds(entry.remote, entry.len, &mut hint))
    }

    fn holds(&self, addr: u64, len: u64, hint: &mut usize) -> bool {
        let Some(end) = addr.checked_add(len) else { return false };
        let inside = |range: Option<&(u64, u64)>| range.is_some_and(|&(from, to)| from <= addr && end <= to);
        if inside(self.ranges.get(*hint)) {
            return true;
        }
        let behind = self.ranges.partition_point(|&(from, _)| from <= addr);
        let Some(slot) = behind.checked_sub(1) else { return false };
        *hint = slot;
        inside(self.ranges.get(slot))
    }

    /// The refusal of an entry that lies outside, naming what the peer has nearby.
    pub(crate) fn outside(&self, index: usize, entries: &[Entry], earlier_epoch: Option<u64>) -> Error {
        let Entry { remote, len, .. } = entries[index];
        let near = self.ranges.partition_point(|&(from, _)| from <= remote);
        let nearest =
            near.checked_sub(1).or((!self.ranges.is_empty()).then_some(0)).map(|slot| self.ranges[slot]);
        let nearest = match nearest {
            None => "it has registered no buffer".to_owned(),
            Some((from, to)) => format!(
                "the nearest of its {} buffers is {from:#x}..{to:#x} ({} bytes)",
                self.ranges.len(),
                to - from
            ),
        };
        let restarted = match (earlier_epoch, self.epoch()) {
            (Some(before), Some(now)) if before != now => {
                "; the peer was restarted since its addresses were last seen: ask it for its new ones"
            }
            _ => "",
        };
        let message = format!(
            "the remote range {remote:#x} + {len} bytes does not lie inside one buffer that the peer has registered: \
             {nearest}{restarted}"
        );
        let error = Error::new(Code::RemoteNotRegistered, Stage::Arguments, Retry::AfterFix, message)
            .with_peer(&self.target.name);
        if entries.len() > 1 { error.with_index(index) } else { error }
    }
}

/// The views of all peers by the name they were opened under. Every call looks one up, so the hash is a quick one; the names
/// are this program's own.
#[derive(Default)]
pub(crate) struct Peers {
    views: RwLock<HashMap<String, Arc<View>>>,
    /// What was seen of peers beside their descriptors.
    seen: RwLock<HashMap<String, Seen>>,
    /// The epoch that each Moonrail was last met in. Views are dropped when they are in doubt; this is not.
    epochs: RwLock<HashMap<String, u64>>,
    generation: AtomicU64,
}

impl Peers {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<View>> {
        self.views.read().get(name).cloned()
    }

    /// What `with` makes of a peer's view, if there is one and no thread is changing what is known now. Whoever would,
    /// waits meanwhile.
    #[inline]
    pub(crate) fn with_now<T>(&self, name: &str, with: impl FnOnce(&View) -> Option<T>) -> Option<T> {
        self.views.try_read()?.get(name).and_then(|view| with(view))
    }

    /// The names of the peers that are known, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.views.read().keys().cloned().collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn seen(&self, name: &str) -> Seen {
        self.seen.read().get(name).copied().unwrap_or_default()
    }

    /// Notes how a peer answered a probe.
    pub(crate) fn probed(&self, name: &str, answers_probe: bool) {
        if self.seen(name).answers_probe != Some(answers_probe) {
            self.seen.write().entry(name.to_owned()).or_default().answers_probe = Some(answers_probe);
        }
    }

    /// Notes the epoch that a peer was met in; whether it was another one before.
    pub(crate) fn restarted(&self, name: &str, epoch: u64) -> bool {
        if self.epochs.read().get(name) == Some(&epoch) {
            return false;
        }
        self.epochs.write().insert(name.to_owned(), epoch).is_some_and(|before| before != epoch)
    }

    pub(crate) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Keeps a new view; returns the one it replaces.
    pub(crate) fn put(&self, view: Arc<View>) -> Option<Arc<View>> {
        let mut views = self.views.write();
        match views.get(&view.target.name) {
            Some(newer) if newer.target.generation > view.target.generation => None,
            _ => views.insert(view.target.name.clone(), view),
        }
    }

    /// Drops the view if it is still the one of `generation`.
    pub(crate) fn drop_view(&self, name: &str, generation: u64) {
        let mut views = self.views.write();
        if views.get(name).is_some_and(|view| view.target.generation == generation) {
            views.remove(name);
        }
    }
}

/// The best of what both speak. With a key, what knows none is only spoken where that is allowed: a descriptor from which
/// somebody took the key's feature bit does not get by.
fn dialect(name: &str, descriptor: &SegmentDescriptor, speaks: Speaks<'_>) -> Result<Dialect, Error> {
    let extension = descriptor.moonrail.as_ref();
    let offer = extension.and_then(|extension| Some((extension.epoch, extension.rail?)));
    let rail = offer.filter(|(_, offer)| (offer.min..=offer.max).contains(&rail::VERSION));
    let proves = rail.is_some_and(|(_, offer)| offer.features & FEATURE_KEY != 0);
    if speaks.access.is_some_and(|allow| !allow.mooncake) && (!proves || speaks.force_v1) {
        let message = "the peer does not offer to prove the shared key: it has none, or its descriptor was changed \
                       (MOONRAIL_ALLOW=mooncake allows such peers)";
        return Err(resolve_error(Code::PeerUnproven, name, message.to_owned()));
    }
    Ok(match (rail, descriptor.data_version()) {
        _ if speaks.force_v1 => Dialect::MooncakeV1,
        // A lane to a peer without the key would not open: ours asks for the proof.
        (Some((epoch, _)), _) if speaks.access.is_none() || proves => Dialect::Rail { epoch },
        (_, DataVersion::V2) => Dialect::MooncakeV2,
        (_, DataVersion::V1) => Dialect::MooncakeV1,
    })
}

/// The name that the certificate of a peer at `host` has to be for; `None`: it is spoken to in clear. A descriptor from which
/// somebody took the offer of TLS does not get by, unless bytes in clear are allowed.
fn certificate_name(
    name: &str,
    descriptor: &SegmentDescriptor,
    dialect: Dialect,
    host: &str,
    tls: Option<&Tls>,
) -> Result<Option<Arc<str>>, Error> {
    let Some(tls) = tls else { return Ok(None) };
    let rail = matches!(dialect, Dialect::Rail { .. });
    let offer = descriptor.moonrail.as_ref().and_then(|extension| extension.rail);
    if rail && offer.is_some_and(|offer| offer.features & FEATURE_TLS != 0) {
        return Ok(Some(tls.expected(host).into()));
    }
    let allow = tls.allow();
    if if rail { allow.without_tls() } else { allow.mooncake } {
        return Ok(None);
    }
    let message = "the peer does not offer TLS: it has none, or its descriptor was changed (MOONRAIL_ALLOW=clear allows \
                   such peers)";
    Err(resolve_error(Code::TlsNotOffered, name, message.to_owned()))
}

fn resolve(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
    if addresses.is_empty() { Err(std::io::ErrorKind::NotFound.into()) } else { Ok(addresses) }
}

fn resolve_error(code: Code, name: &str, message: String) -> Error {
    Error::new(code, Stage::Resolve, Retry::AfterFix, message).with_peer(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn view(buffers: &[(u64, u64)]) -> View {
        let json = format!(
            r#"{{"name":"127.0.0.1:1","protocol":"tcp","tcp_data_port":2,"tcp_data_host":"127.0.0.1","tcp_proto_version":2,"buffers":[{}]}}"#,
            buffers
                .iter()
                .map(|(addr, length)| format!(r#"{{"name":"n","addr":{addr},"length":{length}}}"#))
                .collect::<Vec<_>>()
                .join(",")
        );
        let descriptor = SegmentDescriptor::from_json(json.as_bytes()).unwrap();
        let located =
            Located { descriptor, handshake: None, data_host: "127.0.0.1".to_owned(), data_port: 2 };
        View::new("127.0.0.1:1", located, Instant::now(), 1, Speaks::default()).unwrap()
    }

    fn entry(remote: u64, len: u64) -> Entry {
        Entry { local: 0, remote, len }
    }

    #[test]
    fn a_range_must_lie_inside_one_buffer() {
        let view = view(&[(200, 100), (100, 100), (400, 10)]);
        let good = [entry(100, 100), entry(299, 1), entry(400, 10), entry(7, 0)];
        assert_eq!(view.first_outside(&good), None);
        for bad in [entry(199, 2), entry(99, 1), entry(300, 1), entry(405, 6), entry(u64::MAX, 2)] {
            assert_eq!(view.first_outside(&[good[0], bad]), Some(1), "{bad:?}");
        }
    }

    #[test]
    fn the_refusal_names_the_nearest_buffer() {
        let error = view(&[(100, 100)]).outside(0, &[entry(0x1000, 4)], None);
        assert_eq!(error.code(), Code::RemoteNotRegistered);
        assert!(error.to_string().contains("0x64..0xc8"), "{error}");
    }
}
