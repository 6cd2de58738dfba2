//! The prefill process: makes the KV pages of prompts, and pushes those that decode lacks.

use std::collections::HashMap;
use std::time::Instant;

use moonrail::{Engine, Notify, Opcode, Request};

use crate::demo::content::{Content, PageId};
use crate::demo::digest::{BlockDigest, BlockHasher, RequestDigest};
use crate::demo::layout::Layout;
use crate::demo::memory::Memory;
use crate::demo::messages::{self, Arrived, Event, Job, Moved, Setup, Wanted};
use crate::demo::model::{BLOCK_TOKENS, Shape};
use crate::demo::pool::{Full, Placed, Pool};
use crate::demo::runs;
use crate::demo::worker::{self, Events, Jobs};
use crate::failure::Failure;

/// Tokens of a prompt that are computed, and so pushed, at a time.
const CHUNK_TOKENS: u32 = 8192;
const BLOCKS_PER_CHUNK: usize = (CHUNK_TOKENS / BLOCK_TOKENS) as usize;
/// Start of the order of free pages; decode has another.
const SEED: u64 = 1;

pub(super) fn run(setup: &Setup, jobs: &mut Jobs, events: &Events) -> Result<(), Failure> {
    let shape = Shape::new(setup.model, setup.tokens_per_block).map_err(Failure::usage)?;
    let engine = worker::engine()?;
    let memory = Memory::allocate(&engine, &shape, setup.pages)?;
    events.send(&Event::Ready { session: engine.name().to_owned() })?;
    let Some(Job::Connect { decode }) = messages::receive::<Job>(jobs)? else { return Ok(()) };
    let mut prefill = Prefill {
        shape,
        memory,
        remote: open(&engine, &decode, &shape)?,
        pool: Pool::new(setup.pages, shape.pages_per_block, SEED),
        digests: HashMap::new(),
        content: Content::new(),
        spoil: setup.spoil,
        engine: engine.clone(),
        decode,
    };
    while let Some(job) = messages::receive::<Job>(jobs)? {
        let Job::Push { request, blocks, wanted } = job else {
            return Err(Failure::failed("prefill: got a job of decode's"));
        };
        let moved = prefill.push(request, &blocks, &wanted)?;
        events.send(&Event::Pushed { request, moved })?;
    }
    engine.shutdown();
    Ok(())
}

/// Where decode's buffers are, as its descriptor says: in the order of their registration.
fn open(engine: &Engine, decode: &str, shape: &Shape) -> Result<Layout, Failure> {
    let report =
        engine.peer(decode).map_err(|error| Failure::engine("prefill: cannot open decode", &error))?;
    if report.buffers.len() != shape.buffers as usize {
        return Err(Failure::failed(format!("prefill: decode has {} buffers", report.buffers.len())));
    }
    let starts = report.buffers.iter().map(|(addr, _)| *addr).collect();
    Ok(Layout::new(starts, shape.page_bytes))
}

struct Prefill {
    engine: Engine,
    shape: Shape,
    memory: Memory,
    /// Decode's session and its pool.
    decode: String,
    remote: Layout,
    pool: Pool,
    /// Of every block ever made; decode may still have one that is evicted here.
    digests: HashMap<u64, BlockDigest>,
    content: Content,
    spoil: Option<u64>,
}

impl Prefill {
    fn push(&mut self, request: u64, blocks: &[u64], wanted: &[Wanted]) -> Result<Moved, Failure> {
        let placed = self.pool.acquire(blocks).map_err(|full| {
            let why = match full {
                Full::Pinned => "blocks are still pinned",
                Full::TooSmall => "the pool is too small",
            };
            Failure::failed(format!("prefill: no room for request {request}: {why}"))
        })?;
        for (id, block) in blocks.iter().zip(&placed).filter(|(_, block)| !block.present) {
            let digest = self.make(*id, &block.pages)?;
            self.digests.insert(*id, digest);
        }
        if self.spoil == Some(request) {
            self.spoil(&placed, wanted)?;
        }
        let digest = RequestDigest::of(blocks.iter().filter_map(|id| self.digests.get(id)).copied());
        let moved = self.transfer(request, &placed, wanted, digest)?;
        self.pool.release(blocks);
        Ok(moved)
    }

    /// Puts a block's bytes into its pages.
    fn make(&self, id: u64, pages: &[u32]) -> Result<BlockDigest, Failure> {
        let mut bytes = vec![0; self.shape.page_bytes as usize];
        let mut hasher = BlockHasher::new();
        for buffer in 0..self.shape.buffers {
            for (number, page) in pages.iter().enumerate() {
                self.content.fill(PageId { block: id, buffer, page: number as u32 }, &mut bytes);
                hasher.page(&bytes);
                self.memory.write(buffer, *page, &bytes)?;
            }
        }
        Ok(hasher.finish())
    }

    /// One batched write a chunk of the prompt; the last one carries the notification.
    fn transfer(
        &self,
        request: u64,
        placed: &[Placed],
        wanted: &[Wanted],
        digest: RequestDigest,
    ) -> Result<Moved, Failure> {
        let arrived = serde_json::to_string(&Arrived { request, digest })
            .map_err(|error| Failure::failed(format!("prefill: cannot make a notification: {error}")))?;
        let mut chunks: Vec<Request> = wanted
            .chunk_by(|a, b| a.position / BLOCKS_PER_CHUNK == b.position / BLOCKS_PER_CHUNK)
            .map(|chunk| self.batch(placed, chunk))
            .collect::<Result<_, _>>()?;
        if chunks.is_empty() {
            // Decode has it all; it is told so.
            chunks.push(Request::new(self.decode.clone(), Opcode::Write, Vec::new()));
        }
        if let Some(last) = chunks.last_mut() {
            last.notify = Some(Notify { name: self.engine.name().to_owned(), message: arrived });
        }
        let mut moved = Moved { batches: chunks.len() as u64, ..Moved::default() };
        for chunk in &chunks {
            let started = Instant::now();
            self.engine
                .transfer(chunk)
                .map_err(|error| Failure::engine(&format!("prefill: request {request}"), &error))?;
            moved.nanos += started.elapsed().as_nanos() as u64;
            moved.entries += chunk.entries.len() as u64;
            moved.bytes += chunk.entries.iter().map(|entry| entry.len).sum::<u64>();
        }
        Ok(moved)
    }

    fn batch(&self, placed: &[Placed], chunk: &[Wanted]) -> Result<Request, Failure> {
        let mut from = Vec::new();
        let mut to = Vec::new();
        for wanted in chunk {
            let here = placed.get(wanted.position).map_or(&[][..], |block| &block.pages);
            if here.len() != wanted.pages.len() {
                return Err(Failure::failed(format!("prefill: bad position {} in a job", wanted.position)));
            }
            from.extend_from_slice(here);
            to.extend_from_slice(&wanted.pages);
        }
        let entries = runs::entries(&runs::join(&from, &to), &self.memory.layout, &self.remote);
        Ok(Request::new(self.decode.clone(), Opcode::Write, entries))
    }

    /// Flips a bit in the middle of what is about to be sent.
    fn spoil(&self, placed: &[Placed], wanted: &[Wanted]) -> Result<(), Failure> {
        let Some(block) = wanted.last().and_then(|wanted| placed.get(wanted.position)) else { return Ok(()) };
        let (buffer, page) = (self.shape.buffers / 2, block.pages[block.pages.len() - 1]);
        let mut bytes = vec![0; self.shape.page_bytes as usize];
        self.memory.read(buffer, page, &mut bytes)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        self.memory.write(buffer, page, &bytes)
    }
}
