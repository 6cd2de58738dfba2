//! Checksums for a connection: bytes travel in records, and none is handed on before its checksum was found right
//! (docs/rail-protocol.md, section 10).

use std::io::{self, ErrorKind, Write};

use moonrail_access::Binding;
use moonrail_wire::rail::{MAX_RECORD, RECORD_HEAD_LEN, RecordHead};

use crate::layer::Layer;

/// Bytes that wait to be sent from which on no more are taken.
const MOST_UNSENT: usize = 2 * MAX_RECORD;

/// Both directions of one connection.
#[derive(Default)]
pub(crate) struct Checked {
    /// The head of the record that comes, as far as it is here, and what it says.
    head: [u8; RECORD_HEAD_LEN],
    head_have: usize,
    expected: Option<RecordHead>,
    /// The bytes of that record; whole and right once `taken` counts.
    record: Vec<u8>,
    whole: bool,
    taken: usize,
    /// Records on their way out, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
}

/// Bytes do not have their checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Corrupt {
    /// Found here.
    #[error(
        "bytes that came from the peer do not have their checksum: they were changed on the way, or in memory"
    )]
    Here,
    /// Found by the peer.
    #[error(
        "the peer found that bytes do not have their checksum: they were changed on the way, or in memory"
    )]
    There,
}

impl Corrupt {
    /// What a receive failed with, if it was this.
    pub(crate) fn behind(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<Corrupt> for io::Error {
    fn from(corrupt: Corrupt) -> Self {
        Self::new(ErrorKind::InvalidData, corrupt)
    }
}

impl Checked {
    /// Takes what belongs to the head from the front of `bytes`.
    fn take_head(&mut self, bytes: &[u8]) -> Result<usize, Corrupt> {
        let count = bytes.len().min(RECORD_HEAD_LEN - self.head_have);
        self.head[self.head_have..self.head_have + count].copy_from_slice(&bytes[..count]);
        self.head_have += count;
        if self.head_have == RECORD_HEAD_LEN {
            let head = RecordHead::decode(&self.head).map_err(|_| Corrupt::Here)?;
            if head == RecordHead::COMPLAINT {
                return Err(Corrupt::There);
            }
            self.expected = Some(head);
        }
        Ok(count)
    }

    /// Takes what belongs to the record from the front of `bytes`.
    fn take_record(&mut self, head: RecordHead, bytes: &[u8]) -> Result<usize, Corrupt> {
        let count = bytes.len().min(head.len as usize - self.record.len());
        self.record.extend_from_slice(&bytes[..count]);
        if self.record.len() == head.len as usize {
            if !head.fits(&self.record) {
                return Err(Corrupt::Here);
            }
            self.whole = true;
        }
        Ok(count)
    }
}

impl Layer for Checked {
    fn feed(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() && !self.whole {
            let rest = &bytes[done..];
            let taken = match self.expected {
                None => self.take_head(rest),
                Some(head) => self.take_record(head, rest),
            };
            done += taken.inspect_err(|corrupt| {
                if *corrupt == Corrupt::Here {
                    self.unsent.extend_from_slice(&RecordHead::COMPLAINT.encode());
                }
            })?;
        }
        Ok(done)
    }

    fn established(&self) -> bool {
        true
    }

    fn ended(&self) -> bool {
        false
    }

    fn ready(&self) -> usize {
        if self.whole { self.record.len() - self.taken } else { 0 }
    }

    fn plaintext(&mut self) -> &[u8] {
        if self.whole { &self.record[self.taken..] } else { &[] }
    }

    fn consume(&mut self, count: usize) {
        self.taken += count;
        if self.taken >= self.record.len() {
            self.record.clear();
            (self.expected, self.head_have, self.whole, self.taken) = (None, 0, false, 0);
        }
    }

    fn write(&mut self, plaintext: &[u8]) -> io::Result<usize> {
        if self.unsent.len() - self.sent >= MOST_UNSENT || plaintext.is_empty() {
            return Ok(0);
        }
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.sent = 0;
        }
        let bytes = &plaintext[..plaintext.len().min(MAX_RECORD)];
        self.unsent.extend_from_slice(&RecordHead::of(bytes).encode());
        self.unsent.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn wants_write(&self) -> bool {
        self.sent < self.unsent.len()
    }

    fn write_out(&mut self, out: &mut dyn Write) -> io::Result<usize> {
        let count = out.write(&self.unsent[self.sent..])?;
        self.sent += count;
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.sent = 0;
        }
        Ok(count)
    }

    fn binding(&self) -> Binding {
        None
    }

    fn is_tls(&self) -> bool {
        false
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Writes `bytes`, and hands them on in parts of `part` bytes, one bit changed if asked for.
    fn carry(bytes: &[u8], part: usize, flip: Option<usize>) -> (io::Result<Vec<u8>>, Checked) {
        let (mut from, mut to) = (Checked::default(), Checked::default());
        let (mut wire, mut got, mut rest) = (Vec::new(), Vec::new(), bytes);
        while !rest.is_empty() {
            rest = &rest[from.write(rest).unwrap()..];
            while from.wants_write() {
                from.write_out(&mut wire).unwrap();
            }
        }
        if let Some(bit) = flip {
            wire[bit / 8] ^= 1 << (bit % 8);
        }
        for piece in wire.chunks(part) {
            let mut piece = piece;
            while !piece.is_empty() {
                match to.feed(piece) {
                    Ok(taken) => piece = &piece[taken..],
                    Err(error) => return (Err(error), to),
                }
                while to.ready() > 0 {
                    got.extend_from_slice(to.plaintext());
                    to.consume(to.ready());
                }
            }
        }
        (Ok(got), to)
    }

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let bytes: Vec<u8> = (0..200_000).map(|at| (at % 251) as u8).collect();
        for (len, part) in [(1, 1), (100, 7), (65_536, 1000), (65_537, 65_536), (200_000, 13)] {
            let (got, _) = carry(&bytes[..len], part, None);
            assert!(got.unwrap() == bytes[..len], "{len} bytes in parts of {part}");
        }
    }

    #[test]
    fn a_changed_bit_is_found_before_its_record_is_handed_on_and_complained_of() {
        let bytes = [7; 40];
        for bit in 0..(40 + RECORD_HEAD_LEN) * 8 {
            let (got, mut to) = carry(&bytes, 9, Some(bit));
            assert_eq!(Corrupt::behind(&got.unwrap_err()), Some(Corrupt::Here), "bit {bit}");
            assert_eq!(to.ready(), 0);
            let mut complaint = Vec::new();
            to.write_out(&mut complaint).unwrap();
            let heard = Checked::default().feed(&complaint).unwrap_err();
            assert_eq!(Corrupt::behind(&heard), Some(Corrupt::There));
        }
    }
}
