"""SharedSegment between processes."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
from moonrail.mooncake import SharedSegment

OTHER = """
import ctypes, sys
from moonrail.mooncake import SharedSegment
segment, blob = SharedSegment.create("kv", 1 << 20, 2, 1)
print(blob.hex(), flush=True)
blobs = [bytes.fromhex(sys.stdin.readline()), blob]
segment.complete(blobs)
ctypes.memmove(segment.base_addr() + 100, b"from rank 1", 11)
print(ctypes.string_at(segment.base_addr(), 11).decode(), flush=True)
sys.stdin.readline()
"""


def files() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith(f"mcss_{os.getpid()}_")}


def test_two_processes_share_memory() -> None:
    segment, blob = SharedSegment.create("kv", 1 << 20, 2, 0)
    assert len(blob) == 160
    assert blob.startswith(b"SSCM")
    assert not segment.ready()
    process = subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    theirs = bytes.fromhex(process.stdout.readline())
    segment.complete([theirs, blob])
    assert segment.ready()
    assert (segment.size(), segment.device_addr()) == (1 << 20, 0)
    ctypes.memmove(segment.base_addr(), b"from rank 0", 11)
    process.stdin.write(blob.hex() + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "from rank 0\n"
    assert ctypes.string_at(segment.base_addr() + 100, 11) == b"from rank 1"
    process.communicate("\n")
    assert process.returncode == 0


def test_the_owner_removes_its_file() -> None:
    segment, _ = SharedSegment.create("one", 4096, 1, 0)
    (file,) = files()
    assert Path("/dev/shm", file).stat().st_mode & 0o777 == 0o600
    del segment
    assert files() == set()


def test_what_is_supported() -> None:
    assert SharedSegment.supported()
    assert not SharedSegment.supported(host_register=True)
    assert not SharedSegment.supported(mmap=False)
    with pytest.raises(RuntimeError):
        SharedSegment.create("n", 4096, 1, 0, host_register=True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("n", 0, 1, 0),
        ("n", -1, 1, 0),
        ("n", 4096, 1, 1),
        ("n", 4096, 2, 0, 2),
        ("n" * 65, 1, 1, 0),
        ("n", 1 << 60, 1, 0),
    ],
)
def test_bad_arguments(arguments: tuple[str, int, int, int]) -> None:
    with pytest.raises(RuntimeError):
        SharedSegment.create(*arguments)
    assert files() == set()


def test_blobs_are_checked() -> None:
    segment, own = SharedSegment.create("n", 4096, 2, 0)
    _, other = SharedSegment.create("n", 4096, 2, 1)
    _, larger = SharedSegment.create("n", 8192, 2, 1)
    _, named = SharedSegment.create("m", 4096, 2, 1)
    hostile = bytearray(own)
    hostile[28:76] = b"../../etc/passwd".ljust(48, b"\0")
    with pytest.raises(RuntimeError):
        segment.base_addr()
    for blobs in (
        [own],
        [own, own],
        [own, larger],
        [own, named],
        [own, b"x"],
        [own, bytes(160)],
        [bytes(hostile), other],
    ):
        with pytest.raises(RuntimeError):
            segment.complete(blobs)
        assert not segment.ready()
    segment.complete([own, other])
    with pytest.raises(RuntimeError):
        segment.complete([own, other])
