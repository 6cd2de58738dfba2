//! The time, coarse and cheap.
//!
//! Owns one reading of `CLOCK_MONOTONIC_COARSE`. It must not know what is timed.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Monotonic time as of the kernel's last tick, 1 to 10 ms ago: a fifth of the price of `Instant::now`. Compare only with
/// itself.
#[inline]
pub fn coarse() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_by_ticks() {
        let began = coarse();
        while coarse() == began {}
        let step = coarse().checked_sub(began);
        assert!(step.is_some_and(|step| step <= Duration::from_secs(1)), "{step:?}");
    }
}
