"""The typed API in an event loop."""

from __future__ import annotations

import asyncio
import time

import moonrail
import pytest

from .support import PeerProcess, mute_listener


def test_await_transfers(typed: moonrail.Engine, peer: PeerProcess) -> None:
    far = typed.connect(peer.name)
    pool = far.buffer("pool")

    async def main() -> None:
        with typed.allocate(1 << 16) as mine:
            mine.view[:10] = b"0123456789"
            await far.write_async(mine[:10], pool[:10])
            await far.read_async(mine[100:110], pool[:10])
            assert bytes(mine.view[100:110]) == b"0123456789"
            await asyncio.gather(*(far.write_async(mine[:10], pool[i * 10 : i * 10 + 10]) for i in range(200)))
            await far.write_batch_async([(mine[i : i + 1], pool[9 - i : 10 - i]) for i in range(10)])
            await far.read_batch_async([(mine[:10], pool[:10])], notify=("a", "b"))
            assert bytes(mine.view[:10]) == b"9876543210"
            await far.submit("write", [(mine[:1], pool[:1])])

    asyncio.run(main())
    assert peer.read(10, 1990) == b"0123456789" * 199
    asyncio.run(main(), debug=True)


def test_failures_are_raised(typed: moonrail.Engine, peer: PeerProcess) -> None:
    far = typed.connect(peer.name)

    async def main() -> None:
        with typed.allocate(64) as mine:
            with pytest.raises(moonrail.RemoteRangeError):
                await far.write_async(mine, (4096, 64))
            with pytest.raises(moonrail.LocalRangeError):
                await far.write_async((4096, 64), far.buffer("pool")[:64])
            results = await asyncio.gather(
                *(far.write_async(mine, (far.buffers[0].addr if i % 2 else 4096, 64)) for i in range(20)),
                return_exceptions=True,
            )
            assert [isinstance(result, moonrail.RemoteRangeError) for result in results] == [True, False] * 10

    asyncio.run(main())


def test_the_loop_goes_on_meanwhile(typed: moonrail.Engine) -> None:
    async def main(name: str) -> int:
        far._name = name  # a peer that has fallen silent since
        ticks = 0
        with typed.allocate(64) as mine:
            task = asyncio.ensure_future(far.write_async(mine, (4096, 64), timeout=0.5))
            while not task.done():
                ticks += 1
                await asyncio.sleep(0.001)
            with pytest.raises(TimeoutError):
                await task
        return ticks

    far = typed.connect(typed.name)
    with mute_listener() as name:
        assert asyncio.run(main(name)) > 100


@pytest.mark.parametrize("times", [1, 3])
def test_cancelling_a_task_cancels_its_transfer(typed: moonrail.Engine, times: int) -> None:
    async def main(name: str) -> None:
        far._name = name
        mine = typed.allocate(64)
        task = asyncio.ensure_future(far.write_async(mine, (4096, 64)))
        await asyncio.sleep(0.1)
        assert not task.done()
        start = time.monotonic()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.001)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - start < 1
        mine.free()  # no transfer holds it any more, so this does not wait
        assert time.monotonic() - start < 1

    far = typed.connect(typed.name)
    with mute_listener() as name:
        asyncio.run(main(name))


def test_wait_for(typed: moonrail.Engine) -> None:
    async def main(name: str) -> None:
        far._name = name
        with typed.allocate(64) as mine:
            start = time.monotonic()
            with pytest.raises(TimeoutError if hasattr(asyncio, "timeout") else asyncio.TimeoutError):
                await asyncio.wait_for(far.write_async(mine, (4096, 64)), 0.2)
            assert time.monotonic() - start < 1

    far = typed.connect(typed.name)
    with mute_listener() as name:
        asyncio.run(main(name))


def test_loops_in_threads(typed: moonrail.Engine, peer: PeerProcess) -> None:
    far = typed.connect(peer.name)

    async def main() -> None:
        with typed.allocate(64) as mine:
            for _ in range(20):
                await far.write_async(mine, far.buffer("pool")[:64])

    import threading

    failures: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
