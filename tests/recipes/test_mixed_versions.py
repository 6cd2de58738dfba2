"""Genuine Mooncake 0.3.11.post1, which can neither check an address nor acknowledge a write, on either end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ..interop.environments import Unavailable, genuine
from .nodes import Node, Nodes
from .support import failed, transfer

OLD = "0.3.11.post1"
KIB = 1 << 10
IMPATIENT = {"MC_TRANSFER_TIMEOUT": "5"}
OLD_POOL = IMPATIENT | {"MC_TCP_ENABLE_CONNECTION_POOL": "1"}
LEGAL_TRIES = 3

pytestmark = pytest.mark.timeout(600)  # the first run installs the old release


@pytest.fixture(scope="session")
def old_python() -> Path:
    """The interpreter that has the old release."""
    try:
        return genuine(OLD).python
    except Unavailable as error:
        pytest.skip(str(error))


def write_and_settle(old: Node, peer: str, local: int, remote: int, size: int) -> int:
    """The old release hands its write to the socket and reports at once; give the bytes time to go where they go."""
    outcome = transfer(old, "transfer_sync_write", peer, local, remote, size, limit=90)
    assert outcome.raised is None
    time.sleep(0.3)
    assert isinstance(outcome.value, int)
    return outcome.value


@pytest.mark.parametrize("env", [IMPATIENT, OLD_POOL], ids=["one connection a request", "pool"])
@pytest.mark.parametrize("size", [64, 1024 * KIB])
def test_an_old_initiator_is_served_and_cannot_touch_anything_else(
    nodes: Nodes, old_python: Path, env: dict[str, str], size: int
) -> None:
    target = nodes.start()
    old = nodes.start(python=str(old_python), env=env)
    local = old.registered(2 * size, seed=1)
    region, stranger = target.registered(2 * size, seed=2), target.region(2 * size, seed=3)
    assert write_and_settle(old, target.name, local.base, region.base, size) == 0
    assert region.digest(0, size) == local.digest(0, size)
    assert transfer(old, "transfer_sync_read", target.name, local.at(size), region.at(size), size).ok
    assert local.digest(size, size) == region.digest(size, size)

    before = region.digest(), stranger.digest()
    lines = len(target.log())
    write_and_settle(old, target.name, local.base, stranger.base, size)
    assert (region.digest(), stranger.digest()) == before, "what was never registered is untouched"
    told = target.log()[lines:]
    assert len(told) == 1, told
    assert "127.0.0.1" in told[0], "one line, and it names the peer"

    assert target.call("unregister_memory", region.base).ok
    write_and_settle(old, target.name, local.at(size), region.base, size)
    assert (region.digest(), stranger.digest()) == before, "what is no longer registered is untouched"
    assert target.alive()

    again = target.registered(2 * size, seed=4)
    # With a pool, the old release finds only now that its connection ended with the refusal, and reports that.
    tries = [write_and_settle(old, target.name, local.base, again.base, size) for _ in range(LEGAL_TRIES)]
    assert tries[-1] == 0 and (env == OLD_POOL or tries[0] == 0), tries
    assert again.digest(0, size) == local.digest(0, size), "and the next legal write is served"


def test_old_initiators_can_be_refused(nodes: Nodes, old_python: Path) -> None:
    target = nodes.start(env={"MOONRAIL_V1_CLIENTS": "refuse"})
    old = nodes.start(python=str(old_python), env=IMPATIENT)
    local, region = old.registered(64 * KIB, seed=1), target.registered(64 * KIB, seed=2)
    before = region.digest()
    for form in ("transfer_sync_write", "transfer_sync_read"):
        assert transfer(old, form, target.name, local.base, region.base, 4 * KIB, limit=90).value == -1
    time.sleep(0.3)
    assert region.digest() == before
    new = nodes.start()
    mine = new.registered(64 * KIB, seed=3)
    assert transfer(new, "transfer_sync_write", target.name, mine.base, region.base, 64 * KIB).ok
    assert region.digest() == mine.digest()


@pytest.mark.parametrize("env", [IMPATIENT, OLD_POOL], ids=["default", "pool"])
@pytest.mark.parametrize("form", ["transfer_sync_write", "batch_transfer_sync_write", "batch_transfer_async_write"])
def test_an_old_target_is_protected_by_us(nodes: Nodes, old_python: Path, env: dict[str, str], form: str) -> None:
    """It would overwrite whatever it is told to; so the range is checked against what it publishes."""
    initiator = nodes.start()
    old = nodes.start(python=str(old_python), env=env)
    size = 64 * KIB
    local = initiator.registered(size, seed=1)
    region, stranger = old.registered(size, seed=2), old.region(size, seed=3)
    assert transfer(initiator, form, old.name, local.base, region.base, size).ok
    assert region.digest() == local.digest(), "0 means applied"

    before = region.digest(), stranger.digest()
    failed(initiator, transfer(initiator, form, old.name, local.base, stranger.base, 4 * KIB), old.name)
    failed(initiator, transfer(initiator, form, old.name, local.base, region.end - 100, 4 * KIB), old.name)
    time.sleep(0.2)
    assert (region.digest(), stranger.digest()) == before, "what was never registered is untouched"

    assert old.call("unregister_memory", region.base).ok
    local.fill(9)
    failed(initiator, transfer(initiator, form, old.name, local.base, region.base, 4 * KIB), old.name)
    time.sleep(0.2)
    assert (region.digest(), stranger.digest()) == before, "what is no longer registered is untouched"

    assert old.call("register_memory", stranger.base, size).ok
    assert transfer(initiator, form, old.name, local.base, stranger.base, size).ok, "registered since: fetched anew"
    assert stranger.digest() == local.digest()


def test_many_small_writes_to_an_old_target_are_confirmed(nodes: Nodes, old_python: Path) -> None:
    initiator = nodes.start()
    old = nodes.start(python=str(old_python), env=IMPATIENT)
    count, size = 500, 4 * KIB
    local, region = initiator.registered(count * size, seed=1), old.registered(count * size)
    outcome = initiator.call(
        "batch_transfer_sync_write",
        old.name,
        {"range": [local.base, size, count]},
        {"shuffled": [3, region.base, size, count]},
        {"range": [size, 0, count]},
    )
    assert outcome.ok, f"{outcome}\n{initiator.log_tail()}"
    back = initiator.registered(count * size)
    assert transfer(initiator, "transfer_sync_read", old.name, back.base, region.base, count * size).ok
    assert back.digest() == region.digest()
    assert initiator.call("send_probe", old.name).value == 0


def test_an_old_target_that_dies(nodes: Nodes, old_python: Path) -> None:
    initiator = nodes.start()
    old = nodes.start(python=str(old_python), env=IMPATIENT)
    size = 16 << 20
    local, region = initiator.registered(size, seed=1), old.registered(size)
    peer = old.name
    assert transfer(initiator, "transfer_sync_write", peer, local.base, region.base, size).ok
    token = initiator.start("batch_transfer_sync_write", peer, [local.base] * 60, [region.base] * 60, [size] * 60)
    time.sleep(0.05)
    old.kill()
    failed(initiator, initiator.finish(token, 10), peer, within=5)
    failed(initiator, transfer(initiator, "transfer_sync_write", peer, local.base, region.base, 64), peer)
