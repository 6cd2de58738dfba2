//! What keeps strangers, and changed bytes, out of the lanes of one path.

use std::sync::Arc;

use moonrail_access::{AccessControl, Tls};
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
}

impl Guards {
    /// The feature bits that the hello of a lane asks for.
    pub(super) fn wants(&self, sealed: bool) -> u32 {
        if self.checksum && !sealed { FEATURES | CHECKSUM } else { FEATURES }
    }
}
