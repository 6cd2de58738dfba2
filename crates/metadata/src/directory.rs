//! What every way of finding a peer offers, and the choice among them by the `metadata_server` string.
//!
//! Must not know how a descriptor's data address is then used.

use moonrail_wire::address::HostPort;
use moonrail_wire::directory::RpcMeta;
use moonrail_wire::segment::SegmentDescriptor;

use crate::error::{MetadataError, MetadataErrorKind};
use crate::handshake_client::HandshakeClient;
use crate::http_directory::HttpDirectory;
use crate::p2p::P2pDirectory;

/// The `metadata_server` string that means "ask the peer itself".
pub const P2P: &str = "P2PHANDSHAKE";

/// Turns a segment's name into its descriptor and addresses, and makes our own segment findable.
///
/// Calls block for at most the deadlines of the client given to [`open`], or 3 s for each HTTP request.
pub trait Directory: Send + Sync {
    /// Whether peers ask us for our descriptor on the handshake port; otherwise they read it from a metadata server
    /// and the handshake port answers `null`.
    fn is_p2p(&self) -> bool;

    /// Fetches the descriptor of the segment `name` anew. `own` is what we show of ourselves in return.
    ///
    /// # Errors
    /// The name cannot be read, the peer or the server cannot be reached, or it has no usable descriptor.
    fn lookup(&self, name: &str, own: &SegmentDescriptor) -> Result<Located, MetadataError>;

    /// Where the handshake port of the segment `name` is: for notify and probe.
    ///
    /// # Errors
    /// The name cannot be read, or the metadata server does not have it.
    fn handshake_address(&self, name: &str) -> Result<HostPort, MetadataError>;

    /// Takes `name` for this engine, whose handshake port is `meta`. To be called once, with that port already served.
    ///
    /// # Errors
    /// [`MetadataErrorKind::NameTaken`] where a live engine has the name; failures of the metadata server.
    fn claim(&self, name: &str, meta: &RpcMeta) -> Result<(), MetadataError>;

    /// Makes `own` what peers find under its name, in place of whatever is there.
    ///
    /// # Errors
    /// Failures of the metadata server.
    fn publish(&self, own: &SegmentDescriptor) -> Result<(), MetadataError>;

    /// Announces this engine again where the metadata server has lost it, as one does that was restarted; `true` if it
    /// had. Meant for a timer.
    ///
    /// # Errors
    /// Failures of the metadata server; [`MetadataErrorKind::NameTaken`] where another engine has the name by now.
    fn reannounce(&self, own: &SegmentDescriptor) -> Result<bool, MetadataError>;

    /// Takes back what was claimed and published, unless another engine holds the name by now.
    ///
    /// # Errors
    /// Failures of the metadata server.
    fn withdraw(&self) -> Result<(), MetadataError>;
}

/// A peer that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// What the peer says of itself.
    pub descriptor: SegmentDescriptor,
    /// Its handshake port, where finding the segment told it.
    pub handshake: Option<HostPort>,
    /// The host to dial for data: a name or an address, without brackets.
    pub data_host: String,
    /// The port to dial for data; 0 if the peer has none.
    pub data_port: u16,
}

impl Located {
    /// Settles the data address (Mooncake TE wire, how a client finds the data endpoint). `fallback_host` is for
    /// descriptors without a host of their own.
    pub(crate) fn new(
        descriptor: SegmentDescriptor,
        handshake: Option<HostPort>,
        fallback_host: &str,
    ) -> Located {
        let data_host = match descriptor.tcp_data_host.as_deref() {
            Some(host) if !host.is_empty() => unbracketed(host).to_owned(),
            _ => fallback_host.to_owned(),
        };
        let handshake_port = handshake.as_ref().and_then(|address| address.port);
        let data_port = descriptor.data_port(handshake_port).unwrap_or(0);
        Located { descriptor, handshake, data_host, data_port }
    }
}

/// Opens the directory that `metadata_server` names: `P2PHANDSHAKE`, `http://…` or `https://…`. `cluster_id` sets this
/// cluster's keys apart in a shared metadata server (Mooncake: `MC_METADATA_CLUSTER_ID`). Nothing is connected yet.
///
/// # Errors
/// [`MetadataErrorKind::Unsupported`] for etcd and redis, [`MetadataErrorKind::BadAddress`] for what names nothing.
pub fn open(
    metadata_server: &str,
    cluster_id: Option<&str>,
    client: HandshakeClient,
) -> Result<Box<dyn Directory>, MetadataError> {
    let fail = |kind, text: String| Err(MetadataError::new(kind, metadata_server, text));
    if metadata_server == P2P {
        return Ok(Box::new(P2pDirectory::new(client)));
    }
    if metadata_server.eq_ignore_ascii_case(P2P) {
        return fail(
            MetadataErrorKind::BadAddress,
            format!("write the peer-to-peer mode as {P2P}, in capitals"),
        );
    }
    if metadata_server.is_empty() {
        let text = format!("no metadata server given: use {P2P} or http://host:port/metadata");
        return fail(MetadataErrorKind::BadAddress, text);
    }
    match metadata_server.split_once("://") {
        Some(("http" | "https", _)) => Ok(Box::new(HttpDirectory::new(metadata_server, cluster_id, client)?)),
        Some((scheme @ ("etcd" | "redis"), _)) => fail(
            MetadataErrorKind::Unsupported,
            format!("no {scheme} plugin in this build: use {P2P} or http://host:port/metadata"),
        ),
        Some((scheme, _)) => fail(
            MetadataErrorKind::BadAddress,
            format!("unknown metadata scheme {scheme:?}: use {P2P} or http://host:port/metadata"),
        ),
        None => match metadata_server.split([';', ',']).next().unwrap_or_default().parse::<HostPort>() {
            Ok(HostPort { port: Some(_), .. }) => fail(
                MetadataErrorKind::Unsupported,
                format!(
                    "a bare host:port means an etcd server, and there is no etcd plugin in this build: \
                     use {P2P} or http://host:port/metadata"
                ),
            ),
            _ => fail(
                MetadataErrorKind::BadAddress,
                format!("not a metadata server: use {P2P} or http://host:port/metadata"),
            ),
        },
    }
}

/// Genuine peers strip leading slashes from a segment name before they open it.
pub(crate) fn segment_name(name: &str) -> Result<&str, MetadataError> {
    let stripped = name.trim_start_matches('/');
    if stripped.is_empty() {
        return Err(MetadataError::new(MetadataErrorKind::BadAddress, name, "the segment name is empty"));
    }
    Ok(stripped)
}

/// A host as some publish it, `[::1]`, without its brackets.
pub(crate) fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host)
}
