"""Any number of descriptors in one call: taken with back-pressure, never rejected, and nothing is wrong afterwards."""

from __future__ import annotations

import hashlib
import random
import time

import pytest

from .driver import Json, pattern
from .fixtures import Pair
from .nodes import Node, Nodes, Outcome, Region
from .support import READS, WRITES, failed, shuffled, steps

MIB = 1 << 20

SHAPES = [(2_049, 64), (2_500, 4_096), (10_000, 256), (60_000, 512), (2_000, 32_768)]


def scattered_digest(seed: int, data_seed: int, size: int, count: int) -> str:
    """What the far region holds when piece i of the source went to the i-th of the shuffled places."""
    places = list(range(count))
    random.Random(seed).shuffle(places)
    source = pattern(data_seed, size * count)
    pieces = [b""] * count
    for index, place in enumerate(places):
        pieces[place] = source[index * size : (index + 1) * size]
    return hashlib.sha256(b"".join(pieces)).hexdigest()


def batch(node: Node, form: str, peer: str, local: Json, remote: Json, lengths: Json, memory: bool = False) -> Outcome:
    outcome = node.call(form, peer, local, remote, lengths, memory=memory)
    if "async" in form:
        assert outcome.raised is None and outcome.value > 0, outcome
        outcome = node.call("get_batch_transfer_status", [outcome.value])
    return outcome


def single_write_is_fine(pair: Pair, local: Region, remote: Region) -> None:
    outcome = pair.initiator.call("transfer_sync_write", pair.target.name, local.base, remote.base, 64)
    assert outcome.ok and outcome.seconds < 0.5, f"a small write right after the batch: {outcome}"


@pytest.mark.parametrize("form", [form for form in WRITES if form.startswith("batch")])
@pytest.mark.parametrize(("count", "size"), SHAPES)
def test_scattered_writes(pair: Pair, form: str, count: int, size: int) -> None:
    local, remote = pair.initiator.registered(count * size, seed=7), pair.target.registered(count * size)
    outcome = batch(
        pair.initiator,
        form,
        pair.target.name,
        steps(local.base, size, count),
        shuffled(5, remote.base, size, count),
        steps(size, 0, count),
    )
    assert outcome.ok, f"{outcome}\n{pair.initiator.log_tail()}"
    assert remote.digest() == scattered_digest(5, 7, size, count)
    single_write_is_fine(pair, local, remote)


@pytest.mark.parametrize("form", [form for form in READS if form.startswith("batch")])
@pytest.mark.parametrize(("count", "size"), [(2_500, 4_096), (30_000, 256)])
def test_scattered_reads(pair: Pair, form: str, count: int, size: int) -> None:
    local, remote = pair.initiator.registered(count * size), pair.target.registered(count * size, seed=7)
    outcome = batch(
        pair.initiator,
        form,
        pair.target.name,
        shuffled(5, local.base, size, count),
        steps(remote.base, size, count),
        steps(size, 0, count),
    )
    assert outcome.ok, f"{outcome}\n{pair.initiator.log_tail()}"
    assert local.digest() == scattered_digest(5, 7, size, count)
    single_write_is_fine(pair, local, remote)


@pytest.mark.parametrize("form", ["batch_transfer_sync_write", "batch_transfer_sync_read"])
def test_more_than_a_million_descriptors(nodes: Nodes, form: str) -> None:
    """The worst case of a serving stack; memory grows with what is in flight, not with the batch."""
    pair = Pair(*nodes.start_many(2, fresh=True))
    count, size = 1_300_000, 16
    writing = form.endswith("write")
    local = pair.initiator.registered(count * size, seed=3 if writing else None)
    remote = pair.target.registered(count * size, seed=None if writing else 3)
    before = pair.target.usage()
    outcome = batch(
        pair.initiator,
        form,
        pair.target.name,
        steps(local.base, size, count),
        steps(remote.base, size, count),
        steps(size, 0, count),
        memory=True,
    )
    assert outcome.ok, f"{outcome}\n{pair.initiator.log_tail()}"
    assert local.digest() == remote.digest() == hashlib.sha256(pattern(3, count * size)).hexdigest()
    assert outcome.more["grown_kib"] < 160 << 10, "the caller's side grew with the batch"
    assert pair.target.usage().rss_kib - before.rss_kib < 64 << 10, "the target grew with the batch"
    single_write_is_fine(pair, local, remote)


