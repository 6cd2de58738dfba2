//! A target's blocks of memory that are mapped here: docs/same-host.md, "Mapped memory".
//!
//! Owns the asking for them and which have been mapped. It must not know regions or batches.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moonrail_memory::far::FarBlock;
use moonrail_sys::local_socket;
use moonrail_sys::poll::{Ready, wait_readable};
use parking_lot::Mutex;

use crate::welcome::{Answer, Ask, MAX_LEN};

/// How long the first question for a block waits. It is the target's thread that answers, after a wake-up; an answer that
/// comes later is taken by a later batch.
const PATIENCE: Duration = Duration::from_millis(2);

/// Blocks mapped of one target at once.
const MOST: usize = 4096;

/// What is mapped, by block number.
#[derive(Debug, Default, Clone)]
pub(crate) struct Mapped {
    list: Vec<(u32, Arc<FarBlock>)>,
}

impl Mapped {
    #[inline]
    pub(crate) fn get(&self, block: u32) -> Option<&FarBlock> {
        let at = self.list.binary_search_by_key(&block, |&(id, _)| id).ok()?;
        Some(&self.list[at].1)
    }

    pub(crate) fn with(&self, block: u32, far: FarBlock) -> Self {
        let mut list = self.list.clone();
        match list.binary_search_by_key(&block, |&(id, _)| id) {
            Ok(_) => {}
            Err(_) if list.len() >= MOST => {}
            Err(at) => list.insert(at, (block, Arc::new(far))),
        }
        Self { list }
    }

    pub(crate) fn without(&self, gone: &[u32]) -> Self {
        Self { list: self.list.iter().filter(|(id, _)| !gone.contains(id)).cloned().collect() }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.list.iter().map(|(_, far)| far.len()).sum()
    }
}

/// The questions asked of one target.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    /// One thread at a time uses the socket.
    questions: Mutex<Questions>,
}

#[derive(Debug, Default)]
struct Questions {
    open: BTreeSet<u32>,
    /// Blocks that could not be mapped here.
    failed: HashSet<u32>,
    /// The other end makes no sense, or is gone.
    broken: bool,
}

impl Desk {
    /// Asks for a block, or looks for the answer if it has been asked for; whatever has arrived is given to `arrived`.
    /// Does nothing while another thread is at it.
    pub(crate) fn ask(&self, socket: &OwnedFd, block: u32, mut arrived: impl FnMut(u32, FarBlock)) {
        let Some(mut questions) = self.questions.try_lock() else { return };
        if questions.broken || questions.failed.contains(&block) {
            return;
        }
        let mut limit = None;
        if !questions.open.contains(&block) {
            // Full only if the target has not answered many questions; then this one waits for a later batch.
            if local_socket::send(socket, &Ask { block }.encode(), &[]).is_err() {
                return;
            }
            questions.open.insert(block);
            limit = Some(Instant::now() + PATIENCE);
        }
        while questions.open.contains(&block) {
            match questions.receive(socket) {
                Ok(Some((id, far))) => arrived(id, far),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
                    let Some(left) = left.filter(|left| !left.is_zero()) else { return };
                    if !matches!(wait_readable(socket, Some(left)), Ok(Ready::Ready(_))) {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "no further memory of the peer is mapped");
                    questions.broken = true;
                    return;
                }
            }
        }
    }

    /// Whether the block is known not to be mapped ever. Does not wait.
    pub(crate) fn given_up(&self, block: u32) -> bool {
        let questions = self.questions.try_lock();
        questions.is_some_and(|questions| questions.broken || questions.failed.contains(&block))
    }
}

impl Questions {
    /// Takes one answer; `None` for one that brings no block.
    fn receive(&mut self, socket: &OwnedFd) -> io::Result<Option<(u32, FarBlock)>> {
        let mut bytes = [0; MAX_LEN];
        let (len, mut fds) = local_socket::receive(socket, &mut bytes)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = Answer::decode(&bytes[..len]).filter(|answer| self.open.remove(&answer.block));
        let Answer { block, len } = answer.ok_or(io::ErrorKind::InvalidData)?;
        if len == 0 {
            return Ok(None);
        }
        // The kernel drops a descriptor that this process has no room for.
        let fd = fds.pop().ok_or(io::Error::other("it came without its descriptor (limit reached?)"));
        match fd.and_then(|fd| FarBlock::open(fd, len)) {
            Ok(far) => Ok(Some((block, far))),
            Err(error) => {
                tracing::debug!(%error, "memory of the peer cannot be mapped; it is copied by the kernel");
                self.failed.insert(block);
                Ok(None)
            }
        }
    }
}
