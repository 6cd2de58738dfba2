"""Forked children: an error at once in the child, and nothing noticed in the parent or at its peers."""

from __future__ import annotations

from typing import Any

import pytest

from .fixtures import Pair
from .nodes import Node, Region
from .support import opcode, transfer

MIB = 1 << 20


def calls(pair: Pair, local: Region, remote: Region) -> list[tuple[str, list[Any]]]:
    peer = pair.target.name
    return [
        ("transfer_sync_write", [peer, local.base, remote.base, MIB]),
        ("transfer_sync_read", [peer, local.base, remote.base, MIB]),
        ("batch_transfer_sync_write", [peer, [local.base] * 3, [remote.base] * 3, [MIB] * 3]),
        ("batch_transfer_async_read", [peer, [local.base], [remote.base], [MIB]]),
        ("transfer_submit_write", [peer, local.base, remote.base, MIB]),
        ("transfer_sync", [peer, local.base, remote.base, MIB, opcode("Write")]),
        ("send_probe", [peer]),
        ("register_memory", [local.end, 4096]),
        ("unregister_memory", [local.base]),
        ("get_first_buffer_address", [peer]),
        ("allocate_managed_buffer", [4096]),
    ]


def healthy(pair: Pair, local: Region, remote: Region, seed: int) -> None:
    local.fill(seed)
    outcome = transfer(pair.initiator, "transfer_sync_write", pair.target.name, local.base, remote.base, MIB)
    assert outcome.ok and outcome.seconds < 1, outcome
    assert remote.digest() == local.digest()


def fork(node: Node, method: str, *args: Any, **options: Any) -> dict[str, Any]:
    answer = node.ask("fork", method=method, args=args, **options)
    assert answer["exit"] == 0, f"the child ended with {answer['exit']}\n{node.log_tail()}"
    result = answer["answer"]
    assert isinstance(result, dict), "the child gave no answer"
    return result


@pytest.mark.parametrize("index", range(11))
def test_the_child_gets_an_error_at_once(pair: Pair, index: int) -> None:
    local, remote = pair.initiator.registered(MIB, seed=1), pair.target.registered(MIB)
    healthy(pair, local, remote, 2)
    method, arguments = calls(pair, local, remote)[index]
    before = remote.digest()
    answer = fork(pair.initiator, method, *arguments)
    assert answer["seconds"] < 0.5
    refused = answer.get("value", 1) in (0, None) if method in IDENTIFIERS else answer.get("value", 0) < 0
    assert refused or answer.get("raised") == "RuntimeError", answer
    assert "fork" in (answer.get("text") or answer["explanation"])
    assert remote.digest() == before
    healthy(pair, local, remote, 3)


IDENTIFIERS = {
    "batch_transfer_async_read",
    "transfer_submit_write",
    "get_first_buffer_address",
    "allocate_managed_buffer",
}


@pytest.mark.parametrize("leave", ["exit", "finalize"])
def test_children_of_both_ends_leave_quietly(pair: Pair, leave: str) -> None:
    """Also with transfers under way, and with the engine's finalizer run in the child."""
    local, remote = pair.initiator.registered(MIB, seed=1), pair.target.registered(MIB)
    healthy(pair, local, remote, 2)
    big, far = pair.initiator.registered(64 * MIB, seed=5), pair.target.registered(64 * MIB)
    token = pair.initiator.start(
        "batch_transfer_sync_write", pair.target.name, [big.base] * 10, [far.base] * 10, [64 * MIB] * 10
    )
    for _ in range(3):
        fork(pair.initiator, "get_rpc_port", leave=leave)
        fork(pair.target, "get_rpc_port", leave=leave)
    assert pair.initiator.finish(token).ok
    assert far.digest() == big.digest()
    healthy(pair, local, remote, 6)
    assert pair.initiator.call("send_probe", pair.target.name).value == 0
    assert pair.target.call("send_probe", pair.initiator.name).value == 0


@pytest.mark.parametrize("leave", ["exit", "finalize"])
def test_the_child_may_make_an_engine_of_its_own(pair: Pair, leave: str) -> None:
    remote = pair.target.registered(4096, seed=1)
    own = pair.initiator.registered(4096)
    answer = fork(pair.initiator, "send_probe", pair.target.name, fresh=True, leave=leave)
    assert answer.get("value") == 0, answer
    assert transfer(pair.initiator, "transfer_sync_read", pair.target.name, own.base, remote.base, 4096).ok
    assert own.digest() == remote.digest()


def test_a_fork_before_anything_else_happened(pair: Pair) -> None:
    """Engines that have not spoken to anybody yet."""
    fork(pair.initiator, "get_rpc_port", leave="finalize")
    fork(pair.target, "get_rpc_port", leave="finalize")
    local, remote = pair.initiator.registered(MIB, seed=1), pair.target.registered(MIB)
    healthy(pair, local, remote, 2)
