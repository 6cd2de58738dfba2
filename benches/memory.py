"""Memory to register: touched, with and without the wish for huge pages, dropped again, flushed from the caches.

Must not know any engine.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benches.cases import MIB, POOL

Pool = npt.NDArray[np.uint8]

PR_SET_THP_DISABLE = 41
MADV_DONTNEED = 4
HUGE_PAGE = 2 * MIB
FLUSH = 96 * MIB
"""More than the caches of one machine hold."""

_libc = ctypes.CDLL(None, use_errno=True)
_flush: list[Pool] = []


def new_pool(length: int = POOL) -> Pool:
    """Memory with every page touched, from the start of a huge page on, as the ceilings' is; numpy asks for huge pages."""
    area = np.full(length + HUGE_PAGE, 7, dtype=np.uint8)
    start = -area.ctypes.data % HUGE_PAGE
    return area[start : start + length]


def small_pool(length: int = POOL) -> Pool:
    """The same in small pages, for which nobody asked anything."""
    area = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pool: Pool = np.frombuffer(area, dtype=np.uint8)
    with small_pages():
        pool.fill(7)
    return pool


def pool_at(address: int, length: int = POOL) -> Pool:
    """Memory that somebody else has allocated, touched."""
    pool: Pool = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(address))
    pool.fill(7)
    return pool


@contextmanager
def small_pages() -> Iterator[None]:
    """No huge page is made meanwhile, whatever the machine's setting; the memory itself is not marked."""
    switch(1)
    try:
        yield
    finally:
        switch(0)


def switch(disabled: int) -> None:
    """Turns transparent huge pages of this process off or on."""
    if _libc.prctl(PR_SET_THP_DISABLE, disabled, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_THP_DISABLE")


def drop(pool: Pool, length: int) -> None:
    """Gives the whole pages in the range back to the kernel: the next touch of each is the first."""
    first = -(-pool.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = (pool.ctypes.data + length - first) // mmap.PAGESIZE
    if _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(pages * mmap.PAGESIZE), MADV_DONTNEED) != 0:
        raise OSError(ctypes.get_errno(), "MADV_DONTNEED")


def flush() -> int:
    """Fills the caches with other memory."""
    if not _flush:
        _flush.append(new_pool(FLUSH))
    _flush[0][::64] += 1
    return int(_flush[0][::64].sum(dtype=np.uint64))


def huge_share(pool: Pool) -> float:
    """How much of the memory lies in huge pages, from 0 to 1."""
    inside, huge = False, 0
    first, end = pool.ctypes.data, pool.ctypes.data + pool.size
    for line in Path("/proc/self/smaps").read_text(encoding="ascii", errors="replace").splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) < end and int(found[2], 16) > first
        elif inside and line.startswith(("AnonHugePages:", "ShmemPmdMapped:")):
            huge += int(line.split()[1]) * 1024
    return min(1.0, huge / pool.size)


def resident_kib() -> int:
    """Resident memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
