//! The target's side: lets processes of this host at the registered regions.
//!
//! Owns the socket, the thread behind it, and the mirror's life. It must not know what is copied: it never sees a copy.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use moonrail_memory::{Outside, RegionInfo, RegionSpan, RegionTable};
use moonrail_sys::life::Life;
use moonrail_sys::local_socket::{self, PeerCredentials};
use moonrail_sys::poll::Interest;
use moonrail_sys::poller::{Events, Poller};
use moonrail_sys::process::ForkGuard;
use moonrail_sys::{Waker, host, random};

use crate::contact::ShmContact;
use crate::initiators::{Initiator, Initiators};
use crate::mirror::Mirror;
use crate::welcome::{Answer, Ask, Welcome};

/// Processes connected at once.
const MOST_INITIATORS: usize = 1024;

/// Rest after accepting failed for lack of descriptors.
const REST: Duration = Duration::from_millis(200);

const BACKLOG: i32 = 128;
const WAKER: u64 = 0;
const LISTENER: u64 = 1;

/// Offers a region table to other processes of this host and user, from [`ShmServer::start`] until it is dropped. One
/// thread, which sleeps unless a process comes or goes.
///
/// The table's unregister waits for initiators' copies for the table's whole life, also after the server was dropped.
pub struct ShmServer {
    shared: Arc<Shared>,
    contact: ShmContact,
    thread: Option<JoinHandle<()>>,
}

/// What the thread, the table and the server's owner share.
struct Shared {
    mirror: Mirror,
    initiators: Initiators,
    /// Others read it out of this process's memory; it must stay where it is.
    nonce: Box<[u64; 2]>,
    epoch: u64,
    mirror_fd: OwnedFd,
    fork_guard: ForkGuard,
    waker: Waker,
    stopping: AtomicBool,
}

impl ShmServer {
    /// Starts to offer `regions`, of the engine run that has this `epoch`.
    ///
    /// # Errors
    /// No `/proc`, no memfd, out of descriptors or threads: then this process has no same-host path as a target.
    pub fn start(regions: Arc<RegionTable>, epoch: u64) -> io::Result<Self> {
        let mut bytes = [0; 32];
        random::fill(&mut bytes)?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        let nonce = [word(0), word(1)];
        let socket = format!("moonrail-{:016x}{:016x}", word(2), word(3));
        let contact = ShmContact::of_this_process(socket, nonce)?;
        let listener = local_socket::listen(contact.socket.as_bytes(), BACKLOG)?;
        let (mirror, mirror_fd) = Mirror::new(epoch)?;
        let shared = Arc::new(Shared {
            mirror,
            initiators: Initiators::default(),
            nonce: Box::new(nonce),
            epoch,
            mirror_fd,
            fork_guard: ForkGuard::new(),
            waker: Waker::new()?,
            stopping: AtomicBool::new(false),
        });
        let reception = Reception::new(Arc::clone(&shared), listener)?;
        let thread = std::thread::Builder::new().name("moonrail-shm".to_owned()).spawn(|| reception.run())?;
        regions.attach(Arc::clone(&shared) as Arc<dyn Outside>);
        Ok(Self { shared, contact, thread: Some(thread) })
    }

    /// How initiators find this server; its text goes into the segment descriptor.
    #[must_use]
    pub fn contact(&self) -> &ShmContact {
        &self.contact
    }

    /// Processes connected now.
    #[must_use]
    pub fn initiators(&self) -> usize {
        self.shared.initiators.len()
    }
}

