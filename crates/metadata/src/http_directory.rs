//! The directory behind an HTTP metadata server, genuine or ours.

use moonrail_wire::address::HostPort;
use moonrail_wire::directory::{KeySpace, RpcMeta};
use moonrail_wire::segment::SegmentDescriptor;
use parking_lot::Mutex;

use crate::directory::{Directory, Located, segment_name, unbracketed};
use crate::error::{MetadataError, MetadataErrorKind};
use crate::handshake_client::HandshakeClient;
use crate::http_client::{KeyValueClient, Put};
use crate::liveness::{self, Owner};

/// How often a claim starts over because the entry changed under its hands.
const ATTEMPTS: usize = 4;

/// A directory in an HTTP metadata server. Entries there have no lifetime, so a crashed engine's stay behind: a claim
/// finds out whether their owner lives and clears them away if not.
#[derive(Debug)]
pub struct HttpDirectory {
    server: KeyValueClient,
    keys: KeySpace,
    client: HandshakeClient,
    claimed: Mutex<Option<(String, RpcMeta)>>,
}

impl HttpDirectory {
    /// `url` is the whole address, such as `http://host:8080/metadata`; `client` is used to ask whether the owner of a
    /// taken name lives. Nothing is connected yet.
    ///
    /// # Errors
    /// [`MetadataErrorKind::BadAddress`] where `url` is no URL with a host.
    pub fn new(
        url: &str,
        cluster_id: Option<&str>,
        client: HandshakeClient,
    ) -> Result<HttpDirectory, MetadataError> {
        let server = KeyValueClient::new(url)?;
        Ok(HttpDirectory { server, keys: KeySpace::new(cluster_id), client, claimed: Mutex::new(None) })
    }

    fn rpc_meta(&self, name: &str) -> Result<Option<RpcMeta>, MetadataError> {
        let Some(value) = self.server.get(&self.keys.rpc_meta(name))? else { return Ok(None) };
        RpcMeta::from_json(&value).map(Some).map_err(|error| {
            let text = format!("unreadable rpc_meta entry in the metadata server: {error}");
            MetadataError::new(MetadataErrorKind::Protocol, name, text)
        })
    }

    /// Makes room where the name was taken: `Ok` if the claim is worth repeating.
    fn evict(&self, name: &str, old: &[u8]) -> Result<(), MetadataError> {
        let segment = self.server.get(&self.keys.ram(name))?;
        let owner = match RpcMeta::from_json(old) {
            Ok(meta) => match liveness::ask(&meta, segment.as_deref(), &self.client) {
                Owner::Alive => {
                    let address = liveness::address_of(&meta);
                    let text =
                        format!("the name is taken by a live engine, whose handshake port is {address}");
                    return Err(MetadataError::new(MetadataErrorKind::NameTaken, name, text));
                }
                Owner::Gone(reason) => format!("{}: {reason}", liveness::address_of(&meta)),
            },
            Err(error) => format!("unreadable entry: {error}"),
        };
        let key = self.keys.rpc_meta(name);
        // Another engine may have had the same idea, and be the owner by now.
        if self.server.get(&key)?.as_deref() == Some(old) {
            self.server.delete(&self.keys.ram(name))?;
            self.server.delete(&key)?;
            tracing::warn!(name, owner, "replaced the metadata entries of an engine that is gone");
        }
        Ok(())
    }
}

impl Directory for HttpDirectory {
    fn is_p2p(&self) -> bool {
        false
    }

    fn lookup(&self, name: &str, _own: &SegmentDescriptor) -> Result<Located, MetadataError> {
        let name = segment_name(name)?;
        let Some(value) = self.server.get(&self.keys.ram(name))? else {
            return Err(not_found(name, self.server.url()));
        };
        let descriptor = SegmentDescriptor::from_json(&value)
            .map_err(|error| MetadataError::new(MetadataErrorKind::Protocol, name, error.to_string()))?;
        let self_contained = descriptor.tcp_data_host.as_deref().is_some_and(|host| !host.is_empty());
        if self_contained {
            return Ok(Located::new(descriptor, None, ""));
        }
        let address = self.handshake_address(name)?;
        let host = address.host.clone();
        Ok(Located::new(descriptor, Some(address), &host))
    }

    fn handshake_address(&self, name: &str) -> Result<HostPort, MetadataError> {
        let name = segment_name(name)?;
        let meta = self.rpc_meta(name)?.ok_or_else(|| not_found(name, self.server.url()))?;
        if meta.ip_or_host_name.is_empty() || meta.rpc_port == 0 {
            let text = "the metadata server has no usable handshake address for this segment";
            return Err(MetadataError::new(MetadataErrorKind::Protocol, name, text));
        }
        Ok(HostPort::new(unbracketed(&meta.ip_or_host_name), meta.rpc_port))
    }

    fn claim(&self, name: &str, meta: &RpcMeta) -> Result<(), MetadataError> {
        let name = segment_name(name)?;
        let key = self.keys.rpc_meta(name);
        let mut said = String::new();
        for _ in 0..ATTEMPTS {
            let mut ours = match self.server.put(&key, &meta.to_json())? {
                Put::Done => true,
                Put::Refused(text) => {
                    said = text;
                    false
                }
            };
            if !ours {
                // Not there after all: its owner has just left, or the server refuses for another reason.
                let Some(old) = self.server.get(&key)? else { continue };
                // Whoever had our address before us cannot have it now.
                ours = RpcMeta::from_json(&old).is_ok_and(|old| old == *meta);
                if !ours {
                    self.evict(name, &old)?;
                }
            }
            if ours {
                *self.claimed.lock() = Some((name.to_owned(), meta.clone()));
                return Ok(());
            }
        }
        Err(self.server.unexpected("PUT", 400, said.as_bytes()))
    }

    fn publish(&self, own: &SegmentDescriptor) -> Result<(), MetadataError> {
        match self.server.put(&self.keys.ram(segment_name(&own.name)?), &own.to_json())? {
            Put::Done => Ok(()),
            Put::Refused(text) => Err(self.server.unexpected("PUT", 400, text.as_bytes())),
        }
    }

    fn reannounce(&self, own: &SegmentDescriptor) -> Result<bool, MetadataError> {
        let Some((name, meta)) = self.claimed.lock().clone() else { return Ok(false) };
        match self.rpc_meta(&name)? {
            Some(present) if present != meta => {
                let text = format!(
                    "another engine has taken the name; its port is {}",
                    liveness::address_of(&present)
                );
                return Err(MetadataError::new(MetadataErrorKind::NameTaken, name, text));
            }
            Some(_) if self.server.get(&self.keys.ram(&name))?.is_some() => return Ok(false),
            Some(_) => {}
            None => self.claim(&name, &meta)?,
        }
        self.publish(own)?;
        tracing::info!(name, "announced again: the metadata server had lost this engine");
        Ok(true)
    }

    fn withdraw(&self) -> Result<(), MetadataError> {
        let Some((name, meta)) = self.claimed.lock().take() else { return Ok(()) };
        match self.rpc_meta(&name)? {
            Some(present) if present != meta => return Ok(()),
            _ => {}
        }
        self.server.delete(&self.keys.rpc_meta(&name))?;
        self.server.delete(&self.keys.ram(&name))?;
        Ok(())
    }
}

fn not_found(name: &str, url: &str) -> MetadataError {
    let text = format!("no such segment in the metadata server {url}");
    MetadataError::new(MetadataErrorKind::NotFound, name, text)
}
