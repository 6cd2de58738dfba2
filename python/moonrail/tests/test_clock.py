"""Clocks that jump: somebody sets the date, or the machine was asleep. No limit, wait or token looks at the date."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .support import clean_environment

SHIM = Path(__file__).with_name("clock.c")

SCRIPT = """
import mmap, os, socket, struct, threading, time, moonrail

YEARS = 10 * 365 * 86400
clock = mmap.mmap(os.open(os.environ["CLOCK_FILE"], os.O_RDWR), 8)

def jump(seconds):
    struct.pack_into("q", clock, 0, seconds)

before = time.time()
jump(YEARS)
assert time.time() - before > YEARS - 60, "the clock cannot be made to jump"
jump(0)

done = threading.Event()

def jumping():
    offsets = [YEARS, -YEARS, 0, 3600, -3600]
    while not done.wait(0.005):
        offsets.append(offsets.pop(0))
        jump(offsets[0])

with moonrail.Engine("127.0.0.1") as far, moonrail.Engine("127.0.0.1", call_timeout=2.0) as near:
    pool = far.allocate(1 << 20, name="pool")
    kept = far.allocate(4096, name="kept", guarded=True)
    impatient = moonrail.Engine("127.0.0.1", handshake_timeout=0.3)
    mine = near.allocate(1 << 20)
    mine.view[:] = bytes(range(256)) * 4096
    peer = near.connect(far.name)
    thread = threading.Thread(target=jumping)
    thread.start()
    try:
        # A valid token outlasts every jump; one that ends in a second ends in a second.
        near.present(far.token(kept, read=True, write=True, valid_for=3600))
        end = time.monotonic() + 2
        rounds = 0
        while time.monotonic() < end:
            peer.write(mine[:], peer.buffer("pool")[:], timeout=1.5)
            peer.write(mine[:4096], peer.buffer("kept")[:])
            peer.read_batch([(mine[at : at + 64], peer.buffer("pool")[at : at + 64]) for at in range(0, 65536, 64)])
            rounds += 1
        assert rounds > 10, rounds
        assert bytes(pool.view) == bytes(range(256)) * 4096
        assert peer.probe().round_trip < 1

        # Waits end when they should.
        mute = socket.create_server(("127.0.0.1", 0))
        start = time.monotonic()
        try:
            impatient.connect(f"127.0.0.1:{mute.getsockname()[1]}")
            raise SystemExit("a peer that says nothing was connected to")
        except moonrail.PeerTimeoutError:
            assert 0.2 < time.monotonic() - start < 3, time.monotonic() - start
    finally:
        done.set()
        thread.join()
        impatient.close()

    short = moonrail.Engine("127.0.0.1")
    token = far.token(kept, read=True, write=False, valid_for=0.5)
    short.present(token)
    jump(-YEARS)
    view, memory = short.connect(far.name), short.allocate(4096)
    view.read(memory[:], view.buffer("kept")[:])
    time.sleep(0.6)
    try:
        view.read(memory[:], view.buffer("kept")[:])
        raise SystemExit("a token outlived its time, since the date was set back")
    except moonrail.MoonrailError as error:
        assert error.code == "TOKEN_REFUSED", error
    short.close()
print("done")
"""


@pytest.mark.parametrize("paths", ["tcp,shm", "tcp"])
def test_dates_may_jump(tmp_path: Path, paths: str) -> None:
    library, clock = tmp_path / "clock.so", tmp_path / "clock"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", library, SHIM], check=True, timeout=60)
    clock.write_bytes(bytes(8))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean_environment(LD_PRELOAD=str(library), CLOCK_FILE=str(clock), MOONRAIL_PATHS=paths),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
