//! The answers of this engine's handshake port.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moonrail_metadata::HandshakeHandler;
use moonrail_wire::data::DataVersion;
use moonrail_wire::handshake::Notify;
use moonrail_wire::segment::SegmentDescriptor;

use crate::config::V1Clients;
use crate::descriptor::OwnDescriptor;
use crate::events::{Event, Events};
use crate::notify::Inbox;

pub(crate) struct Handler {
    /// `None` with a metadata server: peers read the descriptor there.
    pub descriptor: Option<Arc<OwnDescriptor>>,
    pub inbox: Arc<Inbox>,
    pub v1_clients: V1Clients,
    /// Handshakes refused.
    pub refused: AtomicU64,
    pub events: Events,
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
        let count = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        self.events.emit(&Event::HandshakeRefused { why: reason.clone(), count });
        Some(reason)
    }
}
