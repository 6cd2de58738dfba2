"""What an engine costs that has nothing to do: no wake-up, few threads, little memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

REST_SECONDS = 2.0
LOOK_SECONDS = 3.0
MAX_THREADS = 4
"""Of the engine, beside the interpreter's own."""
MAX_KIB = 8 << 10
"""Resident memory that the engine adds to the interpreter's."""

NODE = """
import sys, threading, typing  # The interpreter's own, which whoever calls an engine has loaded anyway.

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

before = resident()
from mooncake.engine import TransferEngine

engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
address = engine.allocate_managed_buffer(1 << 16)
print(engine.get_rpc_port(), address, flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "move":
        peer, remote = words[1], int(words[2])
        for _ in range(200):
            assert engine.transfer_sync_write(peer, address, remote, 4096) == 0
            assert engine.transfer_sync_read(peer, address, remote, 4096) == 0
            pieces = range(0, 1 << 16, 64)
            near, far = [address + at for at in pieces], [remote + at for at in pieces]
            assert engine.batch_transfer_sync_write(peer, near, far, [64] * len(near)) == 0
    print(resident() - before, flush=True)
"""


class Node:
    """A process with an engine, and nothing else in it."""

    def __init__(self, paths: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", NODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"MOONRAIL_PATHS": paths},
        )
        port, address = self.answer().split()
        self.session, self.address = f"127.0.0.1:{port}", int(address)

    def ask(self, *words: object) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process ended"
        return line

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def wakes(self) -> dict[str, int]:
        """How often each thread has been switched away from, which it must have been woken for."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        return {name(task): sum(switches(task)) for task in tasks.iterdir()}


def name(task: Path) -> str:
    return f"{(task / 'comm').read_text().strip()} {task.name}"


def switches(task: Path) -> Iterator[int]:
    for line in (task / "status").read_text().splitlines():
        if "ctxt_switches" in line:
            yield int(line.split()[1])


def test_an_idle_engine_sleeps() -> None:
    # One pair of processes a path, and one rest for all of them.
    pairs = {paths: (Node(paths), Node(paths)) for paths in ("tcp,shm", "tcp")}
    try:
        nodes = [node for pair in pairs.values() for node in pair]
        for near, far in pairs.values():
            near.ask("move", far.session, far.address)
        grown = [int(node.ask("memory")) for node in nodes]
        time.sleep(REST_SECONDS)
        before = [node.wakes() for node in nodes]
        time.sleep(LOOK_SECONDS)
        after = [node.wakes() for node in nodes]
    finally:
        for near, far in pairs.values():
            near.end()
            far.end()
    assert after == before, "a thread was woken"
    for threads in after:
        assert len(threads) - 1 <= MAX_THREADS, sorted(threads)
    assert max(grown) <= MAX_KIB, f"the processes grew by {grown} KiB"
