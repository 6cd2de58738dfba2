//! What keeps strangers, and changed bytes, out of the lanes of one path.

use std::sync::Arc;

use moonrail_access::{AccessControl, Telling, Tls};
use moonrail_transport::Target;
use moonrail_wire::rail::{CHECKSUM, FEATURES};

/// The access control and the TLS of an engine, where it has them.
#[derive(Debug, Clone, Default)]
pub(super) struct Guards {
    /// Both sides prove the shared key before anything else.
    pub access: Option<Arc<AccessControl>>,
    /// Bytes go out and come in encrypted.
    pub tls: Option<Arc<Tls>>,
    /// Bytes get checksums, where the peer knows them and TLS does not check them anyway.
    pub checksum: bool,
    /// Lanes that go without although they were asked for, of all peers together.
    unchecked: Arc<Telling>,
}

impl Guards {
    /// The feature bits that the hello of a lane asks for.
    pub(super) fn wants(&self, sealed: bool) -> u32 {
        if self.checksum && !sealed { FEATURES | CHECKSUM } else { FEATURES }
    }

    /// Tells, unless often told, that the peer of a lane knows no checksums.
    pub(super) fn go_unchecked(&self, target: &Target) {
        if self.unchecked.next().is_some() {
            let name = &target.name;
            tracing::warn!("{name} knows no checksums: bytes to and from it are checked by TCP only");
        }
    }
}
