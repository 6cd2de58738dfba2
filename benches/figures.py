"""What figures cost: the same calls of an engine that counts and of one that does not, in turns.

python -m benches.figures [ROUNDS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from mooncake.engine import TransferEngine

from benches.cases import MIB
from benches.memory import new_pool

FAR = """
import sys
from benches.memory import new_pool
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
pool = new_pool(64 << 20)
assert engine.register_memory(pool.ctypes.data, pool.nbytes) == 0
print(engine.get_rpc_port(), pool.ctypes.data, engine.allocate_managed_buffer(1 << 20), flush=True)
sys.stdin.read()
"""
LENGTH = 64 * MIB
MANAGED = "same host, managed, 64 B"
CASES: dict[str, tuple[str, int, int, int]] = {
    # name: paths, bytes a request, requests a call, calls a round
    MANAGED: ("tcp,shm", 64, 1, 20_000),
    "same host, copied, 4 KiB": ("tcp,shm", 4096, 1, 10_000),
    "same host, copied, 4096 x 4 KiB": ("tcp,shm", 4096, 4096, 20),
    "tcp, 4 KiB": ("tcp", 4096, 1, 3_000),
    "tcp, 4096 x 4 KiB": ("tcp", 4096, 4096, 10),
}


def engine(paths: str, figures: bool) -> TransferEngine:
    os.environ["MOONRAIL_PATHS"] = paths
    os.environ.pop("MOONRAIL_METRICS", None)
    if figures:
        os.environ["MOONRAIL_METRICS"] = "127.0.0.1:0"
    made = TransferEngine()
    assert made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return made


def seconds_a_call(call: Callable[[], int], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        assert call() == 0
    return (time.perf_counter() - start) / calls


def write(made: TransferEngine, peer: str, near: int, far: int, size: int, requests: int) -> Callable[[], int]:
    if requests == 1:
        return lambda: int(made.transfer_sync_write(peer, near, far, size))
    steps = range(0, size * requests, size)
    lists = [near + at for at in steps], [far + at for at in steps], [size] * requests
    return lambda: int(made.batch_transfer_sync_write(peer, *lists))


def main(rounds: int) -> None:
    print(f"{'µs a call, medians of ' + str(rounds):<34} {'off':>9} {'on':>9}   more")
    pool = new_pool(LENGTH)
    for name, (paths, size, requests, calls) in CASES.items():
        command = [sys.executable, "-c", FAR]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as far:
            assert far.stdin is not None
            assert far.stdout is not None
            port, address, managed = map(int, far.stdout.readline().split())
            made = {figures: engine(paths, figures) for figures in (False, True)}
            transfers = {}
            for figures, one in made.items():
                assert one.register_memory(pool.ctypes.data, LENGTH) == 0
                near, target = pool.ctypes.data, address
                if name == MANAGED:
                    near, target = one.allocate_managed_buffer(MIB), managed
                transfers[figures] = write(one, f"127.0.0.1:{port}", near, target, size, requests)
                seconds_a_call(transfers[figures], max(calls // 10, 2))
            taken: dict[bool, list[float]] = {False: [], True: []}
            for at in range(rounds):
                for figures in (at % 2 == 0, at % 2 == 1):
                    taken[figures].append(seconds_a_call(transfers[figures], calls) * 1e6)
            far.stdin.close()
        off, on = (statistics.median(taken[figures]) for figures in (False, True))
        print(f"{name:<34} {off:9.2f} {on:9.2f}   {on - off:+.2f} µs, {on / off - 1:+.1%}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
