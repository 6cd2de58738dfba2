//! How long a call may take, and who may stop it.

use std::time::{Duration, Instant};

/// Longest single sleep of a waiting call, so that an interrupt or a cancel is seen soon.
pub const WAIT_SLICE: Duration = Duration::from_millis(50);

/// Why a waiting call must end before its work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The caller cancelled it.
    Cancelled,
    /// A signal handler of the front door wants the thread back (Ctrl-C in Python).
    Interrupted,
}

/// Deadlines of one call. Paths look at it whenever they are about to wait.
pub struct Control<'a> {
    /// The call as a whole must have ended by then; `None`: only progress counts.
    pub deadline: Option<Instant>,
    /// Connecting to the peer may take this long.
    pub connect: Duration,
    /// Longest time without a byte moved in either direction.
    pub progress: Duration,
    /// Asked at least every [`WAIT_SLICE`] while waiting.
    pub stop: &'a (dyn Fn() -> Option<Stop> + Sync),
}

impl Control<'_> {
    /// How long the next sleep may be at `now`, for something that must happen before `limit`;
    /// `None` when `limit` or the call's own deadline has passed.
    #[must_use]
    pub fn slice(&self, now: Instant, limit: Instant) -> Option<Duration> {
        let end = self.deadline.map_or(limit, |deadline| deadline.min(limit));
        let left = end.checked_duration_since(now).filter(|left| !left.is_zero())?;
        Some(left.min(WAIT_SLICE))
    }

    /// Whether the call's own deadline has passed at `now`.
    #[must_use]
    pub fn expired(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_ends_at_the_nearest_limit() {
        let now = Instant::now();
        let control = Control {
            deadline: Some(now + Duration::from_millis(20)),
            connect: Duration::from_secs(5),
            progress: Duration::from_secs(5),
            stop: &|| None,
        };
        assert_eq!(control.slice(now, now + Duration::from_secs(5)), Some(Duration::from_millis(20)));
        assert_eq!(control.slice(now, now + Duration::from_millis(3)), Some(Duration::from_millis(3)));
        assert_eq!(control.slice(now + Duration::from_millis(20), now + Duration::from_secs(5)), None);
        assert!(control.expired(now + Duration::from_millis(20)));
    }
}
