"""A peer that is killed, restarted or replaced: bounded errors, and the first call after it is back works."""

from __future__ import annotations

import signal
import time

import pytest

from .fixtures import Pair
from .nodes import Nodes
from .sockets import free_port
from .support import FORMS, failed, steps, transfer

MIB = 1 << 20


@pytest.mark.parametrize("form", FORMS)
def test_a_killed_peer(pair: Pair, form: str) -> None:
    node, peer = pair.initiator, pair.target.name
    local, remote = node.registered(16 * MIB, seed=1), pair.target.registered(16 * MIB)
    assert transfer(node, form, peer, local.base, remote.base, 16 * MIB).ok
    pair.target.kill()
    before = node.usage()
    for _ in range(4):
        outcome = transfer(node, form, peer, local.base, remote.base, 16 * MIB)
        failed(node, outcome, peer, within=1)
    failed(node, node.call("send_probe", peer), peer, within=1)
    after = node.usage()
    # One more thread to look the peer up and one for the batch, both gone when they have been idle for a while.
    assert after.files <= before.files and after.threads <= before.threads + 2
    assert after.rss_kib - before.rss_kib < 16 << 10


@pytest.mark.parametrize("form", ["batch_transfer_sync_write", "batch_transfer_sync_read"])
def test_a_peer_killed_under_a_batch(nodes: Nodes, form: str) -> None:
    initiator, victim, other = nodes.start_many(3)
    size, count = 64 * MIB, 80
    local, remote = initiator.registered(size, seed=1), victim.registered(size, seed=2)
    spare = other.registered(size)
    peer = victim.name
    lists = steps(local.base, 0, count), steps(remote.base, 0, count), steps(size, 0, count)
    token = initiator.start(form, peer, *lists)
    time.sleep(0.05)
    victim.kill()
    killed = time.monotonic()
    outcome = initiator.finish(token, 10)
    assert time.monotonic() - killed < 2
    failed(initiator, outcome, peer, within=10)
    assert transfer(initiator, "transfer_sync_write", other.name, local.base, spare.base, size).ok
    assert spare.digest() == local.digest()


def test_asynchronous_batches_of_a_killed_peer_all_end(pair: Pair) -> None:
    size = 64 * MIB
    local, remote = pair.initiator.registered(size, seed=1), pair.target.registered(size)
    submitted = [
        pair.initiator.call(
            "batch_transfer_async_write", pair.target.name, [local.base] * 8, [remote.base] * 8, [size] * 8
        ).value
        for _ in range(4)
    ]
    pair.target.kill()
    start = time.monotonic()
    results = [pair.initiator.ask("poll", id=batch, limit=10)["value"] for batch in submitted if batch]
    assert time.monotonic() - start < 2
    assert set(results) <= {1, -1} and -1 in results


@pytest.mark.parametrize("form", ["transfer_sync_write", "transfer_sync_read"])
def test_a_killed_initiator_does_not_hurt_its_target(nodes: Nodes, form: str) -> None:
    victim, other, target = nodes.start_many(3)
    size = 64 * MIB
    remote, spare = target.registered(size, seed=2), target.registered(MIB)
    local, mine = victim.registered(size, seed=1), other.registered(MIB, seed=3)
    name = target.name
    for _ in range(3):
        victim.start(form, name, local.base, remote.base, size)
    time.sleep(0.03)
    victim.kill()
    outcome = transfer(other, "transfer_sync_write", name, mine.base, spare.base, MIB)
    assert outcome.ok and outcome.seconds < 1
    assert spare.digest() == mine.digest()
    gone = target.call("unregister_memory", remote.base)
    assert gone.ok and gone.seconds < 2, "a dead initiator cannot keep a region"


def test_a_restarted_peer_has_new_addresses(nodes: Nodes) -> None:
    """The new process serves its own memory; an address of the old one never lands in foreign memory."""
    initiator, old = nodes.start_many(2)
    local = initiator.registered(MIB, seed=1)
    # Two processes may map alike: the old one's region is put where the new one will have none.
    for _ in range(8):
        old.region(3 * MIB)
    before = old.registered(MIB)
    assert transfer(initiator, "transfer_sync_write", old.name, local.base, before.base, MIB).ok
    old.kill()
    new = nodes.start()
    foreign = new.region(8 * MIB, seed=5)
    after = new.registered(MIB, seed=6)
    while after.base <= before.base < after.end or before.base <= after.base < before.end:
        after = new.registered(MIB, seed=6)
    untouched = foreign.digest(), after.digest()
    failed(
        initiator,
        transfer(initiator, "transfer_sync_write", new.name, local.base, before.base, 4096),
        new.name,
    )
    assert (foreign.digest(), after.digest()) == untouched
    assert transfer(initiator, "transfer_sync_write", new.name, local.base, after.base, MIB).ok
    assert after.digest() == local.digest()