impl Drop for ShmServer {
    /// No batch begins any more; copies that are going on are waited for by whoever unregisters their memory. In a
    /// forked child, nothing that the parent uses is touched.
    fn drop(&mut self) {
        if self.shared.fork_guard.forked() {
            return;
        }
        self.shared.mirror.close();
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it did, there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl Outside for Shared {
    fn registered(&self, regions: &mut dyn Iterator<Item = &RegionInfo>) {
        if !self.fork_guard.forked() {
            self.mirror.list(regions);
        }
    }

    fn revoked(&self, regions: &mut dyn Iterator<Item = &RegionInfo>) {
        if !self.fork_guard.forked() {
            self.mirror.delist(regions);
        }
    }

    fn fence(&self, regions: &[RegionSpan], deadline: Option<Instant>, busy: &mut dyn FnMut(usize, u32)) {
        if !self.fork_guard.forked() {
            self.initiators.fence(self.mirror.fence(), regions, deadline, busy);
        }
    }
}

/// The thread's own things.
struct Reception {
    shared: Arc<Shared>,
    listener: OwnedFd,
    poller: Poller,
    /// By token; the process's descriptor has the token behind its socket's.
    connected: HashMap<u64, Arc<Initiator>>,
    next_token: u64,
}

impl Reception {
    fn new(shared: Arc<Shared>, listener: OwnedFd) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&shared.waker, WAKER, Interest::Read)?;
        poller.add(&listener, LISTENER, Interest::Read)?;
        Ok(Self { shared, listener, poller, connected: HashMap::new(), next_token: 2 })
    }

    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        // Initiators see by it, without a system call, that this process has ended. Where it cannot be had, they ask.
        let life = Life::begin(shared.mirror.life());
        if let Err(error) = &life {
            tracing::debug!(%error, "the same-host path cannot mark this process as living");
        }
        let mut events = Events::with_capacity(64);
        let mut resting = false;
        while !self.shared.stopping.load(Ordering::Acquire) {
            if let Err(error) = self.poller.wait(&mut events, resting.then_some(REST)) {
                tracing::error!(%error, "the same-host path takes no more processes");
                break;
            }
            let rested = std::mem::take(&mut resting) && events.iter().next().is_none();
            let mut knocked = rested;
            for event in events.iter() {
                match event.token {
                    WAKER => {
                        self.shared.waker.drain();
                    }
                    LISTENER => knocked = true,
                    token => self.attend(token),
                }
            }
            if rested {
                self.listen(Interest::Read);
            }
            if knocked && self.accept_all().is_err() {
                self.listen(Interest::None);
                resting = true;
            }
        }
        // Whoever is in the middle of a copy keeps its place in `initiators`, where unregister waits for it; closing our end
        // would not stop it.
    }

    fn listen(&self, interest: Interest) {
        if let Err(error) = self.poller.modify(&self.listener, LISTENER, interest) {
            tracing::error!(%error, "the same-host path's socket cannot be watched");
        }
    }

    /// Takes all who wait; an error when this process has no room for another descriptor now.
    fn accept_all(&mut self) -> io::Result<()> {
        loop {
            let socket = match local_socket::accept(&self.listener) {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::warn!(%error, "the same-host path cannot take another process now");
                    return Err(error);
                }
            };
            if let Err(refusal) = self.admit(&socket) {
                let _ = local_socket::send(&socket, &Welcome::Refused(refusal).encode(), &[]);
            }
        }
    }

    /// Lets a process in, or says why not.
    fn admit(&mut self, socket: &OwnedFd) -> Result<(), String> {
        let said = |error: io::Error| error.to_string();
        let PeerCredentials { pid, uid } = local_socket::peer_credentials(socket).map_err(said)?;
        let own = host::effective_uid();
        if uid != own {
            return Err(format!("this process runs as user {own}, the caller as {uid}"));
        }
        if pid == 0 {
            return Err("the caller has no number in this pid namespace".to_owned());
        }
        if self.shared.initiators.len() >= MOST_INITIATORS {
            return Err(format!("{MOST_INITIATORS} processes are connected already"));
        }
        let process = local_socket::peer_process(socket).map_err(said)?;
        let kept = socket.try_clone().map_err(said)?;
        let (initiator, page) = Initiator::new(pid, process, kept).map_err(said)?;
        let initiator = Arc::new(initiator);
        let token = self.next_token;
        self.next_token += 2;
        self.poller.add(initiator.socket(), token, Interest::Read).map_err(said)?;
        if let Err(error) = self.poller.add(initiator.process(), token + 1, Interest::Read) {
            let _ = self.poller.remove(initiator.socket());
            return Err(said(error));
        }
        // Before it can know of a single region.
        self.shared.initiators.add(Arc::clone(&initiator));
        self.connected.insert(token, initiator);
        let nonce_at = std::ptr::from_ref::<[u64; 2]>(&self.shared.nonce).expose_provenance() as u64;
        let welcome = Welcome::Come { nonce_at, epoch: self.shared.epoch }.encode();
        let fds = [self.shared.mirror_fd.as_fd(), page.as_fd()];
        if local_socket::send(socket, &welcome, &fds).is_err() {
            // It has gone again.
            self.attend(token);
        }
        Ok(())
    }

    /// A process asks for a block, has ended, or closed its socket.
    fn attend(&mut self, token: u64) {
        let token = token & !1;
        let Some(initiator) = self.connected.get(&token) else { return };
        if !initiator.gone() {
            self.answer(initiator);
            return;
        }
        let _ = self.poller.remove(initiator.socket());
        let _ = self.poller.remove(initiator.process());
        self.shared.initiators.remove(initiator);
        self.connected.remove(&token);
    }

    /// Reads one question and hands the block out. What is no question is dropped, and so is an answer that finds no room:
    /// whoever asks that much without reading does without.
    fn answer(&self, initiator: &Initiator) {
        let mut bytes = [0; Ask::LEN + 1];
        let read = local_socket::receive(initiator.socket(), &mut bytes);
        let Some(Ask { block }) = read.ok().and_then(|(len, _)| Ask::decode(&bytes[..len])) else { return };
        let found = self.shared.mirror.block(block);
        let answer = Answer { block, len: found.as_ref().map_or(0, |found| found.len()) };
        let fd = found.as_ref().map(|found| found.fd());
        let _ = local_socket::send(initiator.socket(), &answer.encode(), fd.as_slice());
    }
}
