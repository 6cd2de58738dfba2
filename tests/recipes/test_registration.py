"""Registration: overlaps, nonsense, all-or-none batches, and unregistering as a fence."""

from __future__ import annotations

import hashlib
import time

import pytest

from .driver import pattern
from .fixtures import Pair
from .nodes import Nodes
from .support import FORMS, READS, WRITES, failed, number, steps, transfer

KIB = 1 << 10
OVERLAP = -7
UNKNOWN = -3


def test_the_same_region_twice(nodes: Nodes) -> None:
    node = nodes.start()
    region = node.registered(64 * KIB)
    again = node.call("register_memory", region.base, 64 * KIB)
    assert again.value == OVERLAP
    failed(node, again, number(region.base), ["overlap", "already"])
    failed(node, node.call("batch_register_memory", [region.base], [64 * KIB]), number(region.base))
    assert node.call("unregister_memory", region.base).ok, "it was registered once"
    assert node.call("unregister_memory", region.base).value == UNKNOWN


@pytest.mark.parametrize(
    ("offset", "size"),
    [
        (100, 1000),
        (-100, 101),
        (64 * KIB - 1, 10),
        (-100, 65 * KIB),
        (0, 1),
        (64 * KIB - 1, 1),
        (1, 64 * KIB),
    ],
)
def test_overlaps(nodes: Nodes, offset: int, size: int) -> None:
    node = nodes.start()
    outer = node.region(256 * KIB)
    base = outer.at(128 * KIB)
    assert node.call("register_memory", base, 64 * KIB).ok
    for outcome in (
        node.call("register_memory", base + offset, size),
        node.call("batch_register_memory", [outer.base, base + offset], [KIB, size]),
    ):
        assert outcome.value == OVERLAP
        failed(node, outcome, number(base + offset))
    assert node.call("unregister_memory", outer.base).value == UNKNOWN


