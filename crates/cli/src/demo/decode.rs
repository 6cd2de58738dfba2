//! The decode process: gives pages to requests, learns by notification that they are filled, and compares them.
//!
//! One thread gives out pages, one verifies, so that the next request's pages arrive while the last is compared.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use moonrail::Engine;

use crate::demo::content::{Content, PageId};
use crate::demo::digest::{BlockHasher, RequestDigest};
use crate::demo::memory::Memory;
use crate::demo::messages::{self, Arrived, Event, Job, Setup, Wanted};
use crate::demo::model::Shape;
use crate::demo::pool::{Full, Placed, Pool};
use crate::demo::worker::{self, Events, Jobs};
use crate::failure::Failure;

/// Between two looks at the notifications; callers of such engines poll every 1 to 10 ms.
const POLL: Duration = Duration::from_micros(500);
/// Start of the order of free pages; prefill has another.
const SEED: u64 = 2;

pub(super) fn run(setup: &Setup, jobs: &mut Jobs, events: &Events) -> Result<(), Failure> {
    let shape = Shape::new(setup.model, setup.tokens_per_block).map_err(Failure::usage)?;
    let engine = worker::engine()?;
    let memory = Memory::allocate(&engine, &shape, setup.pages)?;
    let desk = Arc::new(Desk::new(Pool::new(setup.pages, shape.pages_per_block, SEED)));
    let verifier = Verifier { shape, memory, content: Content::new() };
    let checker = {
        let (engine, desk, events) = (engine.clone(), Arc::clone(&desk), events.clone());
        thread::spawn(move || {
            if let Err(failure) = check_arrivals(&engine, &desk, &verifier, &events) {
                // Where the router is gone, nobody is left to tell.
                let _ = events.send(&Event::Failed { what: failure.to_string() });
            }
            desk.close();
        })
    };
    events.send(&Event::Ready { session: engine.name().to_owned() })?;
    while let Some(job) = messages::receive::<Job>(jobs)? {
        let Job::Prepare { request, blocks } = job else {
            return Err(Failure::failed("decode: got a job of prefill's"));
        };
        let Some(placed) = desk.place(request, blocks)? else { break };
        let missing = placed.into_iter().enumerate().filter(|(_, block)| !block.present);
        let wanted = missing.map(|(position, block)| Wanted { position, pages: block.pages }).collect();
        events.send(&Event::Prepared { request, wanted })?;
    }
    desk.close();
    checker.join().expect("invariant: the checking thread does not panic");
    engine.shutdown();
    Ok(())
}

fn check_arrivals(engine: &Engine, desk: &Desk, verifier: &Verifier, events: &Events) -> Result<(), Failure> {
    while !desk.closed() {
        let notes = engine.take_notifies();
        if notes.is_empty() {
            thread::sleep(POLL);
        }
        for note in notes {
            let arrived: Arrived = serde_json::from_str(&note.message).map_err(|error| {
                Failure::failed(format!("decode: unreadable notification from {}: {error}", note.name))
            })?;
            let request = arrived.request;
            let Some((blocks, placed)) = desk.arrived(request) else {
                return Err(Failure::failed(format!("decode: request {request} was never prepared")));
            };
            let event = match verifier.compare(&blocks, &placed, &arrived.digest)? {
                None => {
                    Event::Verified { request, compared: verifier.shape.block_bytes() * blocks.len() as u64 }
                }
                Some(what) => Event::Differs { request, what },
            };
            desk.done(&blocks);
            events.send(&event)?;
        }
    }
    Ok(())
}

/// What both threads share: the pool, and the requests that are under way.
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    pool: Pool,
    open: HashMap<u64, (Vec<u64>, Vec<Placed>)>,
    closed: bool,
}

impl Desk {
    fn new(pool: Pool) -> Self {
        Self {
            state: Mutex::new(State { pool, open: HashMap::new(), closed: false }),
            changed: Condvar::new(),
        }
    }

    /// Finds pages, waiting until earlier requests are done with theirs; `None` when closed meanwhile.
    fn place(&self, request: u64, blocks: Vec<u64>) -> Result<Option<Vec<Placed>>, Failure> {
        let mut state = self.lock();
        while !state.closed {
            match state.pool.acquire(&blocks) {
                Ok(placed) => {
                    state.open.insert(request, (blocks, placed.clone()));
                    return Ok(Some(placed));
                }
                Err(Full::TooSmall) => {
                    return Err(Failure::failed(format!(
                        "decode: the pool is too small for request {request}"
                    )));
                }
                Err(Full::Pinned) => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        Ok(None)
    }

    fn arrived(&self, request: u64) -> Option<(Vec<u64>, Vec<Placed>)> {
        self.lock().open.remove(&request)
    }

    fn done(&self, blocks: &[u64]) {
        self.lock().pool.release(blocks);
        self.changed.notify_all();
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Verifier {
    shape: Shape,
    memory: Memory,
    content: Content,
}

impl Verifier {
    /// Hashes what lies in the request's pages, those that were there before too. Where that is not what prefill made:
    /// the first page that differs.
    fn compare(
        &self,
        blocks: &[u64],
        placed: &[Placed],
        sent: &RequestDigest,
    ) -> Result<Option<String>, Failure> {
        let mut bytes = vec![0; self.shape.page_bytes as usize];
        let mut digests = Vec::with_capacity(placed.len());
        for block in placed {
            let mut hasher = BlockHasher::new();
            for buffer in 0..self.shape.buffers {
                for page in &block.pages {
                    self.memory.read(buffer, *page, &mut bytes)?;
                    hasher.page(&bytes);
                }
            }
            digests.push(hasher.finish());
        }
        if RequestDigest::of(digests) == *sent { Ok(None) } else { self.locate(blocks, placed).map(Some) }
    }

    fn locate(&self, blocks: &[u64], placed: &[Placed]) -> Result<String, Failure> {
        let mut found = vec![0; self.shape.page_bytes as usize];
        let mut expected = found.clone();
        for (position, (id, block)) in blocks.iter().zip(placed).enumerate() {
            for buffer in 0..self.shape.buffers {
                for (number, page) in block.pages.iter().enumerate() {
                    self.memory.read(buffer, *page, &mut found)?;
                    self.content.fill(PageId { block: *id, buffer, page: number as u32 }, &mut expected);
                    if let Some(byte) =
                        found.iter().zip(&expected).position(|(found, expected)| found != expected)
                    {
                        let logical = position * self.shape.pages_per_block as usize + number;
                        let reused = if block.present { "reused, " } else { "" };
                        return Ok(format!(
                            "{}, page {logical} ({reused}block {id}, pool page {page}) differs from byte {byte} on",
                            self.shape.buffer_name(buffer)
                        ));
                    }
                }
            }
        }
        Ok("the pages are right, but not the hash that prefill sent".to_owned())
    }
}
