"""Ranges outside registered memory, on either side: refused, untouched, explained, and without after-effects."""

from __future__ import annotations

import statistics

import pytest

from .fixtures import Pair
from .nodes import Region
from .support import FORMS, READS, WRITES, failed, number, steps, transfer

KIB = 1 << 10
REMOTE_CASES = [
    "unregistered",
    "over the end",
    "over the start",
    "two regions",
    "wraps",
    "null",
    "top of memory",
]


def remote_range(case: str, region: Region, neighbour: Region, stranger: Region) -> tuple[int, int]:
    return {
        "unregistered": (stranger.at(8 * KIB), 4 * KIB),
        "over the end": (region.end - 100, 4 * KIB),
        "over the start": (region.base - 100, 4 * KIB),
        "two regions": (neighbour.at(32 * KIB - 64), 128),
        "wraps": ((1 << 64) - 16, 4 * KIB),
        "null": (0, 4 * KIB),
        "top of memory": ((1 << 47) - 4 * KIB, 4 * KIB),
    }[case]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", REMOTE_CASES)
def test_remote_ranges_that_are_not_registered(pair: Pair, form: str, case: str) -> None:
    node, target = pair.initiator, pair.target
    local = node.registered(64 * KIB, seed=1)
    region, neighbour, stranger = (
        target.registered(64 * KIB, seed=2),
        target.region(64 * KIB, seed=3),
        target.region(64 * KIB, seed=4),
    )
    for offset in (0, 32 * KIB):  # two registrations that touch
        assert target.call("register_memory", neighbour.at(offset), 32 * KIB).ok
    before = [part.digest() for part in (local, region, neighbour, stranger)]
    address, size = remote_range(case, region, neighbour, stranger)
    outcome = transfer(node, form, target.name, local.base, address, size)
    failed(node, outcome, target.name, number(address), number(size))
    assert [part.digest() for part in (local, region, neighbour, stranger)] == before
    good = transfer(node, form, target.name, local.base, region.base, 4 * KIB)
    assert good.ok and good.seconds < 0.5
    assert region.digest(0, 4 * KIB) == local.digest(0, 4 * KIB)


@pytest.mark.parametrize("size", [1, 4 * KIB, 1 << 20, 48 << 20])
@pytest.mark.parametrize("form", ["transfer_sync_write", "transfer_sync_read"])
def test_a_refusal_of_any_size(pair: Pair, form: str, size: int) -> None:
    node, target = pair.initiator, pair.target
    local, region = node.registered(max(size, 4 * KIB), seed=1), target.registered(max(size, 4 * KIB), seed=2)
    before = local.digest(), region.digest()
    failed(
        node,
        transfer(node, form, target.name, local.base, region.end - size + 1, size),
        number(size),
        within=2,
    )
    assert (local.digest(), region.digest()) == before
    assert transfer(node, form, target.name, local.base, region.base, size).ok
    assert local.digest(0, size) == region.digest(0, size)


@pytest.mark.parametrize("form", ["batch_transfer_sync_write", "batch_transfer_sync_read"])
@pytest.mark.parametrize("position", [0, 3, 7])
def test_one_bad_entry_of_a_batch_is_named(pair: Pair, form: str, position: int) -> None:
    node, target = pair.initiator, pair.target
    local, region, stranger = (
        node.registered(8 * KIB, seed=1),
        target.registered(8 * KIB, seed=2),
        target.region(KIB, seed=3),
    )
    before = stranger.digest()
    remote = [region.base + n * KIB for n in range(8)]
    remote[position] = stranger.base
    outcome = node.call(form, target.name, steps(local.base, KIB, 8), remote, steps(KIB, 0, 8))
    failed(node, outcome, target.name, number(stranger.base), f"descriptor {position}")
    assert stranger.digest() == before


