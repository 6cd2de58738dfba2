//! Waiting until somebody asks this process to stop.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// SIGINT and SIGTERM, noticed from the moment this is made.
pub(crate) struct Stop(Signals);

impl Stop {
    pub(crate) fn listen() -> Result<Self, Failure> {
        Signals::new([SIGINT, SIGTERM])
            .map(Self)
            .map_err(|error| Failure::failed(format!("cannot watch for signals: {error}")))
    }

    /// Sleeps until the first signal.
    pub(crate) fn wait(&mut self) {
        let _ = self.0.forever().next();
    }
}