def test_regions_that_touch(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    outer = target.region(8 * KIB, seed=1)
    assert target.call("batch_register_memory", steps(outer.base, KIB, 4), steps(KIB, 0, 4)).ok
    for n in (7, 5, 4, 6):
        assert target.call("register_memory", outer.at(n * KIB), KIB).ok
    local = node.registered(KIB)
    for n in range(8):
        assert transfer(node, "transfer_sync_read", target.name, local.base, outer.at(n * KIB), KIB).ok
        assert local.digest() == outer.digest(n * KIB, KIB)
    assert target.call("unregister_memory", outer.at(3 * KIB)).ok
    for n in (2, 4):
        assert transfer(node, "transfer_sync_read", target.name, local.base, outer.at(n * KIB), KIB).ok
    failed(node, transfer(node, "transfer_sync_read", target.name, local.base, outer.at(3 * KIB), KIB))


@pytest.mark.parametrize(
    ("base", "size", "needle"),
    [
        (0, 4096, "null"),
        (4096, 0, ["zero", "empty", "length 0"]),
        ((1 << 64) - 4096, 8192, ["wrap", "overflow", "address space"]),
        ((1 << 64) - 1, 1 << 63, ["wrap", "overflow", "address space"]),
    ],
)
def test_nonsense_is_refused(nodes: Nodes, base: int, size: int, needle: str | list[str]) -> None:
    node = nodes.start()
    good = node.region(4096)
    failed(node, node.call("register_memory", base, size), needle)
    failed(node, node.call("batch_register_memory", [good.base, base], [4096, size]), needle)
    assert node.call("unregister_memory", good.base).value == UNKNOWN, "a refused batch registers nothing"
    other = nodes.start()
    local = other.registered(4096, seed=1)
    assert node.call("register_memory", good.base, 4096).ok
    assert transfer(other, "transfer_sync_write", node.name, local.base, good.base, 4096).ok, (
        "what it publishes is sound"
    )


def test_the_kinds_of_refusal_differ(nodes: Nodes) -> None:
    node = nodes.start()
    region = node.registered(64 * KIB)
    texts = [
        failed(node, node.call("register_memory", region.at(100), 1000)),
        failed(node, node.call("register_memory", 0, 4096)),
        failed(node, node.call("register_memory", region.end, 0)),
        failed(node, node.call("batch_register_memory", [region.end], [])),
        failed(node, node.call("unregister_memory", region.at(100))),
    ]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("offset", [1, -1, 4095, 4096])
def test_unregister_wants_the_exact_start(nodes: Nodes, offset: int) -> None:
    node = nodes.start()
    region = node.registered(4096)
    outcome = node.call("unregister_memory", region.base + offset)
    assert outcome.value == UNKNOWN
    failed(node, outcome, number(region.base + offset))
    assert node.call("batch_unregister_memory", [region.base + offset]).value == UNKNOWN
    assert node.call("unregister_memory", region.base).ok


def test_batch_unregister_goes_on_after_an_unknown_one(nodes: Nodes) -> None:
    node = nodes.start()
    regions = [node.registered(4096) for _ in range(3)]
    addresses = [regions[0].base, 12345, regions[1].base, regions[2].base]
    failed(node, node.call("batch_unregister_memory", addresses), number(12345))
    assert [node.call("unregister_memory", region.base).value for region in regions] == [UNKNOWN] * 3
    assert node.call("batch_register_memory", [region.base for region in regions], [4096] * 3).ok
    assert node.call("batch_unregister_memory", []).value == 0
    assert node.call("batch_register_memory", [], []).value == 0


@pytest.mark.parametrize("form", FORMS)
def test_no_transfer_after_unregistering(pair: Pair, form: str) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(64 * KIB, seed=1), target.registered(64 * KIB, seed=2)
    assert transfer(node, form, target.name, local.base, remote.base, 64 * KIB).ok
    assert target.call("unregister_memory", remote.base).ok
    local.fill(5)
    remote.fill(6)
    before = local.digest(), remote.digest()
    failed(node, transfer(node, form, target.name, local.base, remote.base, 64 * KIB), number(remote.base))
    assert (local.digest(), remote.digest()) == before
    assert target.call("register_memory", remote.base, 64 * KIB).ok
    outcome = transfer(node, form, target.name, local.base, remote.base, 64 * KIB)
    assert outcome.ok, "registered again, it is usable at once"
    assert local.digest() == remote.digest()


@pytest.mark.parametrize("form", [*WRITES[:3], *READS])
def test_unregister_is_a_fence_for_the_target(pair: Pair, form: str) -> None:
    """With transfers under way: once unregister has returned, no byte of the region is touched any more."""
    node, target = pair.initiator, pair.target
    size = 32 << 20
    local, remote = node.registered(size, seed=1), target.registered(size, seed=2)
    arguments = (
        (target.name, local.base, remote.base, size)
        if form.startswith("transfer")
        else (target.name, [local.base] * 8, [remote.base] * 8, [size] * 8)
    )
    token = node.start(form, *arguments)
    time.sleep(0.004)
    gone = target.call("unregister_memory", remote.base)
    assert gone.ok and gone.seconds < 5
    remote.fill(3)
    outcome = node.finish(token)
    if "async" in form and outcome.value:
        node.call("get_batch_transfer_status", [outcome.value])
    time.sleep(0.2)
    assert remote.digest() == hashlib.sha256(pattern(3, size)).hexdigest()
    failed(node, transfer(node, WRITES[0], target.name, local.base, remote.base, 64))


@pytest.mark.parametrize("form", ["batch_transfer_sync_read", "batch_transfer_async_read"])
def test_unregister_is_a_fence_for_the_initiator(pair: Pair, form: str) -> None:
    """The local side of a read is memory that peers' bytes go to as well."""
    node, target = pair.initiator, pair.target
    size = 32 << 20
    local, remote = node.registered(size, seed=1), target.registered(size, seed=2)
    token = node.start(form, target.name, [local.base] * 8, [remote.base] * 8, [size] * 8)
    time.sleep(0.004)
    gone = node.call("unregister_memory", local.base)
    assert gone.raised is None and gone.seconds < 10
    if gone.ok:
        local.fill(3)
    outcome = node.finish(token)
    if "async" in form and outcome.value:
        node.call("get_batch_transfer_status", [outcome.value])
    time.sleep(0.2)
    if gone.ok:
        assert local.digest() == hashlib.sha256(pattern(3, size)).hexdigest()
    else:
        assert node.call("unregister_memory", local.base).value in (0, UNKNOWN)


def test_a_region_registered_after_the_first_contact(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, first = node.registered(64 * KIB, seed=1), target.registered(64 * KIB)
    assert transfer(node, WRITES[0], target.name, local.base, first.base, 64 * KIB).ok
    for _ in range(10):
        later = target.registered(64 * KIB)
        assert transfer(node, WRITES[0], target.name, local.base, later.base, 64 * KIB).ok
        assert later.digest() == local.digest()


def test_many_regions(pair: Pair) -> None:
    """Thousands of small ones, in one call and one by one, found by peers that come before and after."""
    node, target = pair.initiator, pair.target
    count = 12_000
    outer, local = target.region(2 * count * 64, seed=1), node.registered(64)
    batch = target.call("batch_register_memory", steps(outer.base, 128, count), steps(64, 0, count))
    assert batch.ok and batch.seconds < 2
    assert transfer(node, READS[0], target.name, local.base, outer.at(128 * (count - 1)), 64).ok
    assert local.digest() == outer.digest(128 * (count - 1), 64)
    single = target.ask(
        "repeat",
        method="register_memory",
        steps=[{"args": [outer.at(64 + 128 * n), 64]} for n in range(2_000)],
        times=1,
    )
    assert single["seconds"] < 3
    assert all(values == {"0": 1} for values in single["values"])
    assert transfer(node, READS[0], target.name, local.base, outer.at(64 + 128 * 1_999), 64).ok
    assert local.digest() == outer.digest(64 + 128 * 1_999, 64)
    gone = target.call("batch_unregister_memory", steps(outer.base, 128, count))
    assert gone.ok and gone.seconds < 5


def test_registering_does_not_hold_up_a_transfer(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(1 << 20, seed=1), target.registered(1 << 20)
    outer = target.region(2_000 * 64)
    peer = target.name
    register = [{"method": "register_memory", "args": [outer.at(64 * n), 64]} for n in range(2_000)]
    target.send("repeat", method="register_memory", steps=register, times=1)
    for _ in range(20):
        outcome = transfer(node, WRITES[0], peer, local.base, remote.base, 1 << 20)
        assert outcome.ok and outcome.seconds < 1
    assert all(values == {"0": 1} for values in target.receive()["values"])
    assert remote.digest() == local.digest()
