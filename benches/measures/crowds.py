"""Many threads, each with calls of one request; and one thread doing the same calls alone."""

from __future__ import annotations

import functools
import threading
import time

from benches.cases import CROWD_ROUNDS, CROWD_ROUNDS_QUICK, CROWD_SECONDS, CROWDS, OPS, Case, Crowd
from benches.far import arrived, prepare
from benches.measures.bench import Bench
from benches.rows import Row, timed

Places = list[tuple[int, int]]
"""Local and remote addresses."""


def run(bench: Bench, only: str) -> None:
    """Every crowd, with each of its numbers of threads."""
    for crowd in CROWDS:
        for threads in crowd.threads:
            name = crowd.name(threads)
            for op in OPS if only in name else ():
                bench.attempt(name, op, functools.partial(measured, bench, crowd, threads, op))


def measured(bench: Bench, crowd: Crowd, threads: int, op: str) -> Row:
    """Times the calls of all threads together. The memory is the same for any number of them."""
    slots = Case(crowd.name(threads), crowd.size, crowd.slots, 0, 0)
    pool, local, remote = bench.memory("huge")
    prepare(slots, op, pool, bench.far)
    pairs = [(local + near, remote + far) for near, far in zip(slots.sources, slots.targets, strict=True)]
    shares = [pairs[index % len(pairs) :: threads] for index in range(threads)]
    rounds = CROWD_ROUNDS_QUICK if bench.quick else CROWD_ROUNDS
    seconds = [together(bench, shares, crowd.size, op) for _ in range(rounds + 1)]
    if not arrived(slots, op, pool, bench.far):
        raise RuntimeError("the bytes that arrived differ")
    return timed(crowd.name(threads), op, seconds[1:], 1, crowd.size)


def together(bench: Bench, shares: list[Places], size: int, op: str) -> float:
    """Wall time over calls: every thread calls for the same while, and the last one to end ends it."""
    call = bench.engine.transfer_sync_write if op == "write" else bench.engine.transfer_sync_read
    session = bench.session
    ready = threading.Barrier(len(shares) + 1)
    calls: list[int] = []
    failures: list[int] = []

    def work(share: Places) -> None:
        ready.wait()
        until = time.perf_counter() + CROWD_SECONDS
        done = 0
        while done < len(share) or time.perf_counter() < until:
            local, remote = share[done % len(share)]
            status = call(session, local, remote, size)
            if status != 0:
                failures.append(status)
                return
            done += 1
        calls.append(done)

    workers = [threading.Thread(target=work, args=(share,)) for share in shares]
    for worker in workers:
        worker.start()
    ready.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - began
    if failures:
        raise RuntimeError(f"the calls of {len(failures)} of {len(shares)} threads returned {sorted(set(failures))}")
    if len(calls) < len(shares):
        raise RuntimeError(f"{len(shares) - len(calls)} of {len(shares)} threads ended early")
    return took / sum(calls)
