//! The answers of this engine's handshake port.

use std::sync::Arc;

use moonrail_access::Telling;
use moonrail_metadata::HandshakeHandler;
use moonrail_wire::data::DataVersion;
use moonrail_wire::handshake::Notify;
use moonrail_wire::segment::SegmentDescriptor;
use tracing::warn;

use crate::config::V1Clients;
use crate::descriptor::OwnDescriptor;
use crate::notify::Inbox;

pub(crate) struct Handler {
    /// `None` with a metadata server: peers read the descriptor there.
    pub descriptor: Option<Arc<OwnDescriptor>>,
    pub inbox: Arc<Inbox>,
    pub v1_clients: V1Clients,
    /// Handshakes refused.
    pub refused: Telling,
}

impl HandshakeHandler for Handler {
    fn descriptor(&self) -> Option<Arc<[u8]>> {
        self.descriptor.as_ref().map(|descriptor| descriptor.json())
    }

    fn notify(&self, note: Notify) -> Result<(), String> {
        self.inbox.put(note)
    }

    fn refuse(&self, caller: Option<&SegmentDescriptor>) -> Option<String> {
        let caller = caller?;
        if self.v1_clients == V1Clients::Serve || caller.data_version() != DataVersion::V1 {
            return None;
        }
        let reason = format!(
            "{} ({}) speaks data protocol v1 and could not be told of a refused write (MOONRAIL_V1_CLIENTS=refuse)",
            caller.name,
            caller.release_line()
        );
        if self.refused.next().is_some() {
            warn!("refused a handshake: {reason}");
        }
        Some(reason)
    }
}
