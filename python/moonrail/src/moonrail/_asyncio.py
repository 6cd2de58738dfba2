"""How an asyncio event loop waits for background batches.

Each loop watches one file descriptor. The threads that end batches write to it and never touch the interpreter.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from . import _moonrail


class _Waiting:
    """The batches that one loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue = _moonrail.CompletionQueue()
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._next = 0

    def add(self, batch: _moonrail.Batch) -> asyncio.Future[None]:
        if not self._futures:
            self._loop.add_reader(self._queue.fileno(), self._drain)
        token = self._next
        self._next += 1
        future: asyncio.Future[None] = self._loop.create_future()
        self._futures[token] = future
        batch.tell(self._queue, token)
        return future

    def _drain(self) -> None:
        for token in self._queue.drain():
            future = self._futures.pop(token)
            if not future.done():
                future.set_result(None)
        if not self._futures:
            self._loop.remove_reader(self._queue.fileno())


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = WeakKeyDictionary()


async def finished(batch: _moonrail.Batch) -> None:
    """Returns when the batch is done; raises what it raises. Cancelled, it stops the batch first."""
    loop = asyncio.get_running_loop()
    waiting = _LOOPS.get(loop)
    if waiting is None:
        waiting = _LOOPS[loop] = _Waiting(loop)
    ended = waiting.add(batch)
    cancelled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError as error:
            # Once more while waiting for the end changes nothing: the memory is in use until then.
            cancelled = error
            batch.cancel()
    if cancelled is not None:
        raise cancelled
    batch.wait(0)
