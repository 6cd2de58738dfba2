//! What happens when somebody asks this process to stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Makes Ctrl-C end the process at once, whatever handler there is: that of a Python interpreter would wait for the
/// command to return.
pub(crate) fn end_on_interrupt() {
    // Without it Ctrl-C does what it did before.
    let _ = signal_hook::flag::register_conditional_default(SIGINT, Arc::new(AtomicBool::new(true)));
}

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
