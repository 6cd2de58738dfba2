"""Ctrl-C ends every wait within a second, with KeyboardInterrupt, and leaves the process usable."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from .support import PeerProcess, clean_environment, mute_listener

SETUP = """
import ctypes, mmap, sys, time, moonrail
from moonrail.mooncake import TransferEngine, Write
name = sys.argv[1]
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
memory = mmap.mmap(-1, 1 << 20)
addr = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert engine.register_memory(addr, 1 << 20) == 0
typed = moonrail.Engine("127.0.0.1")
typed.register((addr, 1 << 20))
BEFORE
print("ready", flush=True)
try:
    CALL
    print("returned", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
AFTER
own = f"127.0.0.1:{engine.get_rpc_port()}"
assert engine.transfer_sync_write(own, addr, addr + 4096, 64) == 0, engine.last_error()
print("usable", flush=True)
"""

SUBMIT = "batch = engine.batch_transfer_async_write(name, [addr], [4096], [8])"

CALLS = {
    "transfer_sync_write": "engine.transfer_sync_write(name, addr, 4096, 8)",
    "transfer_sync_read": "engine.transfer_sync_read(name, addr, 4096, 8)",
    "batch": "engine.batch_transfer_sync_write(name, [addr] * 9, [4096] * 9, [8] * 9)",
    "wait": "engine.get_batch_transfer_status([batch])",
    "probe": "engine.send_probe(name)",
    "first buffer": "engine.get_first_buffer_address(name)",
    "initialize": "TransferEngine().initialize('127.0.0.1', f'http://{name}/metadata', 'tcp', '')",
    "typed connect": "typed.connect(name)",
    "typed probe": "typed.probe(name)",
}


def interrupt(call: str, name: str, before: str = "pass", after: str = "pass") -> tuple[str, float]:
    """Makes the call, sends SIGINT once it waits, and says what was printed and how long it went on."""
    code = SETUP.replace("BEFORE", before).replace("AFTER", after).replace("CALL", call)
    process = subprocess.Popen(
        [sys.executable, "-c", code, name], stdout=subprocess.PIPE, text=True, env=clean_environment()
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        first = process.stdout.readline().strip()
        seconds = time.monotonic() - start
        rest = process.stdout.read().split()
        assert process.wait(20) == 0
        assert rest == (["usable"] if after == "pass" else [])
        return first, seconds
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


@pytest.mark.parametrize("call", CALLS)
def test_a_mute_peer(call: str) -> None:
    with mute_listener() as name:
        first, seconds = interrupt(CALLS[call], name, before=SUBMIT)
    assert first == "interrupted"
    assert seconds < 1


def test_a_peer_that_stops_in_the_middle(tcp_peer: PeerProcess) -> None:
    """Over TCP: on one host a copy does not need the other process to run."""
    call = f"engine.batch_transfer_sync_write(name, [addr] * 60, [{tcp_peer.addr}] * 60, [1 << 20] * 60)"
    stop = f"assert engine.get_first_buffer_address(name); import os; os.kill({tcp_peer.process.pid}, {int(signal.SIGSTOP)})"
    try:
        first, seconds = interrupt(call, tcp_peer.name, before=stop)
    finally:
        tcp_peer.process.send_signal(signal.SIGCONT)
    assert first == "interrupted"
    assert seconds < 1


@pytest.mark.parametrize("call", ["engine.unregister_memory(addr)", "registration.close()", "typed.close()"])
def test_a_fence_does_not_wait_for_a_stuck_transfer(tcp_peer: PeerProcess, call: str) -> None:
    """The transfers to a stopped peer let go of the memory."""
    before = f"""
import os, threading
registration = [*typed._registrations.values()][0]
assert engine.transfer_sync_write(name, addr, {tcp_peer.addr}, 8) == 0
far = typed.connect(name)
far.write(registration[:8], ({tcp_peer.addr}, 8))
os.kill({tcp_peer.process.pid}, {int(signal.SIGSTOP)})
big = [addr] * 60, [{tcp_peer.addr}] * 60, [1 << 20] * 60
threading.Thread(target=engine.batch_transfer_sync_write, args=(name, *big), daemon=True).start()
transfer = far.submit("write", [(registration, ({tcp_peer.addr}, 1 << 20))] * 60)
time.sleep(0.2)
start = time.monotonic()
{call}
print(time.monotonic() - start, flush=True)
os._exit(0)
"""
    code = SETUP.replace("BEFORE", before)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, tcp_peer.name],
            capture_output=True,
            text=True,
            env=clean_environment(),
            timeout=20,
            check=False,
        )
    finally:
        tcp_peer.process.send_signal(signal.SIGCONT)
    assert float(done.stdout.split()[0]) < 1, done.stderr


def test_a_signal_handler_that_does_not_raise_does_not_end_the_call() -> None:
    handler = "import signal; signal.signal(signal.SIGINT, lambda *_: None)"
    with mute_listener() as name:
        first, seconds = interrupt("assert engine.send_probe(name) == -102", name, before=handler)
    assert first == "returned"
    assert seconds > 3, "the whole time limit"
