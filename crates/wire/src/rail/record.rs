//! Records: how the bytes of a lane are carried where feature [`CHECKSUM`] is in force (docs/rail-protocol.md, section 10).
//!
//! Owns the head of a record, and what it says of the bytes behind it.

use super::{RailError, get, put};

/// Feature bit: everything behind the opening travels in records. (Bit 3 is in [`crate::auth`].)
pub const CHECKSUM: u32 = 1 << 5;
/// Length of a record's head in bytes.
pub const RECORD_HEAD_LEN: usize = 12;
/// Most bytes behind one head.
pub const MAX_RECORD: usize = 64 << 10;

/// The head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// Bytes that follow. 0: what the other side has sent does not have its checksum, and the lane is over.
    pub len: u32,
    /// CRC32C of these bytes.
    pub sum: u32,
}

impl RecordHead {
    /// Tells the other side that what it sent was changed on its way.
    pub const COMPLAINT: Self = Self { len: 0, sum: 0 };

    /// For these bytes, at least one and at most [`MAX_RECORD`].
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        debug_assert!((1..=MAX_RECORD).contains(&bytes.len()), "bytes of one record");
        Self { len: bytes.len() as u32, sum: crc32c::crc32c(bytes) }
    }

    /// As it is sent: length, sum, and the CRC32C of these 8 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_HEAD_LEN] {
        let mut head = [0; RECORD_HEAD_LEN];
        put(&mut head, 0, self.len.to_le_bytes());
        put(&mut head, 4, self.sum.to_le_bytes());
        let own = crc32c::crc32c(&head[..8]);
        put(&mut head, 8, own.to_le_bytes());
        head
    }

    /// # Errors
    /// [`RailError::Record`]: it was changed on its way, or is none.
    pub fn decode(head: &[u8; RECORD_HEAD_LEN]) -> Result<Self, RailError> {
        let read = Self { len: u32::from_le_bytes(get(head, 0)), sum: u32::from_le_bytes(get(head, 4)) };
        let own = u32::from_le_bytes(get(head, 8));
        if own != crc32c::crc32c(&head[..8]) || read.len as usize > MAX_RECORD {
            return Err(RailError::Record);
        }
        Ok(read)
    }

    /// Whether these are the bytes that it was made for.
    #[must_use]
    pub fn fits(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.len as usize && crc32c::crc32c(bytes) == self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_bit_is_found() {
        let bytes = *b"moonrail";
        let head = RecordHead::of(&bytes);
        assert_eq!(RecordHead::decode(&head.encode()), Ok(head));
        assert!(head.fits(&bytes) && !head.fits(b"moonrai") && !head.fits(b""));
        for bit in 0..RECORD_HEAD_LEN * 8 {
            let mut changed = head.encode();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHead::decode(&changed), Err(RailError::Record), "bit {bit} of the head");
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!head.fits(&changed), "bit {bit}");
        }
        let too_long = RecordHead { len: MAX_RECORD as u32 + 1, sum: 0 };
        assert_eq!(RecordHead::decode(&too_long.encode()), Err(RailError::Record));
    }

    /// The bytes that every version has to keep.
    #[test]
    fn the_bytes_of_a_record_stay() {
        let head = RecordHead::of(b"moonrail").encode();
        assert_eq!(head[..4], [8, 0, 0, 0]);
        // The check value of CRC-32/ISCSI.
        assert_eq!(RecordHead::of(b"123456789").sum, 0xe306_9283);
        let complaint = [0, 0, 0, 0, 0, 0, 0, 0, 0x8a, 0x28, 0xb2, 0x8c];
        assert_eq!(RecordHead::COMPLAINT.encode()[..8], complaint[..8]);
        assert_eq!(RecordHead::decode(&RecordHead::COMPLAINT.encode()), Ok(RecordHead::COMPLAINT));
    }
}
