//! What the bytes of a transfer are: a function of schedule, transfer and place that can be turned round, so that a
//! byte found in the wrong place says where it came from.

use std::fmt;

const FIRST: u64 = 0xbf58_476d_1ce4_e5b9;
const SECOND: u64 = 0x94d0_49bb_1331_11eb;
const FIRST_INVERSE: u64 = 0x96de_1b17_3f11_9089;
const SECOND_INVERSE: u64 = 0x3196_42b2_d24d_8ec3;

/// Words in the content of one transfer at most.
const MOST_WORDS: u64 = 1 << 24;

/// A bijection of 64-bit words without visible pattern (the finish of splitmix64).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(FIRST);
    x = (x ^ (x >> 27)).wrapping_mul(SECOND);
    x ^ (x >> 31)
}

fn unmix(mut x: u64) -> u64 {
    x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(SECOND_INVERSE);
    x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(FIRST_INVERSE);
    x ^ (x >> 30) ^ (x >> 60)
}

/// Which transfer bytes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub schedule: u32,
    pub transfer: u8,
}

impl Tag {
    fn word(self, index: u64) -> u64 {
        mix(u64::from(self.schedule) << 32 | u64::from(self.transfer) << 24 | (index % MOST_WORDS))
    }

    /// The bytes of this transfer from byte `from` on.
    pub(crate) fn bytes(self, from: usize, len: usize) -> Vec<u8> {
        let (first, skip) = (from / 8, from % 8);
        let words = (skip + len).div_ceil(8);
        let mut bytes = Vec::with_capacity(words * 8);
        for index in first..first + words {
            bytes.extend_from_slice(&self.word(index as u64).to_le_bytes());
        }
        bytes.truncate(skip + len);
        bytes.drain(..skip);
        bytes
    }
}

/// Where bytes came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub tag: Tag,
    pub offset: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tag { schedule, transfer } = self.tag;
        write!(f, "byte {} of transfer {transfer} of schedule {schedule}", self.offset)
    }
}

/// Where the first of `bytes` came from, if they are content of a transfer of a schedule up to `newest`.
pub(crate) fn origin(bytes: &[u8], newest: u32) -> Option<Origin> {
    (0..8).find_map(|skip| {
        let word: [u8; 8] = bytes.get(skip..skip + 8)?.try_into().ok()?;
        let key = unmix(u64::from_le_bytes(word));
        let tag = Tag { schedule: (key >> 32) as u32, transfer: (key >> 24) as u8 };
        let offset = ((key % MOST_WORDS) as usize * 8).checked_sub(skip)?;
        let plausible = tag.schedule <= newest && tag.transfer < 64 && offset < 64 << 20;
        plausible.then_some(Origin { tag, offset })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_says_where_it_came_from() {
        let tag = Tag { schedule: 77, transfer: 5 };
        let all = tag.bytes(0, 4096);
        for from in [0, 1, 7, 8, 13, 2001] {
            let bytes = tag.bytes(from, 64);
            assert_eq!(bytes, all[from..from + 64]);
            assert_eq!(origin(&bytes, 100), Some(Origin { tag, offset: from }), "{from}");
        }
        assert_eq!(origin(&tag.bytes(0, 64), 76), None, "a schedule that has not been yet");
        assert_eq!(
            origin(&[0; 64], 100).map(|origin| origin.tag.schedule),
            Some(0),
            "0 is a word like others"
        );
        assert_eq!(origin(&[1; 64], 100), None);
    }
}
