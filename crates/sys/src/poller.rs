//! Waiting for many descriptors with `epoll(7)`, level-triggered.
//!
//! Owns the epoll descriptor and the translation of its events. It must not know what a token means.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;

use crate::poll::{Interest, Readiness, timespec};

/// A set of watched descriptors. Any thread may change the set while another waits.
///
/// A watched descriptor must be removed before it is closed; the kernel forgets it by itself only when no duplicate of
/// it (as a forked child has) is left.
#[derive(Debug)]
pub struct Poller {
    fd: OwnedFd,
}

impl Poller {
    /// Makes an empty set.
    ///
    /// # Errors
    /// The process or the system is out of descriptors or memory.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller { fd: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Watches `fd`; its events carry `token`.
    ///
    /// # Errors
    /// `AlreadyExists` when `fd` is watched already; the per-user limit on watches is reached; `fd` cannot be polled.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        epoll::add(&self.fd, fd, epoll::EventData::new_u64(token), flags(interest)).map_err(Into::into)
    }

    /// Replaces the token and interest of a watched descriptor.
    ///
    /// # Errors
    /// `NotFound` when `fd` is not watched.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        epoll::modify(&self.fd, fd, epoll::EventData::new_u64(token), flags(interest)).map_err(Into::into)
    }

    /// Stops watching `fd`. Events already collected by another thread's [`Poller::wait`] may still be seen there.
    ///
    /// # Errors
    /// `NotFound` when `fd` is not watched.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.fd, fd).map_err(Into::into)
    }

    /// Waits until at least one descriptor is ready, replacing the contents of `events`; returns how many there are.
    /// 0 means that the timeout passed or a signal handler ran. `None` waits without limit.
    ///
    /// # Errors
    /// Those of `epoll_wait(2)`; none is expected in a healthy process.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.ready.clear();
        let timeout = timeout.map(timespec);
        match epoll::wait(&self.fd, events.buffer.as_mut_slice(), timeout.as_ref()) {
            Ok((seen, _)) => events.ready.extend(seen.iter().map(Event::from_kernel)),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(events.ready.len())
    }
}

/// One ready descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The token given to [`Poller::add`].
    pub token: u64,
    /// What it is ready for.
    pub readiness: Readiness,
}

impl Event {
    fn from_kernel(event: &epoll::Event) -> Event {
        let seen = event.flags;
        let broken = seen.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        let readiness = Readiness {
            readable: broken || seen.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
            writable: broken || seen.contains(epoll::EventFlags::OUT),
            closed: broken || seen.contains(epoll::EventFlags::RDHUP),
        };
        Event { token: event.data.u64(), readiness }
    }
}

/// Room for the events of one wait; made once, used for every wait of a thread.
pub struct Events {
    buffer: Vec<MaybeUninit<epoll::Event>>,
    ready: Vec<Event>,
}

impl Events {
    /// Room for `capacity` events a wait (at least 1). More ready descriptors than that are reported by the next wait.
    pub fn with_capacity(capacity: usize) -> Events {
        let capacity = capacity.max(1);
        Events {
            buffer: (0..capacity).map(|_| MaybeUninit::uninit()).collect(),
            ready: Vec::with_capacity(capacity),
        }
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event> + '_ {
        self.ready.iter().copied()
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.ready).finish()
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    if interest.reads() {
        flags |= epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    }
    if interest.writes() {
        flags |= epoll::EventFlags::OUT;
    }
    flags
}
