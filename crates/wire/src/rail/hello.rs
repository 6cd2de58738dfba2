//! Opening a lane: the hello and the welcome (docs/rail-protocol.md, section 2).

use super::{HELLO_LEN, MAGIC, RailError, WELCOME_LEN, get, put};

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

    /// # Errors
    /// [`RailError::Magic`].
    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Result<Self, RailError> {
        check_magic(bytes)?;
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
        check_magic(bytes)?;
        Ok(Self {
            version: u16::from_le_bytes(get(bytes, 8)),
            status: match u16::from_le_bytes(get(bytes, 10)) {
                0 => WelcomeStatus::Open,
                1 => WelcomeStatus::Version,
                2 => WelcomeStatus::Epoch,
                other => WelcomeStatus::Other(other),
            },
            features: u32::from_le_bytes(get(bytes, 12)),
            epoch: u64::from_le_bytes(get(bytes, 16)),
            max_payload: u64::from_le_bytes(get(bytes, 24)),
        })
    }
}

fn check_magic(bytes: &[u8]) -> Result<(), RailError> {
    let magic = get(bytes, 0);
    if magic == MAGIC { Ok(()) } else { Err(RailError::Magic(magic)) }
}
