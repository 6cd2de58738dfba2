//! The keys and values of a metadata server, within their limits. Knows no HTTP and asks nobody.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::body::Bytes;
use moonrail_wire::directory::RpcMeta;

use super::ServerLimits;

/// Genuine servers do not replace a key with this in it.
const UNIQUE: &str = "rpc_meta";

#[derive(Debug)]
pub(super) struct Store {
    entries: BTreeMap<String, Entry>,
    /// Length of all keys and values.
    bytes: usize,
    changes: u64,
    limits: ServerLimits,
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) value: Bytes,
    pub(super) written: Instant,
    /// Grows with each write to the store.
    pub(super) change: u64,
    /// For unique keys, where the value can be read.
    owner: Option<RpcMeta>,
}

/// What became of a write.
#[derive(Debug)]
pub(super) enum Written {
    Done,
    /// No room within the limits.
    Full,
    /// The key is unique and taken; ask its owner whether it lives, and then call [`Store::replace`].
    Taken(Taken),
}

/// The holder of a unique key at one point in time.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    /// Where to ask, if the entry says so.
    pub(super) owner: Option<RpcMeta>,
    /// Its descriptor, if it has published one.
    pub(super) segment: Option<Bytes>,
    change: u64,
}

impl Store {
    pub(super) fn new(limits: ServerLimits) -> Store {
        Store { entries: BTreeMap::new(), bytes: 0, changes: 0, limits }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter()
    }

    pub(super) fn remove(&mut self, key: &str) -> bool {
        let Some(old) = self.entries.remove(key) else { return false };
        self.bytes -= key.len() + old.value.len();
        true
    }

    /// Writes, unless the key is unique and another address holds it.
    pub(super) fn put(&mut self, key: &str, value: Bytes) -> Written {
        if !key.contains(UNIQUE) {
            return self.write(key, value, None);
        }
        let owner = RpcMeta::from_json(&value).ok().filter(|meta| meta.rpc_port != 0);
        if let Some(old) = self.entries.get(key) {
            // An address belongs to one engine: the same one again is that engine, or the next at its old place.
            let same = owner.is_some() && old.owner == owner;
            if !same && !self.has_moved(key, old) {
                let segment = descriptor_key(key)
                    .and_then(|key| self.entries.get(&key))
                    .map(|entry| entry.value.clone());
                return Written::Taken(Taken { owner: old.owner.clone(), segment, change: old.change });
            }
        }
        self.write_unique(key, value, owner)
    }

    /// Writes a unique key whose holder is gone; if another holds it by now, as [`Store::put`].
    pub(super) fn replace(&mut self, key: &str, value: Bytes, gone: &Taken) -> Written {
        if self.entries.get(key).is_some_and(|old| old.change != gone.change) {
            return self.put(key, value);
        }
        let owner = RpcMeta::from_json(&value).ok().filter(|meta| meta.rpc_port != 0);
        self.write_unique(key, value, owner)
    }

    /// Whether the address in this entry was registered under another name later: then its engine is another one now.
    fn has_moved(&self, key: &str, entry: &Entry) -> bool {
        let Some(address) = &entry.owner else { return false };
        self.entries.iter().any(|(other, later)| {
            other != key && later.change > entry.change && later.owner.as_ref() == Some(address)
        })
    }

    /// An engine registers its address first and its descriptor after that, so a descriptor that is already there is
    /// an earlier engine's. Genuine engines would take its buffers over and publish them as their own.
    fn write_unique(&mut self, key: &str, value: Bytes, owner: Option<RpcMeta>) -> Written {
        let written = self.write(key, value, owner);
        if matches!(written, Written::Done)
            && let Some(descriptor) = descriptor_key(key)
        {
            self.remove(&descriptor);
        }
        written
    }

    fn write(&mut self, key: &str, value: Bytes, owner: Option<RpcMeta>) -> Written {
        let old = self.entries.get(key).map(|entry| key.len() + entry.value.len());
        let bytes = self.bytes - old.unwrap_or(0) + key.len() + value.len();
        if bytes > self.limits.total || (old.is_none() && self.entries.len() >= self.limits.keys) {
            return Written::Full;
        }
        self.bytes = bytes;
        self.changes += 1;
        let entry = Entry { value, written: Instant::now(), change: self.changes, owner };
        self.entries.insert(key.to_owned(), entry);
        Written::Done
    }
}

/// `<prefix>` and `<name>` of the key `<prefix>rpc_meta/<name>`.
pub(super) fn split_rpc_key(key: &str) -> Option<(&str, &str)> {
    key.split_once("rpc_meta/")
        .filter(|(prefix, name)| (prefix.is_empty() || prefix.ends_with('/')) && !name.is_empty())
}

/// Where the descriptor of the engine with this `rpc_meta` key is (Mooncake TE wire, keys and values).
pub(super) fn descriptor_key(rpc_key: &str) -> Option<String> {
    let (prefix, name) = split_rpc_key(rpc_key)?;
    let kind = if name.contains('/') { "" } else { "ram/" };
    Some(format!("{prefix}{kind}{name}"))
}
