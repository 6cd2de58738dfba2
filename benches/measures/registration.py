"""Registering and unregistering many buffers in one call."""

from __future__ import annotations

import functools
import time

import numpy as np

from benches.cases import KIB, REGISTERED, registration
from benches.measures.bench import Bench
from benches.mooncake_api import must
from benches.rows import Row, timed

SIZE = 16 * KIB
"""Bytes of a buffer."""


def run(bench: Bench, only: str, most: int) -> None:
    """The first transfer, then every number of buffers up to `most`."""
    if only in bench.first.case:
        print(bench.first.line(), flush=True)
    for count in REGISTERED:
        if count <= most and only in registration(count):
            for op in ("register", "unregister"):
                bench.attempt(registration(count), op, functools.partial(measured, bench, count, op))


def measured(bench: Bench, count: int, op: str) -> Row:
    """Times one call, of memory that nobody has touched."""
    memory = np.empty(count * SIZE, dtype=np.uint8)
    addresses = [memory.ctypes.data + index * SIZE for index in range(count)]
    began = time.perf_counter()
    must("batch_register_memory", bench.engine.batch_register_memory(addresses, [SIZE] * count))
    registered = time.perf_counter()
    must("batch_unregister_memory", bench.engine.batch_unregister_memory(addresses))
    took = registered - began if op == "register" else time.perf_counter() - registered
    return timed(registration(count), op, [took], count, 0)
