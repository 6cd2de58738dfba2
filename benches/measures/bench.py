"""One engine, its memory of each kind, and the far end. Must not know the cases."""

from __future__ import annotations

import time
from collections.abc import Callable

from benches.cases import FIRST, Memory
from benches.far import Far, cpu_seconds
from benches.memory import Pool, new_pool, pool_at, small_pool
from benches.mooncake_api import Engine, load, must, started
from benches.rows import Row, timed


class Memories:
    """Registered memory: huge pages from the start, one other kind at a time beside it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.pools: dict[str, Pool] = {}

    def adopt(self, kind: str, pool: Pool) -> None:
        """Registers memory that is there already."""
        must("register_memory", self.engine.register_memory(pool.ctypes.data, pool.size))
        self.pools[kind] = pool

    def pool(self, kind: str) -> Pool:
        """The memory of a kind, made if it is not there."""
        if kind not in self.pools:
            for other in [other for other in self.pools if other != "huge"]:
                self.release(other)
            if kind == "managed":
                self.pools[kind] = self.managed()
            else:
                self.adopt(kind, small_pool() if kind == "small" else new_pool())
        return self.pools[kind]

    def managed(self) -> Pool:
        """Memory that the engine allocates."""
        length = self.pool("huge").size
        address = self.engine.allocate_managed_buffer(length)
        if not address:
            raise RuntimeError("allocate_managed_buffer returned 0")
        return pool_at(address, length)

    def release(self, kind: str) -> None:
        """Unregisters and frees it."""
        pool = self.pools.pop(kind)
        if kind == "managed":
            must("free_managed_buffer", self.engine.free_managed_buffer(pool.ctypes.data, pool.size))
        else:
            must("unregister_memory", self.engine.unregister_memory(pool.ctypes.data))


class Bench:
    """What every group of cases works with."""

    def __init__(self, script: str, quick: bool, cpu: bool) -> None:
        self.script, self.quick, self.cpu = script, quick, cpu
        self.huge = new_pool()
        load()
        self.sound = True
        self.far = Far(script)
        self.first = self.start()

    def start(self) -> Row:
        """Makes the engine, and times that up to the end of the first transfer."""
        self.session = self.far.words[0]
        remote = int(self.far.ask("memory", "huge"))
        began = time.perf_counter()
        self.engine = started()
        self.memories = Memories(self.engine)
        self.memories.adopt("huge", self.huge)
        must("the transfer", self.engine.transfer_sync_write(self.session, self.huge.ctypes.data, remote, 64))
        return timed(FIRST, "write", [time.perf_counter() - began], 1, 64)

    def memory(self, kind: Memory) -> tuple[Pool, int, int]:
        """The memory here, its address, and that of the far end's, which answers questions about this kind from now on."""
        remote = int(self.far.ask("memory", kind))
        pool = self.memories.pool(kind)
        return pool, pool.ctypes.data, remote

    def attempt(self, case: str, op: str, measure: Callable[[], Row | list[Row]]) -> None:
        """Prints the row, or the row that says why there is no figure: a crash of the far end is a result too.

        A failure may leave an engine unable to do anything more (the genuine one is). So that it counts once, the next
        case gets a new engine and a new far end.
        """
        try:
            if not self.sound:
                self.far.stop()
                self.far = Far(self.script)
                self.start()
                self.sound = True
            rows = measure()
        except Exception as error:
            self.sound = False
            rows = Row(case, op, error=f"{type(error).__name__}: {error}")
        for row in rows if isinstance(rows, list) else [rows]:
            print(row.line(), flush=True)

    def used(self) -> float:
        """CPU seconds of both processes, where that was asked for."""
        return cpu_seconds() + float(self.far.ask("cpu")) if self.cpu else 0.0
