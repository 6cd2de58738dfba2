//! The one message of the socket: the target's answer to a connection.
//!
//! Owns its bytes. It must not know the descriptors that travel with it.

/// What a target says to whoever connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Welcome {
    /// Come in; the mirror and an entry page travel with it.
    Come {
        /// Where the nonce stands in the target's memory.
        nonce_at: u64,
        /// The epoch in the mirror.
        epoch: u64,
    },
    /// Stay out, and why.
    Refused(String),
}

/// Longest message.
pub(crate) const MAX_LEN: usize = 256;

const COME: u8 = 1;
const REFUSED: u8 = 2;

impl Welcome {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Come { nonce_at, epoch } => {
                let mut bytes = vec![COME];
                bytes.extend_from_slice(&nonce_at.to_le_bytes());
                bytes.extend_from_slice(&epoch.to_le_bytes());
                bytes
            }
            Self::Refused(why) => {
                let mut bytes = vec![REFUSED];
                bytes.extend(why.bytes().take(MAX_LEN - 1));
                bytes
            }
        }
    }

    /// `None` for what no target of this version says.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            COME if rest.len() == 16 => {
                let (nonce_at, epoch) = rest.split_at(8);
                Some(Self::Come {
                    nonce_at: u64::from_le_bytes(nonce_at.try_into().ok()?),
                    epoch: u64::from_le_bytes(epoch.try_into().ok()?),
                })
            }
            REFUSED => {
                let text = String::from_utf8_lossy(rest);
                Some(Self::Refused(text.chars().filter(|char| !char.is_control()).collect()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_survive_and_others_are_refused() {
        for welcome in
            [Welcome::Come { nonce_at: 7, epoch: u64::MAX }, Welcome::Refused("no room".to_owned())]
        {
            assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
        }
        assert!(Welcome::Refused("x".repeat(1000)).encode().len() <= MAX_LEN);
        for bad in [&[][..], &[0], &[COME], &[COME; 16], &[COME; 18], &[3; 17]] {
            assert_eq!(Welcome::decode(bad), None);
        }
    }
}
