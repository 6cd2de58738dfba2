"""What is measured: the cases that every engine and the machine's ceilings run.

Must not know any engine.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

KIB, MIB = 1 << 10, 1 << 20
POOL = 160 * MIB
"""Registered memory of one kind on each side, in one region."""

OPS = ("write", "read")
Key = tuple[str, str]
"""A case's name and what is done."""

Memory = Literal["huge", "small", "dropped", "managed"]
"""huge: asked for huge pages, as numpy does; small: never asked for them; dropped: as huge, kept apart because its pages come
and go; managed: allocated by the engine."""

Before = Literal["nothing", "untouched", "flushed"]
"""What is done before each call, untimed. untouched: the destination's pages go back to the kernel; flushed: the caches
are filled with other memory."""


@dataclass(frozen=True)
class Case:
    """Calls of one shape: `count` requests in a call, each of `size` bytes, or of many sizes up to `size`."""

    name: str
    size: int
    count: int
    calls: int
    quick_calls: int
    group: str = "plain"
    mixed: bool = False
    memory: Memory = "huge"
    before: Before = "nothing"

    @cached_property
    def lengths(self) -> list[int]:
        """Bytes of each request."""
        if not self.mixed:
            return [self.size] * self.count
        draw = random.Random(self.count)
        smallest, steps = 64, (self.size // 64).bit_length()
        return [smallest << draw.randrange(steps) for _ in range(self.count)]

    @property
    def total(self) -> int:
        """Bytes a call."""
        return sum(self.lengths) if self.mixed else self.size * self.count

    def measured(self, quick: bool) -> int:
        """Calls that are timed."""
        return self.quick_calls if quick else self.calls

    def seed(self, op: str) -> int:
        """Of the bytes to move: another one for each case and direction, so that no leftover passes for the result."""
        return 2 * (self.size * 31 + self.count) + OPS.index(op)

    @cached_property
    def sources(self) -> list[int]:
        """Offsets of the requests at the initiator: one behind the other."""
        return _offsets(self.lengths)

    @cached_property
    def targets(self) -> list[int]:
        """Offsets at the target, in an order of their own, so that no two requests can become one copy."""
        step = next(step for step in (7919, 104729, 1299709) if self.count % step)
        place = [index * step % self.count for index in range(self.count)]
        at_place = [0] * self.count
        for index, there in enumerate(place):
            at_place[there] = self.lengths[index]
        offsets = _offsets(at_place)
        return [offsets[there] for there in place]


def _offsets(lengths: Sequence[int]) -> list[int]:
    offsets, end = [], 0
    for length in lengths:
        offsets.append(end)
        end += length
    return offsets


SYNC = (
    Case("sync 64B", 64, 1, 2000, 400),
    Case("sync 4KiB", 4 * KIB, 1, 2000, 400),
    Case("sync 64KiB", 64 * KIB, 1, 1000, 200),
    Case("sync 1MiB", MIB, 1, 200, 40),
    Case("sync 16MiB", 16 * MIB, 1, 24, 8),
    Case("sync 128MiB", 128 * MIB, 1, 6, 3),
)
BATCHES = (
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


def _as(group: str, prefix: str, names: Iterable[str], memory: Memory, before: Before = "nothing") -> tuple[Case, ...]:
    known = {case.name: case for case in (*SYNC, *BATCHES)}
    return tuple(
        replace(known[name], name=f"{prefix}: {name}", group=group, memory=memory, before=before) for name in names
    )


LARGE = ("sync 16MiB", "sync 128MiB", "batch 64x1MiB")
SMALL_PAGES = _as("pages", "small pages", ("sync 64KiB", "sync 1MiB", *LARGE), "small")
COLLAPSED = _as("pages", "collapsed", ("sync 64KiB", "sync 1MiB", *LARGE), "small")
"""The same memory once the engine has had the time to have it collapsed into huge pages."""
MANAGED = _as("managed", "managed", [case.name for case in SYNC] + ["batch 128x4KiB", "batch 4096x4KiB"], "managed")
COLD = tuple(
    replace(case, calls=min(case.calls, 8), quick_calls=3)
    for case in (
        *_as("cold", "untouched", ("sync 64KiB", "sync 1MiB", "sync 16MiB"), "dropped", "untouched"),
        *_as("cold", "flushed", ("sync 4KiB", "sync 64KiB", "sync 1MiB", "batch 128x4KiB"), "huge", "flushed"),
    )
)
MIXED = (Case("mixed 512 of 64B-1MiB", MIB, 512, 12, 4, group="mixed", mixed=True),)
GENUINE = (Case("batch 2000x4KiB", 4 * KIB, 2000, 20, 6, group="genuine"),)
"""As many as the genuine engine takes in one call: for it at one end or both."""

CASES = (*SYNC, *BATCHES, *MIXED, *MANAGED, *SMALL_PAGES, *COLLAPSED, *COLD, *GENUINE)


@dataclass(frozen=True)
class Crowd:
    """Calls of one request each by one thread or more at once, all to the same `slots` pieces of memory."""

    size: int
    label: str
    slots: int
    threads: tuple[int, ...]

    def name(self, threads: int) -> str:
        """The case of so many threads."""
        return f"threads {threads}x{self.label}"


CROWDS = (Crowd(256 * KIB, "256KiB", 32, (1, 2, 4, 8, 16, 32, 64)), Crowd(64 * KIB, "64KiB", 128, (1, 128)))
CROWD_ROUNDS, CROWD_ROUNDS_QUICK = 3, 2
CROWD_SECONDS = 0.2
"""How long the threads of a crowd call, each round."""

REGISTERED = (1000, 10000, 100000)
"""Buffers in one call of the registration cases."""
REGISTERED_AT_MOST = {"genuine": 10000}
"""The genuine engine takes time with the square of them."""

FIRST = "first transfer"
SEGMENTS = 1000
"""Peers of one initiator."""
PEERS = f"peers {SEGMENTS}"
PEER_OPS = ("first contact", "write", "memory", "descriptors")
REPLAY = "trace"
REPLAY_OPS = ("write", "p50", "p99")
OWN_COST = "own cost 4096 descriptors"

GROUPS = ("plain", "mixed", "managed", "pages", "cold", "threads", "registration", "peers", "trace", "genuine")


def registration(count: int) -> str:
    """The name of a registration case."""
    return f"register {count} buffers"


def keys(groups: Sequence[str], only: str, most_registered: int = max(REGISTERED)) -> list[Key]:
    """The rows of these groups."""
    rows = [(case.name, op) for case in chosen(groups, only) for op in OPS]
    others: list[Key] = []
    if "threads" in groups:
        others += [(crowd.name(count), op) for crowd in CROWDS for count in crowd.threads for op in OPS]
    if "registration" in groups:
        counts = [count for count in REGISTERED if count <= most_registered]
        others += [(FIRST, "write")]
        others += [(registration(count), op) for count in counts for op in ("register", "unregister")]
    if "peers" in groups:
        others += [(PEERS, op) for op in PEER_OPS]
    if "trace" in groups:
        others += [(REPLAY, op) for op in REPLAY_OPS]
    return rows + [key for key in others if only in key[0]]


def chosen(groups: Sequence[str], only: str) -> Iterable[Case]:
    """The plain transfers of these groups whose name holds the text."""
    return (case for case in CASES if case.group in groups and only in case.name)
