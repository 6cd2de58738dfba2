"""Leaving with work in flight, and many threads at once."""

from __future__ import annotations

import pytest

from .fixtures import Pair
from .nodes import Nodes
from .support import WRITES, steps

KIB = 1 << 10
MIB = 1 << 20


@pytest.mark.parametrize(
    "form",
    [
        "batch_transfer_sync_write",
        "batch_transfer_sync_read",
        "batch_transfer_async_write",
        "batch_transfer_async_read",
    ],
)
def test_the_interpreter_leaves_with_a_transfer_in_flight(nodes: Nodes, form: str) -> None:
    """A daemon thread is inside a call (or batches run in the background) when `sys.exit(0)` is reached."""
    initiator = nodes.start(env={"DRIVER_LEAVE": "finalize"})
    target = nodes.start()
    size, count = 64 * MIB, 60
    local, remote = initiator.registered(size, seed=1), target.registered(size, seed=2)
    assert initiator.call("transfer_sync_write", target.name, local.base, remote.base, 64).ok
    lists = steps(local.base, 0, count), steps(remote.base, 0, count), steps(size, 0, count)
    if "async" in form:
        assert initiator.call(form, target.name, *lists).value != 0
    else:
        initiator.start(form, target.name, *lists)
    assert initiator.leave(limit=5) == 0
    assert len(initiator.log()) <= 2
    # The target is none the worse.
    survivor = nodes.start()
    here = survivor.registered(MIB, seed=3)
    assert survivor.call("transfer_sync_write", target.name, here.base, remote.base, MIB).ok
    assert remote.digest(0, MIB) == here.digest()


def test_the_target_leaves_with_a_transfer_in_flight(nodes: Nodes) -> None:
    initiator = nodes.start()
    target = nodes.start(env={"DRIVER_LEAVE": "finalize"})
    size, count = 64 * MIB, 60
    local, remote = initiator.registered(size, seed=1), target.registered(size, seed=2)
    lists = steps(local.base, 0, count), steps(remote.base, 0, count), steps(size, 0, count)
    token = initiator.start("batch_transfer_sync_write", target.name, *lists)
    assert target.leave(limit=5) == 0
    outcome = initiator.finish(token, 10)
    assert outcome.ok or (isinstance(outcome.value, int) and outcome.value < 0)


def test_many_threads_at_once(pair: Pair) -> None:
    """32 threads with places of their own: every call succeeds. How fast, benches/gate.txt has bounds for."""
    node, target = pair.initiator, pair.target
    threads, times, size = 32, 40, 256 * KIB
    local, remote = node.registered(threads * size, seed=1), target.registered(threads * size)
    calls = [{"args": [target.name, local.at(n * size), remote.at(n * size), size]} for n in range(threads)]
    together = node.ask("threads", method=WRITES[0], steps=calls, times=times)
    assert together["values"] == {"0": threads * times}
    assert remote.digest() == local.digest()