@pytest.mark.parametrize("form", FORMS)
def test_a_peer_restarted_under_the_same_name(nodes: Nodes, form: str) -> None:
    """Noticed by itself: the first call after it is back works, with no other call between."""
    initiator = nodes.start()
    address = f"127.0.0.1:{free_port()}"
    local = initiator.registered(MIB, seed=1)
    for generation in range(3):
        target = nodes.start(address)
        assert target.name == address
        # A different number of allocations first, so that addresses differ between the generations.
        for _ in range(generation):
            target.region(5 * MIB)
        remote = target.registered(MIB, seed=20 + generation)
        outcome = transfer(initiator, form, address, local.base, remote.base, MIB)
        assert outcome.ok, f"generation {generation}: {outcome}\n{initiator.log_tail()}"
        assert local.digest() == remote.digest()
        assert initiator.call("send_probe", address).value == 0
        target.kill()


@pytest.mark.parametrize("form", FORMS)
def test_regions_of_a_restarted_peer_are_not_assumed(nodes: Nodes, form: str) -> None:
    initiator = nodes.start()
    address = f"127.0.0.1:{free_port()}"
    local = initiator.registered(MIB, seed=1)
    old = nodes.start(address)
    remote = old.registered(MIB)
    assert transfer(initiator, "transfer_sync_write", address, local.base, remote.base, MIB).ok
    old.kill()
    nodes.start(address)
    failed(initiator, transfer(initiator, form, address, local.base, remote.base, 4096), address)


def test_a_peer_that_was_down_and_comes(nodes: Nodes) -> None:
    initiator = nodes.start()
    address = f"127.0.0.1:{free_port()}"
    local = initiator.registered(MIB, seed=1)
    for _ in range(20):
        failed(
            initiator,
            transfer(initiator, "transfer_sync_write", address, local.base, local.base, 64),
            address,
            within=0.1,
        )
    target = nodes.start(address)
    remote = target.registered(MIB)
    outcome = transfer(initiator, "transfer_sync_write", address, local.base, remote.base, MIB)
    assert outcome.ok and outcome.seconds < 0.5, "no cool-down is left from the failed tries"


def test_other_peers_do_not_wait_for_a_dead_one(nodes: Nodes) -> None:
    initiator, dead, alive = nodes.start_many(3)
    local, remote = initiator.registered(MIB, seed=1), alive.registered(MIB)
    gone = dead.name
    dead.kill()
    calls = [
        {"args": [gone, local.base, remote.base, 4096]},
        {"args": [alive.name, local.base, remote.base, 4096]},
    ]
    answer = initiator.ask("repeat", method="transfer_sync_write", steps=calls, times=20)
    assert answer["values"] == [{"-1": 20}, {"0": 20}]
    assert answer["seconds"] < 3


def test_a_stopped_peer_that_goes_on_later(nodes: Nodes) -> None:
    """Stopped, not dead: bounded by the default of 5 s, and healthy once it runs again. Over TCP, which needs its help."""
    node, target = nodes.start(), nodes.start(env={"MOONRAIL_PATHS": "tcp"})
    local, remote = node.registered(MIB, seed=1), target.registered(MIB)
    peer = target.name
    assert transfer(node, "transfer_sync_write", peer, local.base, remote.base, MIB).ok
    target.signal(signal.SIGSTOP)
    try:
        outcome = transfer(node, "transfer_sync_read", peer, local.base, remote.base, 4096)
        failed(node, outcome, peer, within=7)
    finally:
        target.signal(signal.SIGCONT)
    outcome = transfer(node, "transfer_sync_write", peer, local.base, remote.base, MIB)
    assert outcome.ok and outcome.seconds < 1
    assert remote.digest() == local.digest()
