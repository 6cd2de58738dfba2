"""Calls in the wrong order, with wrong handles or with wrong arguments: an error, never a crash."""

from __future__ import annotations

from typing import Any

import pytest

from .fixtures import Pair
from .nodes import Nodes
from .sockets import free_port
from .support import WRITES, failed, no_id, notify, opcode, transfer

PEER = "127.0.0.1:1"
INITIALISE = ["initialis", "initializ"]

NEGATIVE_BEFORE_INITIALIZE: list[tuple[str, list[Any]]] = [
    ("register_memory", [4096]),
    ("unregister_memory", []),
    ("batch_register_memory", [[4096]]),
    ("batch_unregister_memory", []),
    ("transfer_sync_write", [PEER]),
    ("transfer_sync_read", [PEER]),
    ("batch_transfer_sync_write", [PEER]),
    ("batch_transfer_sync_read", [PEER]),
    ("send_probe", [PEER]),
]

ZERO_BEFORE_INITIALIZE: list[tuple[str, list[Any]]] = [
    ("batch_transfer_async_write", [PEER]),
    ("batch_transfer_async_read", [PEER]),
    ("transfer_submit_write", [PEER]),
    ("allocate_managed_buffer", []),
    ("get_first_buffer_address", [PEER]),
]


def arguments(method: str, base: int) -> list[Any]:
    """Reasonable arguments for a call that cannot succeed for want of an engine."""
    if method == "register_memory":
        return [base, 4096]
    if method == "unregister_memory":
        return [base]
    if method == "batch_register_memory":
        return [[base], [4096]]
    if method == "batch_unregister_memory":
        return [[base]]
    if method in ("send_probe", "get_first_buffer_address"):
        return [PEER]
    if method == "allocate_managed_buffer":
        return [4096]
    if method.startswith("batch_"):
        return [PEER, [base], [base], [10]]
    return [PEER, base, base, 10]


@pytest.mark.parametrize("method", [method for method, _ in NEGATIVE_BEFORE_INITIALIZE])
def test_use_before_initialize(nodes: Nodes, method: str) -> None:
    node = nodes.spawn()
    node.create()
    region = node.region(4096)
    failed(node, node.call(method, *arguments(method, region.base)), INITIALISE)
    assert node.initialize().ok, "the object is usable afterwards"


@pytest.mark.parametrize("method", [method for method, _ in ZERO_BEFORE_INITIALIZE])
def test_identifiers_before_initialize_are_zero(nodes: Nodes, method: str) -> None:
    node = nodes.spawn()
    node.create()
    region = node.region(4096)
    no_id(node, node.call(method, *arguments(method, region.base)), INITIALISE)


def test_everything_else_before_initialize(nodes: Nodes) -> None:
    node = nodes.spawn()
    node.create()
    base = node.region(4096, seed=3).base
    failed(node, node.call("transfer_sync", PEER, base, base, 10, opcode("Write")), INITIALISE)
    failed(node, node.call("batch_transfer_sync", PEER, [base], [base], [10], opcode("Read")), INITIALISE)
    failed(node, node.call("transfer_sync", PEER, 0, 0, 0, opcode("Write"), notify("a", "b")), INITIALISE)
    failed(node, node.call("get_batch_transfer_status", [1]))
    failed(node, node.call("transfer_check_status", 1))
    assert node.call("get_rpc_port").value in (0, -1)
    assert node.call("get_notifies").value == []
    assert node.call("get_engine").value is None
    assert node.call("get_engine_ptr").value == 0
    assert isinstance(node.call("get_local_topology").value, str)


def test_use_after_a_failed_initialize(nodes: Nodes) -> None:
    node = nodes.spawn()
    assert node.initialize(protocol="no-such-protocol").value == -1
    base = node.region(4096).base
    failed(node, node.call("register_memory", base, 4096), INITIALISE)
    failed(node, node.call("transfer_sync_write", PEER, base, base, 10), INITIALISE)
    assert node.call("get_rpc_port").value in (0, -1)
    assert node.call("initialize", "127.0.0.1", "P2PHANDSHAKE", "tcp", "").ok


