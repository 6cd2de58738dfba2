//! The directory without a server: a segment's name is its handshake address, and the peer itself is asked.

use moonrail_wire::address::HostPort;
use moonrail_wire::directory::RpcMeta;
use moonrail_wire::segment::SegmentDescriptor;

use crate::directory::{Directory, Located, segment_name};
use crate::error::{MetadataError, MetadataErrorKind};
use crate::handshake_client::HandshakeClient;

/// Peer-to-peer mode (`P2PHANDSHAKE`).
#[derive(Debug)]
pub struct P2pDirectory {
    client: HandshakeClient,
}

impl P2pDirectory {
    /// A directory that asks peers through `client`.
    pub fn new(client: HandshakeClient) -> P2pDirectory {
        P2pDirectory { client }
    }
}

impl Directory for P2pDirectory {
    fn is_p2p(&self) -> bool {
        true
    }

    fn lookup(&self, name: &str, own: &SegmentDescriptor) -> Result<Located, MetadataError> {
        let address = self.handshake_address(name)?;
        let descriptor = self.client.exchange_metadata(&address, own)?;
        let host = address.host.clone();
        Ok(Located::new(descriptor, Some(address), &host))
    }

    fn handshake_address(&self, name: &str) -> Result<HostPort, MetadataError> {
        let mut address = segment_name(name)?
            .parse::<HostPort>()
            .map_err(|error| MetadataError::new(MetadataErrorKind::BadAddress, name, error.to_string()))?;
        address.port.get_or_insert(self.client.default_port);
        if address.port == Some(0) {
            return Err(MetadataError::new(
                MetadataErrorKind::BadAddress,
                name,
                "port 0 cannot be connected to",
            ));
        }
        Ok(address)
    }

    fn claim(&self, _name: &str, _meta: &RpcMeta) -> Result<(), MetadataError> {
        // The name is the address, and the port is ours.
        Ok(())
    }

    fn publish(&self, _own: &SegmentDescriptor) -> Result<(), MetadataError> {
        // Peers ask the handshake server, which always has the present descriptor.
        Ok(())
    }

    fn reannounce(&self, _own: &SegmentDescriptor) -> Result<bool, MetadataError> {
        Ok(false)
    }

    fn withdraw(&self) -> Result<(), MetadataError> {
        Ok(())
    }
}
