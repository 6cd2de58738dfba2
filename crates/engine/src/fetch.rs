//! Fetching peers' descriptors: one fetch at a time for each peer, whoever waits for it.
//!
//! A fetch may take as long as the handshake's time limits; it runs in the background, so that a caller with a
//! shorter deadline or a pending signal can leave it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use moonrail_transport::{Code, Control, Error, Retry, Stage, Stop, WAIT_SLICE};
use parking_lot::{Condvar, Mutex};

use crate::engine::Inner;
use crate::errors;
use crate::events::Event;
use crate::peers::{Speaks, View};

type Outcome = Result<Arc<View>, Error>;

/// The fetches under way, by peer.
#[derive(Default)]
pub(crate) struct Fetches {
    running: Mutex<HashMap<String, Arc<Fetch>>>,
}

struct Fetch {
    began: Instant,
    outcome: Mutex<Option<Outcome>>,
    done: Condvar,
}

impl Inner {
    /// The peer's view: the cached one, or one fetched now.
    pub(crate) fn view(self: &Arc<Self>, name: &str, control: &Control<'_>) -> Outcome {
        if !self.config.no_metadata_cache
            && let Some(view) = self.peers.get(name)
        {
            return Ok(view);
        }
        self.fetch(name, Instant::now(), control)
    }

    /// The peer's view by a fetch that began no earlier than `since`.
    pub(crate) fn fetch(self: &Arc<Self>, name: &str, since: Instant, control: &Control<'_>) -> Outcome {
        let fetch = self.join_fetch(name, since);
        let mut outcome = fetch.outcome.lock();
        loop {
            if let Some(outcome) = outcome.clone() {
                return outcome;
            }
            if let Some(stop) = (control.stop)() {
                return Err(stopped(name, stop));
            }
            if control.expired(Instant::now()) {
                let message = "the call's deadline passed while the peer was asked for its descriptor";
                return Err(
                    Error::new(Code::DeadlineExceeded, Stage::Resolve, Retry::Safe, message).with_peer(name)
                );
            }
            fetch.done.wait_for(&mut outcome, WAIT_SLICE);
        }
    }

    fn join_fetch(self: &Arc<Self>, name: &str, since: Instant) -> Arc<Fetch> {
        let mut running = self.fetches.running.lock();
        if let Some(fetch) = running.get(name)
            && fetch.began >= since
        {
            return Arc::clone(fetch);
        }
        let fetch =
            Arc::new(Fetch { began: Instant::now(), outcome: Mutex::new(None), done: Condvar::new() });
        running.insert(name.to_owned(), Arc::clone(&fetch));
        drop(running);
        let (inner, name, job) = (Arc::clone(self), name.to_owned(), Arc::clone(&fetch));
        self.background.run_awaited(Box::new(move || {
            let outcome = inner.fetch_now(&name, job.began);
            let mut running = inner.fetches.running.lock();
            if running.get(&name).is_some_and(|latest| Arc::ptr_eq(latest, &job)) {
                running.remove(&name);
            }
            drop(running);
            Some(Box::new(move || {
                *job.outcome.lock() = Some(outcome);
                job.done.notify_all();
            }))
        }));
        fetch
    }

    fn fetch_now(&self, name: &str, began: Instant) -> Outcome {
        let generation = self.peers.next_generation();
        let located = self
            .directory
            .lookup(name, &self.own.introduction())
            .map_err(|error| errors::metadata(Stage::Resolve, name, &error))?;
        let speaks = Speaks {
            force_v1: self.config.force_v1,
            access: self.access.as_ref().map(|access| access.allow()),
            tls: self.tls.as_deref(),
        };
        let mut view = View::new(name, located, began, generation, speaks)?;
        view.near = self.routes.near(&mut view.target);
        view.metrics = self.metrics.as_ref().map(|metrics| metrics.peer(name));
        let view = Arc::new(view);
        if view.epoch().is_some_and(|epoch| self.peers.restarted(name, epoch)) {
            self.events.emit(&Event::PeerRestarted { peer: name.to_owned() });
        }
        if let Some(before) = self.peers.put(Arc::clone(&view))
            && (before.target.addresses != view.target.addresses
                || before.target.tls != view.target.tls
                || before.target.same_host != view.target.same_host)
        {
            self.routes.forget(&before.target);
        }
        Ok(view)
    }
}

fn stopped(name: &str, stop: Stop) -> Error {
    let (code, message) = match stop {
        Stop::Cancelled => (Code::Cancelled, "the transfer was cancelled before it began"),
        Stop::Interrupted => (Code::Interrupted, "a signal interrupted the call before it began"),
    };
    Error::new(code, Stage::Resolve, Retry::Safe, message).with_peer(name)
}