def test_a_batch_is_collected_once(pair: Pair) -> None:
    local, remote = pair.initiator.registered(1 << 20, seed=1), pair.target.registered(1 << 20)
    batch = pair.initiator.call(
        "batch_transfer_async_write", pair.target.name, [local.base], [remote.base], [local.size]
    ).value
    assert batch > 0
    assert pair.initiator.call("get_batch_transfer_status", [batch]).value == 0
    assert remote.digest() == local.digest()
    failed(pair.initiator, pair.initiator.call("get_batch_transfer_status", [batch]))
    assert transfer(pair.initiator, "transfer_sync_write", pair.target.name, local.base, remote.base, 64).ok


def test_a_finished_batch_keeps_its_answer(pair: Pair) -> None:
    """One that polls may ask again: the same terminal value, never a renewed "in progress"."""
    local, remote = pair.initiator.registered(1 << 20, seed=1), pair.target.registered(1 << 20)
    good = pair.initiator.call(
        "batch_transfer_async_write", pair.target.name, [local.base], [remote.base], [local.size]
    ).value
    assert pair.initiator.ask("poll", id=good, limit=10)["value"] == 1
    assert [pair.initiator.call("transfer_check_status", good).value for _ in range(3)] == [1, 1, 1]
    bad = pair.initiator.call("batch_transfer_async_write", pair.target.name, [local.base], [remote.end], [4096]).value
    if bad != 0:  # it may also be refused at once
        assert pair.initiator.ask("poll", id=bad, limit=10)["value"] == -1
        assert [pair.initiator.call("transfer_check_status", bad).value for _ in range(3)] == [-1, -1, -1]


