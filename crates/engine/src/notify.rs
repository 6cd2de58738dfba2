//! Notifications that peers left here.

use std::collections::VecDeque;

use moonrail_wire::handshake::Notify as WireNotify;
use parking_lot::Mutex;

/// A short message from one engine to another, usually sent when a transfer is complete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notify {
    /// By convention the sender's segment name, or an id both sides know.
    pub name: String,
    /// The message.
    pub message: String,
}

/// The bounded queue of received notifications, in order of arrival.
pub(crate) struct Inbox {
    queue: Mutex<VecDeque<Notify>>,
    limit: usize,
}

impl Inbox {
    pub(crate) fn new(limit: usize) -> Self {
        Self { queue: Mutex::default(), limit }
    }

    /// Keeps one, or says why not.
    pub(crate) fn put(&self, notify: WireNotify) -> Result<(), String> {
        let mut queue = self.queue.lock();
        if queue.len() >= self.limit {
            return Err(format!("{} notifications are waiting to be fetched", queue.len()));
        }
        queue.push_back(Notify { name: notify.name, message: notify.message });
        Ok(())
    }

    /// Empties the queue.
    pub(crate) fn take(&self) -> Vec<Notify> {
        self.queue.lock().drain(..).collect()
    }
}
