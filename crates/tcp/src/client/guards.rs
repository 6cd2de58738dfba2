//! What keeps strangers out of the lanes of one path.

use std::sync::Arc;

use moonrail_access::{AccessControl, Tls};

/// The access control and the TLS of an engine, where it has them.
#[derive(Debug, Clone, Default)]
pub(super) struct Guards {
    /// Both sides prove the shared key before anything else.
    pub access: Option<Arc<AccessControl>>,
    /// Bytes go out and come in encrypted.
    pub tls: Option<Arc<Tls>>,
}