@pytest.mark.parametrize("identifier", [0, 1, 12345, 1 << 47, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_unknown_batch_identifiers(pair: Pair, identifier: int) -> None:
    node = pair.initiator
    failed(node, node.call("get_batch_transfer_status", [identifier]))
    failed(node, node.call("transfer_check_status", identifier))


def test_a_list_of_identifiers(pair: Pair) -> None:
    node = pair.initiator
    local, remote = node.registered(1 << 16, seed=1), pair.target.registered(1 << 16)

    def submit() -> int:
        value = node.call("batch_transfer_async_write", pair.target.name, [local.base], [remote.base], [1 << 16]).value
        assert isinstance(value, int) and value > 0
        return value

    assert node.call("get_batch_transfer_status", []).value == 0
    batch = submit()
    assert node.call("get_batch_transfer_status", [batch, batch]).value == 0, "the same one twice in one list is fine"
    batches = [submit() for _ in range(20)]
    assert len(set(batches)) == 20
    assert node.call("get_batch_transfer_status", batches).value == 0
    failed(node, node.call("get_batch_transfer_status", [submit(), 12345, submit()]))


@pytest.mark.parametrize("form", [form for form in WRITES if form.startswith("batch")])
@pytest.mark.parametrize(
    "lists", [([0, 0], [0], [8]), ([0], [0, 0], [8]), ([0], [0], [8, 8]), ([], [0], [8]), ([0], [0], [])]
)
def test_lists_of_unequal_length(pair: Pair, form: str, lists: tuple[list[int], list[int], list[int]]) -> None:
    node = pair.initiator
    local, remote = node.registered(4096, seed=1), pair.target.registered(4096, seed=2)
    before = remote.digest()
    buffers, addresses, lengths = lists
    outcome = node.call(
        form,
        pair.target.name,
        [local.base + n for n in buffers],
        [remote.base + n for n in addresses],
        lengths,
    )
    needles = ["unequal", "length", "differ", "same"]
    if "async" in form:
        no_id(node, outcome, needles)
    else:
        failed(node, outcome, needles)
    assert remote.digest() == before
    assert transfer(node, form, pair.target.name, local.base, remote.base, 64).ok


@pytest.mark.parametrize("sizes", [[4096], [], [4096, 4096, 4096]])
def test_registration_lists_of_unequal_length(pair: Pair, sizes: list[int]) -> None:
    node = pair.initiator
    first, second = node.region(4096), node.region(4096)
    failed(node, node.call("batch_register_memory", [first.base, second.base], sizes))
    assert node.call("unregister_memory", first.base).value == -3, "nothing of a refused batch is registered"
    assert node.call("batch_register_memory", [first.base, second.base], [4096, 4096]).ok


@pytest.mark.parametrize(
    "arguments",
    [
        [PEER, -1, 4096, 10],
        [PEER, 4096, -1, 10],
        [PEER, 4096, 4096, -1],
        [PEER, 1 << 64, 4096, 10],
        [PEER, 4096, 4096, 1 << 64],
        [PEER, 1.5, 4096, 10],
        [PEER, "4096", 4096, 10],
        [PEER, None, 4096, 10],
        [17, 4096, 4096, 10],
        [PEER, 4096, 4096],
        [],
    ],
)
def test_wrong_types_are_type_errors(pair: Pair, arguments: list[Any]) -> None:
    node = pair.initiator
    for method in ("transfer_sync_write", "transfer_sync_read", "transfer_submit_write"):
        assert node.call(method, *arguments).raised == "TypeError"
    lists = [[item] if index else item for index, item in enumerate(arguments)]
    for method in ("batch_transfer_sync_write", "batch_transfer_async_read"):
        assert node.call(method, *lists).raised == "TypeError"


def test_none_for_a_name_is_an_error(pair: Pair) -> None:
    node = pair.initiator
    base = node.registered(4096).base
    for method, rest, failure in (
        ("transfer_sync_write", [base, base, 10], -1),
        ("send_probe", [], -1),
        ("get_first_buffer_address", [], 0),
    ):
        outcome = node.call(method, None, *rest)
        assert outcome.raised in ("TypeError", "RuntimeError") or outcome.value == failure, outcome
    fresh = initialize_with_none(pair)
    assert all(raised in ("TypeError", "RuntimeError") or value == -1 for raised, value in fresh), fresh


def initialize_with_none(pair: Pair) -> list[tuple[str | None, Any]]:
    """What initialize makes of None in each of the places where it has no meaning."""
    results = []
    for index in range(3):
        arguments: list[Any] = ["127.0.0.1", "P2PHANDSHAKE", "tcp", ""]
        arguments[index] = None
        pair.initiator.create("fresh")
        outcome = pair.initiator.call("initialize", *arguments, engine="fresh")
        results.append((outcome.raised, outcome.value))
    return results


def test_no_device_is_all_devices(nodes: Nodes) -> None:
    node = nodes.spawn()
    node.create()
    assert node.call("initialize", "127.0.0.1", "P2PHANDSHAKE", "tcp", None).ok


def test_a_second_initialize_replaces_the_first(pair: Pair) -> None:
    node = pair.target
    old_name = node.name
    assert node.call("initialize", "127.0.0.1", "P2PHANDSHAKE", "tcp", "").ok
    assert len(node.listeners()) <= 2, "the old engine's sockets are closed"
    local, remote = pair.initiator.registered(4096, seed=1), node.registered(4096)
    assert node.name != old_name
    assert transfer(pair.initiator, "transfer_sync_write", node.name, local.base, remote.base, 4096).ok
    assert remote.digest() == local.digest()
    failed(pair.initiator, pair.initiator.call("send_probe", old_name))


def test_managed_buffers_given_back_twice(pair: Pair) -> None:
    node = pair.target
    address = node.call("allocate_managed_buffer", 100_000).value
    assert address
    assert node.call("free_managed_buffer", address, 100_000).value == 0
    failed(node, node.call("free_managed_buffer", address, 100_000))
    failed(node, node.call("free_managed_buffer", 4096, 100_000))
    again = node.call("allocate_managed_buffer", 100_000).value
    assert again
    assert node.call("write_bytes_to_buffer", again, {"bytes": b"moon\0rail".hex()}, 9).value == 0
    assert node.call("read_bytes_from_buffer", again, 9).value == {"bytes": b"moon\0rail".hex()}


@pytest.mark.parametrize(
    "name", ["", "/", "not a name", "127.0.0.1", ":", "[::1", "a" * 300, "127.0.0.1:1:2:3", "\x00", "é:1"]
)
def test_peer_names_that_name_nobody(pair: Pair, name: str) -> None:
    node = pair.initiator
    local = node.registered(4096)
    failed(node, node.call("transfer_sync_write", name, local.base, local.base, 10), within=6)
    assert node.call("send_probe", name, limit=10).value < 0
    assert node.call("get_first_buffer_address", name, limit=10).value == 0


def test_nobody_at_the_address(pair: Pair) -> None:
    node = pair.initiator
    local = node.registered(4096)
    peer = f"127.0.0.1:{free_port()}"
    for form in ("transfer_sync_write", "transfer_sync_read"):
        outcome = node.call(form, peer, local.base, local.base, 10)
        failed(node, outcome, peer, within=0.1)
    failed(node, node.call("send_probe", peer), peer, within=0.1)
