//! Which refusals are told in the log, so that a flood of them is not.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts refusals; the first 16 are told, then the 32nd, the 64th and so on.
#[derive(Debug, Default)]
pub struct Telling(AtomicU64);

impl Telling {
    /// Counts one more; its number, from 1, if it is one to tell.
    pub fn next(&self) -> Option<u64> {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        (number <= 16 || number.is_power_of_two()).then_some(number)
    }

    /// Refusals so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_flood_is_told_in_a_few_lines() {
        let telling = super::Telling::default();
        let told: Vec<u64> = (0..1000).filter_map(|_| telling.next()).collect();
        assert_eq!(told.len(), 16 + 5);
        assert_eq!(told[16..], [32, 64, 128, 256, 512]);
        assert_eq!(telling.count(), 1000);
    }
}