@pytest.mark.parametrize("form", ["batch_transfer_sync_write", "batch_transfer_async_read"])
def test_mixed_lengths_with_zeros_among_them(pair: Pair, form: str) -> None:
    lengths = [random.Random(4).choice([0, 1, 7, 64, 4_095, 4_096, 65_537]) for _ in range(3)] * 1_000
    offsets = [sum(lengths[:index]) for index in range(len(lengths))]
    total = sum(lengths)
    local = pair.initiator.registered(total + 1, seed=8)
    remote = pair.target.registered(total + 1, seed=9)
    outcome = pair.initiator.call(
        form,
        pair.target.name,
        [local.base + offset for offset in offsets],
        [remote.base + offset for offset in offsets],
        lengths,
    )
    if "async" in form:
        outcome = pair.initiator.call("get_batch_transfer_status", [outcome.value])
    assert outcome.ok, outcome
    assert local.digest(0, total) == remote.digest(0, total)
    assert local.read(total, 1) != remote.read(total, 1), "the byte behind the last one is untouched"


def test_one_bad_descriptor_in_a_large_batch(pair: Pair) -> None:
    """The whole call fails and says which one; the next legal batch is not disturbed."""
    count, size = 10_000, 256
    local, remote = pair.initiator.registered(count * size, seed=1), pair.target.registered(count * size)
    bad = {
        "join": [
            steps(remote.base, size, 7_531),
            steps(remote.end - 100, 0, 1),
            steps(remote.base, size, count - 7_532),
        ]
    }
    for form in ("batch_transfer_sync_write", "batch_transfer_sync_read"):
        outcome = pair.initiator.call(
            form, pair.target.name, steps(local.base, size, count), bad, steps(size, 0, count)
        )
        failed(pair.initiator, outcome, "descriptor 7531", pair.target.name, within=2)
        single_write_is_fine(pair, local, remote)
    local.fill(2)
    outcome = pair.initiator.call(
        "batch_transfer_sync_write",
        pair.target.name,
        steps(local.base, size, count),
        steps(remote.base, size, count),
        steps(size, 0, count),
    )
    assert outcome.ok and remote.digest() == local.digest()


def test_large_batches_from_several_threads(pair: Pair) -> None:
    count, size, threads = 5_000, 256, 4
    local = pair.initiator.registered(threads * count * size, seed=1)
    remote = pair.target.registered(threads * count * size)
    calls = [
        {
            "args": [
                pair.target.name,
                steps(local.at(n * count * size), size, count),
                steps(remote.at(n * count * size), size, count),
                steps(size, 0, count),
            ]
        }
        for n in range(threads)
    ]
    answer = pair.initiator.ask("threads", method="batch_transfer_sync_write", steps=calls, times=3)
    assert answer["values"] == {"0": 3 * threads}
    assert remote.digest() == local.digest()


def test_many_asynchronous_batches_at_once(pair: Pair) -> None:
    count, size = 300, 512
    local, remote = (
        pair.initiator.registered(40 * count * size, seed=1),
        pair.target.registered(40 * count * size),
    )
    batches = []
    for n in range(40):
        outcome = pair.initiator.call(
            "batch_transfer_async_write",
            pair.target.name,
            steps(local.at(n * count * size), size, count),
            steps(remote.at(n * count * size), size, count),
            steps(size, 0, count),
        )
        assert outcome.value > 0, outcome
        batches.append(outcome.value)
    assert pair.initiator.call("get_batch_transfer_status", batches).value == 0
    assert remote.digest() == local.digest()


def test_small_writes_stay_healthy_after_a_large_batch(pair: Pair) -> None:
    """One a second for 20 s: the damage of a rejected batch used to last minutes."""
    count, size = 10_000, 256
    local, remote = pair.initiator.registered(64 << 20, seed=1), pair.target.registered(64 << 20)
    outcome = pair.initiator.call(
        "batch_transfer_sync_write",
        pair.target.name,
        steps(local.base, size, count),
        steps(remote.base, size, count),
        steps(size, 0, count),
    )
    results = [outcome]
    for _ in range(20):
        results.append(
            pair.initiator.call("transfer_sync_write", pair.target.name, local.base, remote.at(32 << 20), 64)
        )
        time.sleep(1)
    assert [result.value for result in results] == [0] * 21
    assert max(result.seconds for result in results[1:]) < 0.5
    assert remote.digest(0, count * size) == local.digest(0, count * size)
    assert pair.initiator.call("send_probe", pair.target.name).value == 0


@pytest.mark.parametrize("form", ["batch_transfer_sync_write", "batch_transfer_sync_read"])
def test_more_than_four_gigabytes_in_one_call(pair: Pair, form: str) -> None:
    """No count of bytes has 32 bits, and no connection ends with them."""
    node, target = pair.initiator, pair.target
    size, count = 64 * MIB, 68
    local, remote = node.registered(size, seed=1), target.registered(size, seed=2)
    lists = steps(local.base, 0, count), steps(remote.base, 0, count), steps(size, 0, count)
    assert node.call(form, target.name, *lists, limit=60).ok
    assert remote.digest() == local.digest()
