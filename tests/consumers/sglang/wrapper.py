#!/usr/bin/env python3
"""Does SGLang's unmodified MooncakeTransferEngine work on the engine installed here?

Two processes over 127.0.0.1. Prints a line a check, "ok" or "FAIL", and ends with 1 if one failed.

    SGLANG_ROOT=FOLDER python wrapper.py

FOLDER is where the wheel of sglang 0.5.23 was unpacked.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.consumers.sglang import shim

POOL = 192 << 20
HALF = POOL // 2

# What a prefill worker sends: contiguous page runs times layers, scattered at the far end.
SHAPES = [
    ("Llama-3-70B TP8, 32 pages of 16 tokens x 160 buffers", 4096, 5120),
    ("Llama-3-70B TP8, page size 1: 64 tokens x 160 buffers", 256, 10240),
    ("DeepSeek-V3 MLA, 32 pages of 64 tokens x 61 buffers", 73728, 1220),
    ("131072 descriptors of 512 bytes", 512, 131072),
]

failures: list[str] = []


def main() -> int:
    far = FarSide()
    try:
        engine = make_engine()
        source = np.random.default_rng(1).integers(0, 256, POOL, dtype=np.uint8)
        registration(engine, source.ctypes.data, far)
        transfers(engine, source, far)
        refusals(engine, source.ctypes.data, far)
        death(engine, source.ctypes.data, far)
    finally:
        far.end()
    print(f"{len(failures)} failed")
    return 1 if failures else 0


def registration(engine: Any, base: int, far: FarSide) -> None:
    check("peer registered two adjacent regions in one call", far.registered == 0)
    host, _, port = far.session.rpartition(":")
    check("session is host:port", host == "127.0.0.1" and port.isdigit(), far.session)
    check("register", error_of(engine.register, base, POOL) is None)
    check("register the same region again raises RuntimeError", raises(engine.register, base, POOL))
    check("register zero bytes raises RuntimeError", raises(engine.register, base + POOL, 0))
    check("batch_register of a taken region is negative", engine.batch_register([base], [POOL]) < 0)
    check("batch_deregister of an unknown address is negative", engine.batch_deregister([12345]) < 0)


def transfers(engine: Any, source: Any, far: FarSide) -> None:
    base, ptr, sid = source.ctypes.data, far.ptr, far.session
    first = 1 << 20
    sent = engine.transfer_sync(sid, base, ptr, first) == 0
    check("transfer_sync 1 MiB", sent and far.digest(0, first) == digest(source[:first]))
    for name, size, count in SHAPES:
        order = np.random.default_rng(count).permutation(count)
        sources = [base + i * size for i in range(count)]
        targets = [ptr + int(place) * size for place in order]
        start = time.perf_counter()
        rc = engine.batch_transfer_sync(sid, sources, targets, [size] * count)
        seconds = time.perf_counter() - start
        want = np.empty(size * count, dtype=np.uint8)
        want.reshape(count, size)[order] = source[: size * count].reshape(count, size)
        good = rc == 0 and far.digest(0, size * count) == digest(want)
        rate = size * count / seconds / 1e9
        check(f"batch_transfer_sync {name}", good, f"rc {rc}, {seconds * 1e3:.1f} ms, {rate:.2f} GB/s")
    check("a small write right after the large batches", engine.transfer_sync(sid, base, ptr, 64) == 0)
    check("empty batch is 0", engine.batch_transfer_sync(sid, [], [], []) == 0)
    check("zero-length entry is 0", engine.batch_transfer_sync(sid, [base], [ptr], [0]) == 0)
    arrays = np.array([base], dtype=np.uint64), np.array([ptr], dtype=np.uint64), np.array([4096])
    check("numpy arrays as arguments", engine.batch_transfer_sync(sid, *arrays) == 0)


def refusals(engine: Any, base: int, far: FarSide) -> None:
    ptr, sid = far.ptr, far.session
    check("lists of unequal length are negative", engine.batch_transfer_sync(sid, [base, base], [ptr], [8]) < 0)
    check(
        "past the end of a region is negative", engine.batch_transfer_sync(sid, [base], [ptr + POOL - 100], [200]) < 0
    )
    check("unregistered far address is negative", engine.batch_transfer_sync(sid, [base], [4096], [200]) < 0)
    start = time.perf_counter()
    good = [engine.transfer_sync(sid, base, ptr, 4096) for _ in range(5)]
    seconds = time.perf_counter() - start
    check("five good writes right after them", good == [0] * 5 and seconds < 0.25, f"{good} in {seconds * 1e3:.0f} ms")
    check("a wrong type is negative", engine.batch_transfer_sync(sid, ["x"], [ptr], [1]) < 0)
    start = time.perf_counter()
    rc = engine.transfer_sync("127.0.0.1:1", base, ptr, 100)
    seconds = time.perf_counter() - start
    check("nobody at the session: negative within 100 ms", rc < 0 and seconds < 0.1, f"rc {rc}")
    check("garbage session is negative", engine.transfer_sync("not a session", base, ptr, 100) < 0)
    check("send_probe of a live peer is 0", engine.send_probe(sid) == 0)
    check("send_probe of a dead port is not 0", engine.send_probe("127.0.0.1:1") != 0)
    check("get_engine gives an object", engine.get_engine() is not None)


def death(engine: Any, base: int, far: FarSide) -> None:
    far.end()
    start = time.perf_counter()
    rc = engine.batch_transfer_sync(far.session, [base], [far.ptr], [1 << 20])
    seconds = time.perf_counter() - start
    check("after the peer was killed: negative within 1 s", rc < 0 and seconds < 1, f"rc {rc}, {seconds * 1e3:.0f} ms")
    check("send_probe of the killed peer is not 0", engine.send_probe(far.session) != 0)
    check("deregister", error_of(engine.deregister, base) is None)


class FarSide:
    """The peer process, seen from here."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--peer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        told = self.answer()
        self.session: str = told["session"]
        self.ptr: int = told["ptr"]
        self.registered: int = told["rc"]

    def answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line[0] in '{"':
                return json.loads(line)
        raise SystemExit("the peer process ended")

    def digest(self, offset: int, size: int) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{offset} {size}\n")
        self.process.stdin.flush()
        return str(self.answer())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def peer() -> None:
    """The decode side: registers its pool and tells what is in it."""
    engine = make_engine()
    pool = np.zeros(POOL, dtype=np.uint8)
    base = pool.ctypes.data
    rc = engine.batch_register([base, base + HALF], [HALF, HALF])
    print(json.dumps({"session": engine.get_session_id(), "ptr": base, "rc": rc}), flush=True)
    for line in sys.stdin:
        offset, size = map(int, line.split())
        print(json.dumps(digest(pool[offset : offset + size])), flush=True)


def make_engine() -> Any:
    return shim.load().MooncakeTransferEngine(hostname="127.0.0.1", gpu_id=0)


def check(name: str, good: bool, detail: str = "") -> None:
    print("ok  " if good else "FAIL", name, detail, flush=True)
    if not good:
        failures.append(name)


def digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def raises(call: Callable[..., Any], *arguments: Any) -> bool:
    return isinstance(error_of(call, *arguments), RuntimeError)


def error_of(call: Callable[..., Any], *arguments: Any) -> Exception | None:
    try:
        call(*arguments)
    except Exception as error:
        return error
    return None


if __name__ == "__main__":
    os.environ.setdefault("MC_FORCE_TCP", "1")
    os.environ.setdefault("MOONCAKE_PROTOCOL", "tcp")
    if "--peer" in sys.argv:
        peer()
    else:
        sys.exit(main())
