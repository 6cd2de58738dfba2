//! Whether it pays to look again and again before sleeping.
//!
//! Waking a sleeping thread costs 5 to 50 µs, as much as a whole small transfer. Where answers have lately come
//! within that time, a thread looks for the next one that long before it sleeps; where they have not, it sleeps at
//! once, and learns from how long it slept. Never spins while idle: after each arrival at most one spin is spent.

use std::time::Duration;

/// Longest spin.
const SPIN: Duration = Duration::from_micros(60);
/// A sleep no longer than this would have been spared by spinning: the spin, and the wake-up it costs to sleep.
const SPARED: Duration = Duration::from_micros(120);
/// Bounds of the credit: so many failures in a row end the spinning, so many short sleeps begin it.
const MOST: i8 = 4;

/// What recent waits have taught.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spin {
    credit: i8,
}

impl Spin {
    /// How long to look before sleeping; zero: sleep at once.
    pub(crate) fn budget(self) -> Duration {
        if self.credit > 0 { SPIN } else { Duration::ZERO }
    }

    /// What was waited for came while spinning.
    pub(crate) fn paid(&mut self) {
        self.credit = (self.credit + 1).min(MOST);
    }

    /// It came after a sleep of `slept`, spinning not counted.
    pub(crate) fn slept(&mut self, slept: Duration) {
        if slept <= SPARED {
            self.paid();
        } else {
            self.credit = (self.credit - 2).max(-MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_waits_begin_it_and_long_ones_end_it() {
        let mut spin = Spin::default();
        assert_eq!(spin.budget(), Duration::ZERO);
        spin.slept(Duration::from_micros(30));
        assert_eq!(spin.budget(), SPIN);
        (0..10).for_each(|_| spin.paid());
        spin.slept(Duration::from_millis(1));
        assert_eq!(spin.budget(), SPIN);
        spin.slept(Duration::from_millis(1));
        assert_eq!(spin.budget(), Duration::ZERO);
        (0..10).for_each(|_| spin.slept(Duration::from_secs(1)));
        (0..5).for_each(|_| spin.slept(Duration::from_micros(30)));
        assert_eq!(spin.budget(), SPIN, "it is soon learnt again");
    }
}
