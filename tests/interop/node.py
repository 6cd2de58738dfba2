"""One process that drives one engine through `mooncake.engine`, told what to do by JSON lines on stdin.

Owns the engine, its memory and the bytes in it. Must not know what a result ought to be: it reports, `cases` judges.
Needs nothing but the standard library and whatever package gives `mooncake.engine`, so that it runs in any
release's virtual environment. One request a line, `{"do": NAME, ...}`; one reply a line, `{"value": ...}` or
`{"error": TEXT}`.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib
import json
import mmap
import operator
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

# Odd, so that every region starts and ends off any alignment.
GUARD_LEN = 4099
GUARD_BYTE = b"\xa5"
PR_SET_PDEATHSIG = 1


def pattern(seed: int, length: int) -> bytes:
    """The `length` bytes that belong to `seed`, the same in every process."""
    return random.Random(seed).randbytes(length)


class Region:
    """Private memory with guard bytes on both sides; `address` is where the part between them starts."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._memory = mmap.mmap(-1, length + 2 * GUARD_LEN)
        self._memory[:GUARD_LEN] = GUARD_BYTE * GUARD_LEN
        self._memory[GUARD_LEN + length : 2 * GUARD_LEN + length] = GUARD_BYTE * GUARD_LEN
        self._anchor = ctypes.c_char.from_buffer(self._memory)
        self.address = ctypes.addressof(self._anchor) + GUARD_LEN

    def fill(self, seed: int) -> None:
        """Writes the bytes of `seed`."""
        self._memory[GUARD_LEN : GUARD_LEN + self.length] = pattern(seed, self.length)

    def digest(self) -> str:
        """SHA-256 of the bytes between the guards."""
        with memoryview(self._memory) as view:
            return hashlib.sha256(view[GUARD_LEN : GUARD_LEN + self.length]).hexdigest()

    def guards_intact(self) -> bool:
        """Whether no byte of either guard has changed."""
        guard = GUARD_BYTE * GUARD_LEN
        end = GUARD_LEN + self.length
        return self._memory[:GUARD_LEN] == guard and self._memory[end : end + GUARD_LEN] == guard

    def changed_from(self, seed: int) -> list[int]:
        """How many bytes differ from those of `seed`, and the offset of the first that does (-1: none)."""
        now = self._memory[GUARD_LEN : GUARD_LEN + self.length]
        was = pattern(seed, self.length)
        if now == was:
            return [0, -1]
        first = next(index for index, pair in enumerate(zip(now, was, strict=True)) if pair[0] != pair[1])
        return [sum(map(operator.ne, now, was)), first]


