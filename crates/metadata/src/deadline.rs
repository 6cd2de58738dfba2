//! A point in time that a blocking call must not pass.

use std::time::{Duration, Instant};

/// Longer than any call lives; stands for "no limit" where an addition would overflow.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(duration: Duration) -> Deadline {
        Deadline(Instant::now() + duration.min(FAR))
    }

    /// Time left, or `None` once the deadline has passed. Never zero: socket timeouts take zero for "none".
    pub(crate) fn remaining(self) -> Option<Duration> {
        self.0.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}
