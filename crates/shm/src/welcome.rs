//! The messages of the socket: the target's answer to a connection, and questions for blocks.
//!
//! Owns their bytes. It must not know the descriptors that travel with them.

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

/// An initiator's question for a block that it found in the mirror. A target of the release before reads it and does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) block: u32,
}

/// The target's answer. The block travels with it, unless no region lies in it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) block: u32,
    /// The block's length in bytes; 0 when it is not there.
    pub(crate) len: u64,
}

const ASK: u8 = 3;
const ANSWER: u8 = 4;

impl Ask {
    pub(crate) const LEN: usize = 5;

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let [a, b, c, d] = self.block.to_le_bytes();
        [ASK, a, b, c, d]
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [ASK, block @ ..] = bytes else { return None };
        Some(Self { block: u32::from_le_bytes(block.try_into().ok()?) })
    }
}

impl Answer {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![ANSWER];
        bytes.extend_from_slice(&self.block.to_le_bytes());
        bytes.extend_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// `None` for what no target says.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [ANSWER, rest @ ..] = bytes else { return None };
        let (block, len) = rest.split_at_checked(4)?;
        Some(Self {
            block: u32::from_le_bytes(block.try_into().ok()?),
            len: u64::from_le_bytes(len.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_and_its_answer_survive_and_others_are_refused() {
        let (ask, answer) = (Ask { block: 0x0102_0304 }, Answer { block: u32::MAX, len: 1 << 40 });
        assert_eq!(Ask::decode(&ask.encode()), Some(ask));
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        for bad in [&[][..], &[ASK], &[ASK; 4], &[ASK; 6], &[ANSWER; 5], &[ANSWER; 12], &[ANSWER; 14]] {
            assert_eq!((Ask::decode(bad), Answer::decode(bad)), (None, None), "{bad:?}");
        }
    }

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
