"""One initiator and a great many segments, in a few processes."""

from __future__ import annotations

import hashlib
import os
import time
from typing import NoReturn

from benches.cases import KIB, PEERS, SEGMENTS
from benches.far import Far, pattern, serve
from benches.measures.bench import Bench
from benches.memory import Pool, new_pool, resident_kib
from benches.mooncake_api import Engine, must, started
from benches.rows import Row, timed

PROCESSES = 8
PORTS = 18000, 500
"""The first port that they may listen on, and ports for each process: an engine takes two, from 15000 to 17000 otherwise."""
SIZE = 4 * KIB
ROUNDS = 4


def run(bench: Bench, only: str) -> None:
    """All figures of the case."""
    if only in PEERS:
        bench.attempt(PEERS, "first contact", lambda: measured(bench))


def target(count: int) -> NoReturn:
    """The far end: that many engines, each with one page of its own registered."""
    memory = new_pool(count * SIZE)
    engines: list[Engine] = []
    for index in range(count):
        engines.append(started())
        must("register_memory", engines[-1].register_memory(memory.ctypes.data + index * SIZE, SIZE))
    serve([memory.ctypes.data, *(f"127.0.0.1:{engine.get_rpc_port()}" for engine in engines)], lambda _: memory)


def measured(bench: Bench) -> list[Row]:
    """First contact with each, then calls to all of them in turn; memory and descriptors that stay."""
    fars = [
        Far(bench.script, "--segments", str(SEGMENTS // PROCESSES), variables=ports(index))
        for index in range(PROCESSES)
    ]
    try:
        pool, local, _ = bench.memory("huge")
        pool[:SIZE] = pattern(1, SIZE)
        peers = [
            (session, int(far.words[0]) + index * SIZE) for far in fars for index, session in enumerate(far.words[1:])
        ]
        before = resident_kib(), descriptors()
        contacts = round_of(bench, local, peers)
        after = resident_kib(), descriptors()
        calls = [took for _ in range(ROUNDS) for took in round_of(bench, local, peers)]
        if not all(complete(far, pool) for far in fars):
            raise RuntimeError("the bytes that arrived differ")
    finally:
        for far in fars:
            far.stop()
    return [
        timed(PEERS, "first contact", contacts, 1, SIZE),
        timed(PEERS, "write", calls, 1, SIZE),
        Row(PEERS, "memory", value=round((after[0] - before[0]) / len(peers), 2), unit="KiB a peer"),
        Row(PEERS, "descriptors", value=round((after[1] - before[1]) / len(peers), 2), unit="a peer"),
    ]


def ports(index: int) -> dict[str, str]:
    """The ports of one process."""
    first, count = PORTS
    return {
        "MC_MIN_RPC_PORT": str(first + index * count),
        "MC_MAX_RPC_PORT": str(first + (index + 1) * count - 1),
    }


def round_of(bench: Bench, local: int, peers: list[tuple[str, int]]) -> list[float]:
    """Seconds of one write to each."""
    seconds = []
    for session, remote in peers:
        began = time.perf_counter()
        status = bench.engine.transfer_sync_write(session, local, remote, SIZE)
        seconds.append(time.perf_counter() - began)
        must("the call", status)
    return seconds


def complete(far: Far, pool: Pool) -> bool:
    """Whether every segment of the process has the page."""
    far.ask("memory", "all")
    copies = bytes(pool[:SIZE]) * (len(far.words) - 1)
    return far.ask("digest", len(copies)) == hashlib.sha256(copies).hexdigest()


def descriptors() -> int:
    """Open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))
