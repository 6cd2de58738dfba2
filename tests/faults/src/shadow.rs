//! What a process's memory must hold, byte by byte.
//!
//! Owns the model of one area: the bytes that are certain, and for transfers whose end is not known to have been a
//! success, the bytes that may stand there instead. It must not know where the actual bytes come from.

use std::cell::Cell;
use std::fmt;

use crate::content;

/// The model of one area. Offsets count from its first byte.
pub(crate) struct Shadow {
    bytes: Vec<u8>,
    may: Vec<May>,
    /// Of transfers that ended while the target stood still, perhaps between its look at the connection and its receive.
    late: Vec<May>,
    late_seen: Cell<bool>,
}

/// Bytes that may have arrived.
struct May {
    transfer: u8,
    at: usize,
    bytes: Vec<u8>,
}

/// The first byte that is not what it must be, in words.
#[derive(Debug)]
pub(crate) struct Wrong(String);

impl Shadow {
    /// An area of zeros.
    pub(crate) fn new(len: usize) -> Self {
        Self { bytes: vec![0; len], may: Vec::new(), late: Vec::new(), late_seen: Cell::new(false) }
    }

    /// These bytes stand there now.
    pub(crate) fn set(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// These bytes may arrive, each for itself, as long as `transfer` has not ended.
    pub(crate) fn may_become(&mut self, transfer: u8, at: usize, bytes: Vec<u8>) {
        self.may.push(May { transfer, at, bytes });
    }

    /// `transfer` has succeeded: its bytes are certain.
    pub(crate) fn became(&mut self, transfer: u8) {
        let (done, may) = std::mem::take(&mut self.may).into_iter().partition(|may| may.transfer == transfer);
        self.may = may;
        let done: Vec<May> = done;
        for may in done {
            self.set(may.at, &may.bytes);
        }
    }

    /// The bytes of `transfer` up to `applied` of its parts are certain, as it said so itself.
    pub(crate) fn became_in_part(&mut self, transfer: u8, applied: usize) {
        let parts: Vec<(usize, Vec<u8>)> = self
            .may
            .iter()
            .filter(|may| may.transfer == transfer)
            .take(applied)
            .map(|may| (may.at, may.bytes.clone()))
            .collect();
        for (at, bytes) in parts {
            self.set(at, &bytes);
        }
    }

    /// Nothing more may arrive. Whether something has that should not have.
    pub(crate) fn settle(&mut self) -> bool {
        self.may.clear();
        self.late.clear();
        self.late_seen.take()
    }

    /// `transfer` has ended: nothing more of it may arrive. If the target stands `still`, what does all the same is noted.
    pub(crate) fn ended(&mut self, transfer: u8, still: bool) {
        let ended = self.may.extract_if(.., |may| may.transfer == transfer);
        if still {
            self.late.extend(ended);
        } else {
            ended.for_each(drop);
        }
    }

    /// Compares what stands there with what must or may.
    pub(crate) fn compare(&self, at: usize, actual: &[u8], newest: u32) -> Result<(), Wrong> {
        let must = &self.bytes[at..at + actual.len()];
        if must == actual {
            return Ok(());
        }
        for (offset, (must, is)) in must.iter().zip(actual).enumerate() {
            let place = at + offset;
            if must == is || self.may.iter().any(|may| may.allows(place, *is)) {
                continue;
            }
            if self.late.iter().any(|may| may.allows(place, *is)) {
                self.late_seen.set(true);
                continue;
            }
            let from = content::origin(&actual[offset..], newest)
                .map_or_else(|| "of unknown origin".to_owned(), |origin| origin.to_string());
            let expected = content::origin(&self.bytes[place..], newest)
                .map_or_else(|| format!("{must:#04x}"), |origin| origin.to_string());
            let text = format!("offset {place:#x} holds {is:#04x} ({from}) in place of {expected}");
            return Err(Wrong(text));
        }
        Ok(())
    }

    /// What stands there is certain from now on.
    pub(crate) fn adopt(&mut self, at: usize, actual: &[u8]) {
        self.set(at, actual);
    }
}

impl May {
    fn allows(&self, place: usize, byte: u8) -> bool {
        place.checked_sub(self.at).and_then(|nth| self.bytes.get(nth)) == Some(&byte)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Tag;

    #[test]
    fn only_what_may_arrive_is_let_pass_and_only_while_it_may() {
        let mut shadow = Shadow::new(1000);
        let bytes = Tag { schedule: 3, transfer: 1 }.bytes(0, 100);
        shadow.may_become(1, 500, bytes.clone());
        let mut actual = vec![0; 1000];
        assert!(shadow.compare(0, &actual, 3).is_ok());
        actual[530..600].copy_from_slice(&bytes[30..]);
        assert!(shadow.compare(0, &actual, 3).is_ok());
        actual[499] = 1;
        assert!(shadow.compare(0, &actual, 3).is_err_and(|wrong| wrong.to_string().contains("0x1f3")));
        actual[499] = 0;
        shadow.adopt(0, &actual);
        assert!(!shadow.settle());
        assert!(shadow.compare(0, &actual, 3).is_ok());
        actual[500..530].copy_from_slice(&bytes[..30]);
        let wrong = shadow.compare(0, &actual, 3).expect_err("it differs");
        assert!(wrong.to_string().contains("byte 0 of transfer 1 of schedule 3"), "{wrong}");
    }

    #[test]
    fn a_success_makes_it_certain() {
        let mut shadow = Shadow::new(100);
        shadow.may_become(1, 0, vec![7; 10]);
        shadow.may_become(1, 20, vec![8; 10]);
        shadow.became_in_part(1, 1);
        assert_eq!(shadow.bytes[..10], [7; 10]);
        assert_eq!(shadow.bytes[20..30], [0; 10]);
        shadow.became(1);
        assert_eq!(shadow.bytes[20..30], [8; 10]);
    }
}