def test_the_last_and_the_first_byte_are_inside(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, region = node.registered(4 * KIB, seed=1, skew=3), target.registered(4 * KIB, seed=2, skew=5)
    for form in FORMS:
        for offset, size in ((0, 1), (4 * KIB - 1, 1), (0, 4 * KIB), (1, 4 * KIB - 2)):
            assert transfer(node, form, target.name, local.at(offset), region.at(offset), size).ok
            assert local.digest(offset, size) == region.digest(offset, size)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_always_allowed(pair: Pair, form: str) -> None:
    local, region = pair.initiator.registered(KIB, seed=1), pair.target.registered(KIB, seed=2)
    before = local.digest(), region.digest()
    assert transfer(pair.initiator, form, pair.target.name, local.base, region.base, 0).ok
    assert (local.digest(), region.digest()) == before


@pytest.mark.parametrize("bad", ["transfer_sync_write", "batch_transfer_sync_write", "transfer_sync_read"])
def test_a_refused_request_does_not_disturb_the_next(pair: Pair, bad: str) -> None:
    node, target = pair.initiator, pair.target
    local, region = node.registered(64 * KIB, seed=1), target.registered(64 * KIB)
    times = []
    for _ in range(12):
        assert transfer(node, bad, target.name, local.base, 0, 4 * KIB).value == -1
        for _ in range(3):
            outcome = transfer(node, "transfer_sync_write", target.name, local.base, region.base, 4 * KIB)
            assert outcome.ok, outcome
            times.append(outcome.seconds)
    assert statistics.median(times) < 0.05
    assert max(times) < 0.5, "a busy machine may delay one, but there is no pause of a second"


def test_refused_and_legal_requests_at_the_same_time(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, region = node.registered(256 * KIB, seed=1), target.registered(256 * KIB)
    calls = [
        {"args": [target.name, local.at(n * 64 * KIB), region.at(n * 64 * KIB) if n % 2 else 4096, 64 * KIB]}
        for n in range(4)
    ]
    answer = node.ask("threads", method="transfer_sync_write", steps=calls, times=40)
    assert answer["values"] == {"0": 80, "-1": 80}
    for n in (1, 3):
        assert region.digest(n * 64 * KIB, 64 * KIB) == local.digest(n * 64 * KIB, 64 * KIB)
    for n in (0, 2):
        assert region.read(n * 64 * KIB, 64 * KIB) == bytes(64 * KIB)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ["never registered", "over the end", "no longer registered", "null", "unmapped"])
def test_local_ranges_that_are_not_registered(pair: Pair, form: str, case: str) -> None:
    """One rule for every path: the local side must lie in registered memory."""
    node, target = pair.initiator, pair.target
    mine, stranger = node.registered(8 * KIB, seed=1), node.region(8 * KIB, seed=2)
    region = target.registered(8 * KIB, seed=3)
    if case == "no longer registered":
        assert node.call("unregister_memory", mine.base).ok
    address = {
        "never registered": stranger.base,
        "over the end": mine.end - 100,
        "no longer registered": mine.base,
        "null": 0,
        "unmapped": 0,
    }[case] or (node.unmapped(8 * KIB) if case == "unmapped" else 0)
    before = [part.digest() for part in (mine, stranger, region)]
    outcome = transfer(node, form, target.name, address, region.base, 4 * KIB)
    failed(node, outcome, number(address), number(4 * KIB), "local")
    assert [part.digest() for part in (mine, stranger, region)] == before


@pytest.mark.parametrize("form", ["transfer_sync_write", "transfer_sync_read"])
def test_a_registered_range_that_is_not_mapped(pair: Pair, form: str) -> None:
    """Registration cannot see it; the transfer fails, and neither process is hurt."""
    node, target = pair.initiator, pair.target
    local, region = node.registered(64 * KIB, seed=1), target.registered(64 * KIB, seed=2)
    for holder, own in ((node, True), (target, False)):
        hole = holder.unmapped(64 * KIB)
        if not holder.call("register_memory", hole, 64 * KIB).ok:
            continue  # refusing it at registration is right as well
        arguments = (hole, region.base) if own else (local.base, hole)
        failed(node, transfer(node, form, target.name, *arguments, 64 * KIB), target.name, within=6)
        assert node.alive() and target.alive()
        assert holder.call("unregister_memory", hole).ok
    assert transfer(node, "transfer_sync_write", target.name, local.base, region.base, 64 * KIB).ok
    assert region.digest() == local.digest()


@pytest.mark.parametrize("form", WRITES[:2] + READS[:2])
def test_loopback_follows_the_same_rules(pair: Pair, form: str) -> None:
    node = pair.initiator
    first, second, stranger = (
        node.registered(64 * KIB, seed=1),
        node.registered(64 * KIB, seed=2),
        node.region(64 * KIB, seed=3),
    )
    assert transfer(node, form, node.name, first.base, second.base, 64 * KIB).ok
    assert first.digest() == second.digest()
    before = stranger.digest()
    failed(node, transfer(node, form, node.name, first.base, stranger.base, 4 * KIB), number(stranger.base))
    failed(node, transfer(node, form, node.name, stranger.base, first.base, 4 * KIB), number(stranger.base))
    assert stranger.digest() == before
