//! Opening a lane: the hello and the welcome (docs/rail-protocol.md, section 2).

use super::{HELLO_LEN, MAGIC, RailError, WELCOME_LEN, get, put};
use crate::auth::Port;

/// Opens a lane (section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Version of the frames behind it.
    pub version: u16,
    /// Feature bits wanted.
    pub features: u32,
    /// Epoch of the target that is meant.
    pub target_epoch: u64,
}

/// How a target takes a [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WelcomeStatus {
    /// The lane is open.
    Open,
    /// The version is not spoken.
    Version,
    /// The target is another process than the one that is meant.
    Epoch,
    /// The target admits only who proves a shared key, and the hello brought none.
    KeyRequired,
    /// The key is not known there, or was not proven.
    NotAdmitted,
    /// The initiator is to prove its key; the target's nonce follows.
    Prove,
    /// The target speaks nothing but TLS, and the hello came in clear.
    TlsRequired,
    /// A status that this version does not know: the lane is not open.
    Other(u16),
}

/// Answers a [`Hello`] (section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// Version in force.
    pub version: u16,
    /// Whether the lane is open.
    pub status: WelcomeStatus,
    /// Feature bits in force.
    pub features: u32,
    /// The target's epoch.
    pub epoch: u64,
    /// Largest payload of one frame, in bytes.
    pub max_payload: u64,
}

impl Hello {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, self.version.to_le_bytes());
        put(&mut bytes, 12, self.features.to_le_bytes());
        put(&mut bytes, 16, self.target_epoch.to_le_bytes());
        bytes
    }

    /// As it is sent to `port`.
    #[must_use]
    pub fn encode_for(&self, port: Port) -> [u8; HELLO_LEN] {
        let mut bytes = self.encode();
        put(&mut bytes, 0, port.magic());
        bytes
    }

    /// # Errors
    /// [`RailError::Magic`].
    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Result<Self, RailError> {
        Self::decode_for(Port::Data, bytes)
    }

    /// A hello that came to `port`.
    ///
    /// # Errors
    /// [`RailError::Magic`].
    pub fn decode_for(port: Port, bytes: &[u8; HELLO_LEN]) -> Result<Self, RailError> {
        check_magic(bytes, port.magic())?;
        Ok(Self {
            version: u16::from_le_bytes(get(bytes, 8)),
            features: u32::from_le_bytes(get(bytes, 12)),
            target_epoch: u64::from_le_bytes(get(bytes, 16)),
        })
    }
}

impl Welcome {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; WELCOME_LEN] {
        let status = match self.status {
            WelcomeStatus::Open => 0,
            WelcomeStatus::Version => 1,
            WelcomeStatus::Epoch => 2,
            WelcomeStatus::KeyRequired => 3,
            WelcomeStatus::NotAdmitted => 4,
            WelcomeStatus::Prove => 5,
            WelcomeStatus::TlsRequired => 6,
            WelcomeStatus::Other(status) => status,
        };
        let mut bytes = [0; WELCOME_LEN];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, self.version.to_le_bytes());
        put(&mut bytes, 10, status.to_le_bytes());
        put(&mut bytes, 12, self.features.to_le_bytes());
        put(&mut bytes, 16, self.epoch.to_le_bytes());
        put(&mut bytes, 24, self.max_payload.to_le_bytes());
        bytes
    }

    /// # Errors
    /// [`RailError::Magic`].
    pub fn decode(bytes: &[u8; WELCOME_LEN]) -> Result<Self, RailError> {
        check_magic(bytes, MAGIC)?;
        Ok(Self {
            version: u16::from_le_bytes(get(bytes, 8)),
            status: match u16::from_le_bytes(get(bytes, 10)) {
                0 => WelcomeStatus::Open,
                1 => WelcomeStatus::Version,
                2 => WelcomeStatus::Epoch,
                3 => WelcomeStatus::KeyRequired,
                4 => WelcomeStatus::NotAdmitted,
                5 => WelcomeStatus::Prove,
                6 => WelcomeStatus::TlsRequired,
                other => WelcomeStatus::Other(other),
            },
            features: u32::from_le_bytes(get(bytes, 12)),
            epoch: u64::from_le_bytes(get(bytes, 16)),
            max_payload: u64::from_le_bytes(get(bytes, 24)),
        })
    }
}

fn check_magic(bytes: &[u8], expected: [u8; 8]) -> Result<(), RailError> {
    let magic = get(bytes, 0);
    if magic == expected { Ok(()) } else { Err(RailError::Magic(magic)) }
}