class Node:
    """The requests a node answers: every public method is one, by its name."""

    def __init__(self) -> None:
        # Not a plain import: the harness imports this file for `pattern`, where there is no engine.
        self._module = importlib.import_module("mooncake.engine")
        self._engine: Any = self._module.TransferEngine()
        self._regions: dict[str, Region] = {}

    def about(self) -> dict[str, Any]:
        """Where the engine module came from and which methods it has."""
        methods = sorted(name for name in dir(self._engine) if not name.startswith("_"))
        return {"pid": os.getpid(), "module": self._module.__file__, "methods": methods}

    def initialize(self, host: str, metadata: str, protocol: str) -> dict[str, int]:
        """Starts the engine; `port` is its handshake port."""
        code = self._engine.initialize(host, metadata, protocol, "")
        return {"code": code, "port": self._engine.get_rpc_port() if code == 0 else 0}

    def allocate(self, name: str, length: int, seed: int) -> int:
        """Makes a region filled with the bytes of `seed`, unregistered; its address."""
        region = Region(length)
        region.fill(seed)
        self._regions[name] = region
        return region.address

    def fill(self, name: str, seed: int) -> None:
        """Writes the bytes of `seed` into a region."""
        self._regions[name].fill(seed)

    def inspect(self, name: str) -> dict[str, Any]:
        """The region's digest, and whether its guards are whole."""
        region = self._regions[name]
        return {"digest": region.digest(), "guards": region.guards_intact()}

    def changed_from(self, name: str, seed: int) -> list[int]:
        """See `Region.changed_from`."""
        return self._regions[name].changed_from(seed)

    def register(self, address: int, length: int) -> int:
        """Registers memory."""
        return int(self._engine.register_memory(address, length))

    def register_batch(self, addresses: list[int], lengths: list[int]) -> int:
        """Registers many ranges in one call."""
        return int(self._engine.batch_register_memory(addresses, lengths))

    def unregister(self, address: int) -> int:
        """Unregisters memory."""
        return int(self._engine.unregister_memory(address))

    def transfer(self, op: str, peer: str, local: int, remote: int, length: int) -> dict[str, Any]:
        """One synchronous transfer."""
        call = self._engine.transfer_sync_write if op == "write" else self._engine.transfer_sync_read
        return timed(call, peer, local, remote, length)

    def batch(self, op: str, peer: str, local: list[int], remote: list[int], lengths: list[int]) -> dict[str, Any]:
        """One synchronous batch."""
        engine = self._engine
        call = engine.batch_transfer_sync_write if op == "write" else engine.batch_transfer_sync_read
        return timed(call, peer, local, remote, lengths)

    def batch_async(
        self, op: str, peer: str, local: list[int], remote: list[int], lengths: list[int]
    ) -> dict[str, Any]:
        """One asynchronous batch, submitted and then waited for. A failed submission is code -1."""
        engine = self._engine
        submit = engine.batch_transfer_async_write if op == "write" else engine.batch_transfer_async_read

        def both() -> int:
            batch = submit(peer, local, remote, lengths)
            if batch in (0, -1, 2**64 - 1):
                return -1
            return int(engine.get_batch_transfer_status([batch]))

        return timed(both)

    def transfer_with_notify(
        self, peer: str, local: int, remote: int, length: int, name: str, message: str
    ) -> dict[str, Any]:
        """One synchronous write that is followed by a notification."""
        note = self._module.TransferNotify(name, message)
        opcode = self._module.TransferOpcode.Write
        return timed(self._engine.transfer_sync, peer, local, remote, length, opcode, note)

    def notifies(self) -> list[list[str]]:
        """The notifications that have come in, each once."""
        return [[note.name, note.msg] for note in self._engine.get_notifies()]

    def probe(self, peer: str) -> dict[str, Any]:
        """Asks whether a peer is alive."""
        return timed(self._engine.send_probe, peer)

    def first_buffer(self, peer: str) -> int:
        """The address of the peer's first registered buffer, 0 if it cannot be had."""
        return int(self._engine.get_first_buffer_address(peer))

    def managed(self, length: int) -> int:
        """Allocates memory that the engine owns and has registered."""
        return int(self._engine.allocate_managed_buffer(length))

    def managed_write(self, address: int, seed: int, length: int) -> int:
        """Writes the bytes of `seed` into managed memory."""
        return int(self._engine.write_bytes_to_buffer(address, pattern(seed, length), length))

    def managed_digest(self, address: int, length: int) -> str:
        """SHA-256 of managed memory."""
        return hashlib.sha256(self._engine.read_bytes_from_buffer(address, length)).hexdigest()

    def close(self) -> None:
        """Drops the engine, which shuts it down."""
        self._engine = None
        gc.collect()


def timed(call: Any, *arguments: Any) -> dict[str, Any]:
    """Calls, and tells the result code and the seconds it took."""
    start = time.monotonic()
    code = int(call(*arguments))
    return {"code": code, "seconds": time.monotonic() - start}


def serve(lifetime: int) -> int:
    """Answers requests until stdin ends or `close` is asked for."""
    # Whatever the harness does, this process ends: with its parent, or when its time is over.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.alarm(lifetime)
    # Engines print; the reply channel is kept apart from what they print.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    node = Node()
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        name = str(request.pop("do"))
        try:
            reply = {"value": getattr(node, name)(**request)}
        except Exception as error:  # The harness judges it; a node never dies of an engine's exception.
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if name == "close":
            break
    return 0


def main(arguments: Sequence[str]) -> int:
    """`node.py LIFETIME_SECONDS`."""
    return serve(int(arguments[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
