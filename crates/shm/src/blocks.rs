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
            Err(_) if self.is_full() => {}
            Err(at) => list.insert(at, (block, Arc::new(far))),
        }
        Self { list }
    }

    pub(crate) fn without(&self, gone: &[u32]) -> Self {
        Self { list: self.list.iter().filter(|(id, _)| !gone.contains(id)).cloned().collect() }
    }

    /// Whether no further block is mapped.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MOST
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;

    use moonrail_sys::memfd::{Memfd, Pages};
    use moonrail_sys::shared_words::{Others, SharedWords};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let mut bytes = [0; 8];
        moonrail_sys::random::fill(&mut bytes).unwrap();
        let name = format!("moonrail-test-{:016x}", u64::from_ne_bytes(bytes));
        let listener = local_socket::listen(name.as_bytes(), 1).unwrap();
        let near = local_socket::connect(name.as_bytes()).unwrap();
        (near, local_socket::accept(&listener).unwrap())
    }

    fn answer(far: &OwnedFd, block: u32, len: u64, fd: Option<&Memfd>) {
        let fd = fd.map(AsFd::as_fd);
        local_socket::send(far, &Answer { block, len }.encode(), fd.as_slice()).unwrap();
    }

    fn ask(desk: &Desk, near: &OwnedFd, block: u32) -> Vec<(u32, u64)> {
        let mut arrived = Vec::new();
        desk.ask(near, block, |block, far| arrived.push((block, far.len())));
        arrived
    }

    /// What the far end has been asked, one after another.
    fn questions(far: &OwnedFd) -> Vec<u32> {
        let mut bytes = [0; 16];
        let mut next =
            || local_socket::receive(far, &mut bytes).ok().map(|(len, _)| Ask::decode(&bytes[..len]));
        std::iter::from_fn(|| next()?.map(|ask| ask.block)).collect()
    }

    #[test]
    fn a_late_answer_is_taken_by_a_later_call() {
        let (near, far) = pair();
        let (desk, memfd) = (Desk::default(), Memfd::create(c"test", 8192, Pages::Usual).unwrap());
        let since = Instant::now();
        assert_eq!(ask(&desk, &near, 7), []);
        assert!(since.elapsed() >= PATIENCE);
        assert_eq!(ask(&desk, &near, 7), []);
        assert_eq!(ask(&desk, &near, 9), []);
        assert_eq!(questions(&far), [7, 9], "each is asked once");
        // In another order than asked.
        answer(&far, 9, 8192, Some(&memfd));
        answer(&far, 7, 8192, Some(&memfd));
        assert_eq!(ask(&desk, &near, 7), [(9, 8192), (7, 8192)]);
        // One that no region lies in any more may be asked for again.
        assert_eq!(ask(&desk, &near, 11), []);
        answer(&far, 11, 0, None);
        assert_eq!(ask(&desk, &near, 11), []);
        assert_eq!(ask(&desk, &near, 11), []);
        assert_eq!(questions(&far), [11, 11]);
        assert!(!desk.given_up(11));
    }

    #[test]
    fn a_block_that_is_not_what_it_should_be_is_not_mapped() {
        let (near, far) = pair();
        let desk = Desk::default();
        let good = Memfd::create(c"test", 8192, Pages::Usual).unwrap();
        // A size that is not the one said; no descriptor at all; a descriptor of no memfd.
        let (_words, other) = SharedWords::create(c"test", 8, Others::Read).unwrap();
        for (block, len, fd) in [
            (1, 4096, Some(good.as_fd())),
            (2, 8192, None),
            (3, 8192, Some(far.as_fd())),
            (4, 8192, Some(other.as_fd())),
        ] {
            assert_eq!(ask(&desk, &near, block), []);
            local_socket::send(&far, &Answer { block, len }.encode(), fd.as_slice()).unwrap();
            assert_eq!(ask(&desk, &near, block), [], "{block}");
            assert!(desk.given_up(block), "{block}");
        }
        assert_eq!(questions(&far), [1, 2, 3, 4], "none is asked for again");
        // The desk goes on.
        answer(&far, 5, 8192, Some(&good));
        assert_eq!(ask(&desk, &near, 5), [(5, 8192)]);
    }

    #[test]
    fn there_is_room_again_when_a_block_goes() {
        let far = |name| {
            let memfd = Memfd::create(name, 4096, Pages::Usual).unwrap();
            FarBlock::open(memfd.as_fd().try_clone_to_owned().unwrap(), 4096).unwrap()
        };
        let first = Arc::new(far(c"first"));
        let full = Mapped { list: (1..=MOST as u32).map(|id| (id, Arc::clone(&first))).collect() };
        assert!(full.is_full() && full.with(MOST as u32 + 1, far(c"second")).get(MOST as u32 + 1).is_none());
        let rest = full.without(&[7]);
        assert!(!rest.is_full() && rest.get(7).is_none());
        assert!(rest.with(MOST as u32 + 1, far(c"second")).get(MOST as u32 + 1).is_some());
    }

    #[test]
    fn nonsense_and_the_end_close_the_desk() {
        for nonsense in [Some(b"what?".as_slice()), Some(&Answer { block: 8, len: 1 }.encode()), None] {
            let (near, far) = pair();
            let desk = Desk::default();
            match nonsense {
                Some(bytes) => local_socket::send(&far, bytes, &[]).unwrap(),
                None => drop(far),
            }
            assert_eq!(ask(&desk, &near, 7), []);
            assert!(desk.given_up(7) || nonsense.is_none(), "{nonsense:?}");
            assert_eq!(ask(&desk, &near, 6), []);
        }
    }
}
