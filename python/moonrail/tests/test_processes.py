"""fork, exit and threads."""

from __future__ import annotations

import hashlib
import os
import threading
import time

import pytest
from moonrail.mooncake import TransferEngine

from .support import Block, PeerProcess, mute_listener, output, run

FORK = """
import ctypes, mmap, os, sys, time, moonrail
from moonrail.mooncake import TransferEngine, Write
peer, remote = sys.argv[1], int(sys.argv[2])
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
address = engine.allocate_managed_buffer(1 << 20)
typed = moonrail.Engine("127.0.0.1")
buffer = typed.allocate(4096)
buffer.view[:4] = b"kept"
ctypes.memset(address, 7, 1 << 20)
far = typed.connect(peer)
assert engine.transfer_sync_write(peer, address, remote, 64) == 0
batch = engine.transfer_submit_write(peer, address, remote, 64)
pid = os.fork()
if pid == 0:
    start = time.monotonic()
    problems = []
    for call in (
        lambda: engine.transfer_sync_write(peer, address, remote, 64),
        lambda: engine.batch_transfer_sync_read(peer, [address], [remote], [64]),
        lambda: engine.get_batch_transfer_status([batch]),
        lambda: engine.transfer_check_status(batch),
        lambda: engine.register_memory(4096, 4096),
        lambda: engine.unregister_memory(address),
        lambda: engine.send_probe(peer),
        lambda: engine.get_rpc_port(),
        lambda: engine.free_managed_buffer(address, 1 << 20),
    ):
        if call() != -1 or engine.last_error().code != "FORKED":
            problems.append(f"{engine.last_error()}")
    if engine.transfer_submit_write(peer, address, remote, 64) != 0:
        problems.append("an id")
    for call in (
        lambda: far.write(buffer, (remote, 4096)),
        lambda: typed.connect(peer),
        lambda: typed.allocate(10),
        lambda: typed.notifies(),
        lambda: typed.report(),
    ):
        try:
            call()
            problems.append("no exception")
        except moonrail.EngineClosedError as error:
            if error.code != "FORKED":
                problems.append(error.code)
    own = TransferEngine()
    if own.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") or own.send_probe(peer):
        problems.append("a new engine in the child does not work")
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") or engine.send_probe(peer):
        problems.append("the inherited object cannot be initialised anew")
    typed.close()
    del engine, typed, buffer, far, own
    if time.monotonic() - start > 3:
        problems.append(f"{time.monotonic() - start} s")
    print(problems, flush=True)
    sys.exit(len(problems))
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
# It is shared memory, and the child has dropped all that it had of it.
assert bytes(buffer.view[:4]) == b"kept"
assert ctypes.string_at(address, 1 << 20) == b"\\7" * (1 << 20)
assert engine.transfer_sync_write(peer, address, remote, 64) == 0, engine.last_error()
assert engine.get_batch_transfer_status([batch]) == 0
far.write(buffer, (remote, 4096))
buffer.free()
typed.close()
"""


def test_a_forked_child_gets_errors_at_once(peer: PeerProcess) -> None:
    assert output(FORK, peer.name, str(peer.addr), timeout=20, MC_LOG_LEVEL="ERROR") == "[]"


@pytest.mark.parametrize("how", ["sys.exit(0)", "pass", "os._exit(0)"])
def test_exit_with_daemon_threads_in_transfers(peer: PeerProcess, how: str) -> None:
    code = f"""
import os, sys, threading, time
from moonrail.mooncake import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
size = 64 << 20
address = engine.allocate_managed_buffer(size)
def loop():
    while True:
        engine.transfer_sync_write(sys.argv[1], address, int(sys.argv[2]), size)
for _ in range(2):
    threading.Thread(target=loop, daemon=True).start()
time.sleep(0.3)
{how}
"""
    start = time.monotonic()
    done = run(code, peer.name, str(peer.addr))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert time.monotonic() - start < 5


def test_many_threads(engine: TransferEngine, peer: PeerProcess) -> None:
    """Concurrent calls to one peer, each thread its own slices."""
    threads, calls, size = 8, 100, 8192
    block = Block(threads * size)
    block.map[:] = os.urandom(block.size)
    assert engine.register_memory(block.addr, block.size) == 0
    results: list[int] = []

    def work(index: int) -> None:
        offset = index * size
        for _ in range(calls):
            results.append(engine.transfer_sync_write(peer.name, block.addr + offset, peer.addr + offset, size))

    pool = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    assert results == [0] * (threads * calls)
    assert peer.digest(block.size) == hashlib.sha256(block.bytes()).hexdigest()


@pytest.mark.parametrize("method", ["transfer_sync_write", "send_probe", "get_first_buffer_address"])
def test_waits_release_the_interpreter(engine: TransferEngine, block: Block, method: str) -> None:
    ticks = 0
    with mute_listener() as name:
        arguments = (name, block.addr, 4096, 8) if method == "transfer_sync_write" else (name,)
        thread = threading.Thread(target=getattr(engine, method), args=arguments)
        thread.start()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            ticks += 1
            time.sleep(0.001)
        assert thread.is_alive(), "it waits"
        thread.join()
    assert ticks > 100


def test_an_object_is_gone_at_once(peer: PeerProcess) -> None:
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert engine.send_probe(peer.name) == 0
    start = time.monotonic()
    del engine
    assert time.monotonic() - start < 0.2


def test_objects_leave_nothing_behind() -> None:
    code = """
import os, time
from moonrail.mooncake import TransferEngine
def use():
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    address = engine.allocate_managed_buffer(4096)
    assert engine.transfer_sync_write(f"127.0.0.1:{engine.get_rpc_port()}", address, address, 4096) == 0
    assert engine.transfer_submit_write("127.0.0.1:1", address, address, 1)
def state():
    return len(os.listdir("/proc/self/fd"))
for _ in range(3):
    use()
before = state()
for _ in range(20):
    use()
# The last background batch keeps its engine until it has ended.
end = time.monotonic() + 10
while state() > before and time.monotonic() < end:
    time.sleep(0.01)
print(state() - before)
"""
    assert int(output(code, timeout=60, MC_LOG_LEVEL="ERROR")) <= 2
