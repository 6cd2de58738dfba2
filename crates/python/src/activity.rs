//! How many transfers of an engine are under way: without any, unregistering memory has nothing to wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use moonrail::Completion;

#[derive(Clone, Default)]
pub(crate) struct Activity(Arc<AtomicUsize>);

/// One transfer, until it is dropped.
pub(crate) struct Running(Arc<AtomicUsize>);

impl Activity {
    pub(crate) fn begin(&self) -> Running {
        self.0.fetch_add(1, Ordering::AcqRel);
        Running(Arc::clone(&self.0))
    }

    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

impl Running {
    /// Lasts as long as the batch does.
    pub(crate) fn until(self, completion: &Completion) {
        completion.on_done(Box::new(move |_| drop(self)));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
