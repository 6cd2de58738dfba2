"""File limits, leaks and the cost of coming and going."""

from __future__ import annotations

import sys
import time

import pytest

from .fixtures import Pair
from .nodes import Node, Nodes
from .sockets import free_port
from .support import FORMS, failed, transfer

MIB = 1 << 20


@pytest.fixture
def pair(nodes: Nodes) -> Pair:
    """Fresh processes: room left in a used heap would hide growth."""
    return Pair(*nodes.start_many(2, fresh=True))


def settled(node: Node) -> tuple[int, int, int]:
    """RSS, files and threads after what ends in the background has ended."""
    time.sleep(0.3)
    usage = node.usage()
    return usage.rss_kib, usage.files, usage.threads


def flat(node: Node, before: tuple[int, int, int], grown_kib: int = 8 << 10, files: int = 0, threads: int = 2) -> None:
    """Nothing grew with the work done; a worker thread may come and go."""
    after = settled(node)
    assert after[0] - before[0] < grown_kib, f"RSS {before[0]} -> {after[0]} KiB"
    assert after[1] - before[1] <= files, f"files {before[1]} -> {after[1]}"
    assert after[2] - before[2] <= threads, f"threads {before[2]} -> {after[2]}"


def test_a_low_file_limit(nodes: Nodes) -> None:
    """Twelve engines with 24 files: an error that names the limit, no storm in the log, and the first ones live on."""
    limiter = (
        "import resource, os, sys;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24));"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    node = nodes.spawn(wrapper=[sys.executable, "-c", limiter])
    working = []
    for n in range(12):
        name = f"e{n}"
        outcome = node.initialize(engine=name)
        if outcome.ok:
            working.append(name)
        else:
            assert outcome.value == -1
            failed(node, outcome, ["nofile", "open files", "file descriptors", "file limit"], engine=name)
    assert 1 <= len(working) < 12
    assert len(node.log()) <= 24, f"{len(node.log())} lines"
    # With a few files free again, the first engine is as good as before.
    if len(working) > 1:
        node.destroy(working.pop())
    other = nodes.start()
    remote = node.registered(4096, engine=working[0])
    local = other.registered(4096, seed=1)
    assert transfer(other, "transfer_sync_write", node.name_of(working[0]), local.base, remote.base, 4096).ok
    assert remote.digest() == local.digest()


def test_engines_come_and_go(nodes: Nodes) -> None:
    """Sixty of them, each of which registers and transfers; none takes a second to go."""
    node, target = nodes.start_many(2, fresh=True)
    local, remote = node.region(4096, seed=1), target.registered(4096)
    slowest = 0.0

    def one_life() -> None:
        nonlocal slowest
        assert node.initialize(engine="guest").ok
        assert node.call("register_memory", local.base, 4096, engine="guest").ok
        assert node.call("transfer_sync_write", target.name, local.base, remote.base, 4096, engine="guest").ok
        slowest = max(slowest, node.destroy("guest"))

    for _ in range(10):
        one_life()
    before, target_before = settled(node), settled(target)
    for _ in range(50):
        one_life()
    assert slowest < 0.5
    flat(node, before, files=1, threads=1)
    flat(target, target_before, files=1, threads=1)


def test_twenty_thousand_writes(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(MIB, seed=1), target.registered(MIB)
    call = {"method": "transfer_sync_write", "args": [target.name, local.base, remote.base, 64]}
    node.ask("repeat", steps=[call], times=1_000)
    before, target_before = settled(node), settled(target)
    answer = node.ask("repeat", wait=60, steps=[call], times=20_000)
    assert answer["values"] == [{"0": 20_000}]
    flat(node, before)
    flat(target, target_before)


def test_two_thousand_failed_connects(nodes: Nodes) -> None:
    node = nodes.start(fresh=True)
    local = node.registered(4096)
    call = {"method": "transfer_sync_write", "args": [f"127.0.0.1:{free_port()}", local.base, local.base, 64]}
    node.ask("repeat", steps=[call], times=200)
    before = settled(node)
    answer = node.ask("repeat", steps=[call], times=2_000)
    assert answer["values"] == [{"-1": 2_000}]
    assert answer["slowest"] < 0.5
    flat(node, before)


def test_three_thousand_registrations(pair: Pair) -> None:
    node = pair.target
    region = node.region(MIB)
    calls = [
        {"method": "register_memory", "args": [region.base, MIB]},
        {"method": "unregister_memory", "args": [region.base]},
    ]
    node.ask("repeat", steps=calls, times=300)
    before = settled(node)
    answer = node.ask("repeat", steps=calls, times=3_000)
    assert answer["values"] == [{"0": 3_000}, {"0": 3_000}]
    flat(node, before)


def test_managed_buffers_do_not_leak(pair: Pair) -> None:
    node = pair.target
    before = settled(node)
    for size in (0, 1, 8_192, 100_000, 3 * MIB) * 40:
        address = node.call("allocate_managed_buffer", size).value
        assert address
        assert (
            node.call("write_bytes_to_buffer", address, {"bytes": b"x".hex() * min(size, 100)}, min(size, 100)).value
            == 0
        )
        assert node.call("free_managed_buffer", address, size).value == 0
    flat(node, before)


@pytest.mark.parametrize("method", [form for form in FORMS if "sync_" in form and "async" not in form])
def test_ten_thousand_refusals(pair: Pair, method: str) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(4096, seed=1), target.registered(4096)
    lists = [local.base, remote.base + 1, 4096]
    arguments = [[part] for part in lists] if method.startswith("batch") else lists
    call = {"method": method, "args": [target.name, *arguments]}
    node.ask("repeat", steps=[call], times=500)
    before, target_before = settled(node), settled(target)
    answer = node.ask("repeat", wait=60, steps=[call], times=10_000)
    assert answer["values"] == [{"-1": 10_000}]
    flat(node, before)
    flat(target, target_before)


@pytest.mark.parametrize("form", [form for form in FORMS if "async" in form or "submit" in form])
def test_failed_batches_in_the_background_leave_nothing(pair: Pair, form: str) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(4096, seed=1), target.registered(4096)

    def many(times: int) -> None:
        for _ in range(times):
            assert transfer(node, form, target.name, local.base, remote.base + 1, 4096).value < 0

    many(100)
    before, target_before = settled(node), settled(target)
    many(500)
    flat(node, before)
    flat(target, target_before)


def test_batches_that_nobody_collects(pair: Pair) -> None:
    """Their results are kept, but not their lists; and a batch that was collected leaves nothing."""
    node, target = pair.initiator, pair.target
    local, remote = node.registered(MIB, seed=1), target.registered(MIB)
    arguments = [target.name, [local.base] * 500, [remote.base] * 500, [64] * 500]
    call = {"method": "batch_transfer_async_write", "args": arguments}

    def many(rounds: int) -> None:
        """A hundred at a time, so that what grows is what is kept and not what is waiting."""
        for _ in range(rounds):
            answer = node.ask("repeat", steps=[call], times=100)
            identifiers = sorted(int(value) for value in answer["values"][0])
            assert identifiers[0] > 0
            for identifier in identifiers[-10:]:
                assert node.ask("poll", id=identifier, limit=20)["value"] == 1

    many(15)
    before = settled(node)
    many(25)
    flat(node, before, threads=100)
    assert node.usage().threads < 300


def test_an_idle_engine_uses_no_processor(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(MIB, seed=1), target.registered(MIB)
    assert transfer(node, "transfer_sync_write", target.name, local.base, remote.base, MIB).ok
    time.sleep(0.3)

    def ticks(who: Node) -> int:
        with open(f"/proc/{who.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks(node), ticks(target)
    time.sleep(2)
    assert ticks(node) - before[0] <= 4 and ticks(target) - before[1] <= 4, "in hundredths of a second over 2 s"
