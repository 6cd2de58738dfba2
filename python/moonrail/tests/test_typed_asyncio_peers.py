"""Peers that are killed, restarted or stopped, as coroutines meet them."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time
from pathlib import Path

import moonrail
import pytest

from .support import PeerProcess, free_port

MIB = 1 << 20


def memory_of(peer: PeerProcess, size: int) -> bytes:
    """What stands in its pool now, without its help."""
    with Path(f"/proc/{peer.process.pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(peer.addr)
        read = bytearray()
        while len(read) < size:
            read += memory.read(size - len(read))
    return bytes(read)


@pytest.mark.parametrize("paths", ["tcp", "tcp,shm"])
@pytest.mark.parametrize("way", ["write", "read"])
def test_a_peer_that_is_killed_and_comes_back(typed: moonrail.Engine, paths: str, way: str) -> None:
    """Everything under way ends as an error within 2 s; the first call to the new process works."""
    name = f"127.0.0.1:{free_port()}"
    peer = PeerProcess(name, paths=paths)

    async def main() -> None:
        nonlocal peer
        far = typed.connect(name)
        size = 32 * MIB
        with typed.allocate(size) as mine:
            pieces = [(mine, (peer.addr, size))] * 60
            tasks = [asyncio.ensure_future(far.submit(way, pieces)) for _ in range(3)]
            await asyncio.sleep(0.05)
            peer.kill()
            start = time.monotonic()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert time.monotonic() - start < 2
            assert any(isinstance(result, moonrail.MoonrailError) for result in results)
            assert all(result is None or isinstance(result, moonrail.MoonrailError) for result in results)
            with pytest.raises(moonrail.MoonrailError):
                await far.write_async(mine[:64], (peer.addr, 64))
            peer.close()
            peer = PeerProcess(name, paths=paths)
            mine.view[:4] = b"back"
            await far.write_async(mine[:4], (peer.addr, 4))
            assert peer.read(0, 4) == b"back"

    try:
        asyncio.run(main())
    finally:
        peer.close()


@pytest.mark.parametrize("size", [4096, 32 * MIB])
def test_nothing_lands_after_a_task_was_cancelled(typed: moonrail.Engine, tcp_peer: PeerProcess, size: int) -> None:
    """Also when the target stood still with the bytes in its socket's buffer, and goes on then."""

    async def main() -> None:
        far = typed.connect(tcp_peer.name)
        with typed.allocate(size) as mine:
            await far.write_async(mine, (tcp_peer.addr, size))
            mine.view[:] = b"\7" * size
            tcp_peer.process.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(0.05)
                task = asyncio.ensure_future(far.write_async(mine, (tcp_peer.addr, size)))
                await asyncio.sleep(0.1)
                start = time.monotonic()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert time.monotonic() - start < 1
                then = memory_of(tcp_peer, size)
            finally:
                tcp_peer.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.3)
            assert tcp_peer.digest(size) == hashlib.sha256(then).hexdigest()
            await far.write_async(mine, (tcp_peer.addr, size))
            assert tcp_peer.digest(size) == hashlib.sha256(b"\7" * size).hexdigest()

    asyncio.run(main())


def test_use_after_close(peer: PeerProcess) -> None:
    """A closed engine's coroutines, those under way and those begun then, end as errors."""

    async def main() -> None:
        engine = moonrail.Engine("127.0.0.1")
        far = engine.connect(peer.name)
        mine = engine.allocate(MIB)
        await far.write_async(mine, (peer.addr, MIB))
        under_way = [asyncio.ensure_future(far.submit("write", [(mine, (peer.addr, MIB))] * 500)) for _ in range(4)]
        await asyncio.sleep(0)
        engine.close()
        results = await asyncio.wait_for(asyncio.gather(*under_way, return_exceptions=True), 10)
        assert all(result is None or isinstance(result, moonrail.MoonrailError) for result in results)
        with pytest.raises(moonrail.EngineClosedError):
            await far.write_async(mine, (peer.addr, MIB))
        with pytest.raises(moonrail.EngineClosedError):
            engine.connect(peer.name)

    asyncio.run(main())
