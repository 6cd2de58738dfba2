"""Leaving with work in flight, and many threads at once."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import pytest

from .driver import pattern
from .fixtures import Pair
from .nodes import Nodes
from .support import FORMS, READS, WRITES, failed, steps, transfer

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


def test_three_hundred_threads(nodes: Nodes) -> None:
    """Reads and writes, single and batched, to two peers: every call succeeds, and no thread or socket is left."""
    node, *targets = nodes.start_many(3, fresh=True)
    threads, times, size = 300, 10, 8 * KIB
    local = node.registered(threads * size, seed=1)
    remotes = [target.registered(threads * size, seed=1) for target in targets]
    before = node.usage()
    calls = []
    for n in range(threads):
        form = (*WRITES[:2], *READS[:2])[n % 4]
        lists = (local.at(n * size), remotes[n % 2].at(n * size), size)
        arguments = [[part] for part in lists] if form.startswith("batch") else list(lists)
        calls.append({"method": form, "args": [targets[n % 2].name, *arguments]})
    together = node.ask("threads", method="", steps=calls, times=times)
    assert together["values"] == {"0": threads * times}
    expected = hashlib.sha256(pattern(1, threads * size)).hexdigest()
    assert [region.digest() for region in (local, *remotes)] == [expected] * 3
    # Threads that waited for the first look-up stay for 10 s, for what may come next.
    end = time.monotonic() + 15
    while (after := node.usage()).threads > before.threads + 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert after.threads <= before.threads + 2
    assert after.files <= before.files + 40, "lanes to two peers, not one for each thread"


@pytest.mark.parametrize("form", ["batch_transfer_async_write", "batch_transfer_async_read", "transfer_submit_write"])
@pytest.mark.parametrize("how", ["initialize again", "destroy"])
def test_an_engine_that_goes_with_batches_in_flight(nodes: Nodes, form: str, how: str) -> None:
    """At once, without a crash; whoever comes after is as good as new, and the target is none the worse."""
    node, target = nodes.start_many(2)
    size = 64 * MIB
    local, remote = node.registered(size, seed=1), target.registered(size, seed=2)
    lists: list[Any]
    if form.startswith("batch"):
        lists = [steps(local.base, 0, 40), steps(remote.base, 0, 40), steps(size, 0, 40)]
    else:
        lists = [local.base, remote.base, size]
    submitted = [node.call(form, target.name, *lists).value for _ in range(2)]
    assert all(submitted)
    start = time.monotonic()
    if how == "destroy":
        node.destroy()
        node.create()
    assert node.call("initialize", "127.0.0.1", "P2PHANDSHAKE", "tcp", "").ok
    assert time.monotonic() - start < 7
    assert node.call("transfer_check_status", submitted[0]).value != 1, "an id of the engine that is gone"
    mine = node.registered(MIB, seed=3)
    for each in FORMS:
        outcome = transfer(node, each, target.name, mine.base, remote.base, MIB)
        assert outcome.ok and outcome.seconds < 5, outcome
    failed(node, node.call("transfer_sync_write", target.name, mine.end, remote.base, 64), "not registered")
