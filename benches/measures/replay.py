"""The real trace of data/: KV pages from a prefill node's pool to a decode node's, as SGLang sends them.

A tensor-parallel rank of Llama-3-70B has 160 buffers of 4 KiB pages. Of each block of the trace (512 tokens) two pages move,
a sixteenth of the real ones, so that the pools are as large as every other case's memory. Both pools' page numbers come from
allocators like SGLang's: blocks that were used before stay where they are until they are the oldest, so pages are partly
scattered, and runs that are contiguous at both ends become one request. A call carries one chunk of prefill, 8,192 tokens.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benches.cases import KIB, POOL, REPLAY
from benches.far import pattern
from benches.measures.bench import Bench
from benches.mooncake_api import must
from benches.rows import Row, timed

TRACE = Path(__file__).resolve().parents[2] / "data" / "conversation_trace.jsonl"
REQUESTS, REQUESTS_QUICK = 100, 25
BUFFERS, PAGE = 160, 4 * KIB
BUFFER = POOL // BUFFERS
PAGES = BUFFER // PAGE
BLOCK_PAGES = 2
CHUNK_BLOCKS = 16
LARGEST = 100
"""Blocks of a request; larger ones, of which there are few, are left out."""
KEPT = 3
"""Requests that a decode node still works on when the next one arrives."""
ACCELERATION = 20
Run = tuple[int, int, int]
"""First page at the source, first page at the target, pages."""


@dataclass(frozen=True)
class Request:
    """When it comes, in seconds since the start, and its chunks."""

    at: float
    chunks: list[list[Run]]


class Allocator:
    """Pages of one pool, each owner's together; those given back are taken again last, like SGLang's."""

    def __init__(self) -> None:
        self.free = deque(range(PAGES))
        self.owners: OrderedDict[int, list[int]] = OrderedDict()

    def pages(self, owner: int, count: int) -> list[int]:
        """The owner's pages; the oldest owners make room."""
        if owner in self.owners:
            self.owners.move_to_end(owner)
            return self.owners[owner]
        while len(self.free) < count:
            self.release(next(iter(self.owners)))
        self.owners[owner] = [self.free.popleft() for _ in range(count)]
        return self.owners[owner]

    def release(self, owner: int) -> None:
        """Gives an owner's pages back."""
        self.free = deque(sorted([*self.free, *self.owners.pop(owner)]))


def plan(count: int) -> list[Request]:
    """The first requests of the trace."""
    prefill, decode, planned = Allocator(), Allocator(), []
    for number, line in enumerate(TRACE.read_text(encoding="utf-8").splitlines()):
        blocks: list[int] = json.loads(line)["hash_ids"]
        if len(blocks) > LARGEST:
            continue
        if number - KEPT in decode.owners:
            decode.release(number - KEPT)
        there = decode.pages(number, len(blocks) * BLOCK_PAGES)
        chunks = []
        for first in range(0, len(blocks), CHUNK_BLOCKS):
            here = [
                page for block in blocks[first : first + CHUNK_BLOCKS] for page in prefill.pages(block, BLOCK_PAGES)
            ]
            chunks.append(runs(here, there[first * BLOCK_PAGES :]))
        planned.append(Request(json.loads(line)["timestamp"] / 1000, chunks))
        if len(planned) == count:
            break
    return planned


def runs(here: list[int], there: list[int]) -> list[Run]:
    """Pages that follow each other at both ends, together."""
    found: list[Run] = []
    for source, target in zip(here, there, strict=False):
        if found and (source, target) == (found[-1][0] + found[-1][2], found[-1][1] + found[-1][2]):
            found[-1] = (*found[-1][:2], found[-1][2] + 1)
        else:
            found.append((source, target, 1))
    return found


def run(bench: Bench, only: str) -> None:
    """As fast as it goes, then at the trace's own times, accelerated."""
    if only not in REPLAY:
        return
    requests = plan(REQUESTS_QUICK if bench.quick else REQUESTS)
    bench.attempt(REPLAY, "write", functools.partial(at_once, bench, requests))
    bench.attempt(REPLAY, "p50", functools.partial(in_time, bench, requests))


Call = tuple[list[int], list[int], list[int]]


def calls(request: Request, local: int, remote: int) -> list[Call]:
    """The arguments of each chunk's call: every buffer's runs, one buffer behind the other."""
    made = []
    for chunk in request.chunks:
        bases = range(0, BUFFERS * BUFFER, BUFFER)
        near = [local + base + source * PAGE for base in bases for source, _, _ in chunk]
        far = [remote + base + target * PAGE for base in bases for _, target, _ in chunk]
        made.append((near, far, [pages * PAGE for _, _, pages in chunk] * BUFFERS))
    return made


def at_once(bench: Bench, requests: list[Request]) -> Row:
    """Wall time of all requests, one behind the other: the row of one call."""
    took, size, count = 0.0, 0, 0
    for _, seconds, lengths in sent(bench, requests, wait=False):
        took += seconds
        size += sum(lengths)
        count += len(lengths)
    return timed(REPLAY, "write", [took], count, size)


def in_time(bench: Bench, requests: list[Request]) -> list[Row]:
    """How long each request takes from its arrival, while others may be before it."""
    ends: dict[int, float] = {}
    for number, late, _ in sent(bench, requests, wait=True):
        ends[number] = late
    times = sorted(ends.values())
    rank = {"p50": len(times) // 2, "p99": min(len(times) - 1, int(len(times) * 0.99))}
    return [timed(REPLAY, op, [times[at]], 1, 0) for op, at in rank.items()]


def sent(bench: Bench, requests: list[Request], wait: bool) -> list[tuple[int, float, list[int]]]:
    """Sends them all in order. Of each call: its request, the seconds it took (with `wait`: since the request's arrival),
    and its lengths. The bytes are checked at the end."""
    pool, local, remote = bench.memory("huge")
    pool[:] = pattern(5, POOL)
    bench.far.ask("clear", POOL)
    done = []
    arguments = [calls(request, local, remote) for request in requests]
    start = time.perf_counter()
    for number, (request, chunks) in enumerate(zip(requests, arguments, strict=True)):
        arrival = start + request.at / ACCELERATION
        while wait and (left := arrival - time.perf_counter()) > 0:
            time.sleep(left)
        for near, far, lengths in chunks:
            began = arrival if wait else time.perf_counter()
            must("the call", bench.engine.batch_transfer_sync_write(bench.session, near, far, lengths))
            done.append((number, time.perf_counter() - began, lengths))
    here = pool[: BUFFERS * BUFFER].reshape(BUFFERS, PAGES, PAGE)
    expected = np.zeros_like(here)
    for request in requests:
        for chunk in request.chunks:
            for source, target, pages in chunk:
                expected[:, target : target + pages] = here[:, source : source + pages]
    if bench.far.ask("digest", expected.size) != hashlib.sha256(expected.reshape(-1).data).hexdigest():
        raise RuntimeError("the bytes that arrived differ")
    return done
