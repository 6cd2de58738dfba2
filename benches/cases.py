"""What is measured: the cases that every engine and the machine's ceilings run.

Must not know any engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20
POOL = 160 * MIB
"""Registered memory on each side, in one region."""

OPS = ("write", "read")
Key = tuple[str, str]
"""A case's name and what is done."""


@dataclass(frozen=True)
class Case:
    """Calls of one shape: `count` requests of `size` bytes in a call."""

    name: str
    size: int
    count: int
    calls: int
    quick_calls: int

    @property
    def total(self) -> int:
        """Bytes a call."""
        return self.size * self.count

    def measured(self, quick: bool) -> int:
        """Calls that are timed."""
        return self.quick_calls if quick else self.calls

    def seed(self, op: str) -> int:
        """Of the bytes to move: another one for each case and direction, so that no leftover passes for the result."""
        return 2 * (self.size * 31 + self.count) + OPS.index(op)

    def sources(self) -> list[int]:
        """Offsets of the requests at the initiator."""
        return [index * self.size for index in range(self.count)]

    def targets(self) -> list[int]:
        """Offsets at the target, in an order of their own, so that no two requests can become one copy."""
        step = next(step for step in (7919, 104729, 1299709) if self.count % step)
        return [((index * step) % self.count) * self.size for index in range(self.count)]


CASES = (
    Case("sync 64B", 64, 1, 2000, 400),
    Case("sync 4KiB", 4 * KIB, 1, 2000, 400),
    Case("sync 64KiB", 64 * KIB, 1, 1000, 200),
    Case("sync 1MiB", MIB, 1, 200, 40),
    Case("sync 16MiB", 16 * MIB, 1, 24, 8),
    Case("sync 128MiB", 128 * MIB, 1, 6, 3),
    Case("batch 128x4KiB", 4 * KIB, 128, 200, 40),
    Case("batch 4096x4KiB", 4 * KIB, 4096, 20, 6),
    Case("batch 20000x1KiB", KIB, 20000, 8, 3),
    Case("batch 1024x16KiB", 16 * KIB, 1024, 20, 6),
    Case("batch 256x64KiB", 64 * KIB, 256, 40, 8),
    Case("batch 64x1MiB", MIB, 64, 10, 4),
    # What SGLang's disaggregated prefill sends: Llama-3-70B at TP8 has 160 buffers of 4 KiB pages (page size 16) or 256 B
    # pages (page size 1), scattered; DeepSeek-V3 has 61 of 72 KiB (page size 64). Here 32, 64 and 20 pages of each.
    Case("sglang 5120x4KiB", 4 * KIB, 5120, 20, 6),
    Case("sglang 10240x256B", 256, 10240, 20, 6),
    Case("deepseek 1220x72KiB", 72 * KIB, 1220, 8, 3),
)


@dataclass(frozen=True)
class Crowd:
    """Many threads, each with calls of one request to memory of its own; and one thread doing the same calls alone."""

    size: int
    label: str
    threads: int

    @property
    def name(self) -> str:
        """The case of all threads at once."""
        return f"threads {self.threads}x{self.label}"

    @property
    def alone(self) -> str:
        """The case of one thread: the same calls to the same memory."""
        return f"threads 1x{self.label}"


CROWDS = (Crowd(256 * KIB, "256KiB", 32), Crowd(64 * KIB, "64KiB", 128))
CROWD_ROUNDS, CROWD_ROUNDS_QUICK = 5, 3
CROWD_SECONDS = 0.25
"""How long the threads of a crowd call, each round."""

REGISTERED = (1000, 10000)
"""Buffers in one call of the registration cases."""

FIRST = "first transfer"


def registration(count: int) -> str:
    """The name of a registration case."""
    return f"register {count} buffers"


def transfer_keys(only: str) -> list[Key]:
    """Rows of the plain transfers, which every engine and the ceilings print."""
    return [(case.name, op) for case in chosen(only) for op in OPS]


def engine_keys(only: str) -> list[Key]:
    """Rows of engine_bench.py."""
    crowds = [(name, op) for crowd in CROWDS for name in (crowd.alone, crowd.name) for op in OPS]
    registrations = [(registration(count), op) for count in REGISTERED for op in ("register", "unregister")]
    others = [key for key in [(FIRST, "write"), *crowds, *registrations] if only in key[0]]
    return [*transfer_keys(only), *others]


def chosen(only: str) -> Iterable[Case]:
    """The plain transfers whose name holds the text."""
    return (case for case in CASES if only in case.name)
