//! The access control of one engine, as its ports and its callers share it.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::allow::Allow;
use crate::error::{Denied, KeyError};
use crate::key::Keys;
use crate::keyring::{KeySource, Keyring};
use crate::telling::Telling;

/// The access control of one engine: its keys, what is allowed without, and the count of who was refused. May be used
/// from any thread.
#[derive(Debug)]
pub struct AccessControl {
    keyring: Keyring,
    allow: Allow,
    refused: Telling,
}

impl AccessControl {
    /// Reads the keys.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn open(source: KeySource, allow: Allow) -> Result<Self, KeyError> {
        Ok(Self { keyring: Keyring::open(source)?, allow, refused: Telling::default() })
    }

    /// The keys in force now.
    pub fn keys(&self) -> Arc<Keys> {
        self.keyring.keys()
    }

    /// What is allowed without a key.
    #[must_use]
    pub fn allow(&self) -> Allow {
        self.allow
    }

    /// Counts a caller that was refused on the port called `port`, and tells of it unless there is a flood.
    pub fn refuse(&self, port: &str, caller: SocketAddr, why: &dyn std::fmt::Display) {
        if let Some(number) = self.refused.next() {
            tracing::warn!("refused {caller} on the {port} port: {why} (refusal {number})");
        }
    }

    /// [`AccessControl::refuse`] for the outcome of an exchange.
    pub fn deny(&self, port: &str, caller: SocketAddr, why: Denied) {
        self.refuse(port, caller, &why);
    }

    /// Callers refused so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.count()
    }
}
