"""The drop-in as a Python object: its names, its keywords, and the argument types that callers hand in."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest

from ..recipes.fixtures import Pair
from ..recipes.support import opcode

KIB = 1 << 10

REQUIRED = [
    "initialize",
    "initialize_ext",
    "get_rpc_port",
    "register_memory",
    "unregister_memory",
    "batch_register_memory",
    "batch_unregister_memory",
    "transfer_sync",
    "transfer_sync_write",
    "transfer_sync_read",
    "batch_transfer_sync",
    "batch_transfer_sync_write",
    "batch_transfer_sync_read",
    "batch_transfer_async",
    "batch_transfer_async_write",
    "batch_transfer_async_read",
    "transfer_submit_write",
    "transfer_check_status",
    "get_batch_transfer_status",
    "get_notifies",
    "send_probe",
    "get_engine",
    "get_engine_ptr",
    "get_first_buffer_address",
    "allocate_managed_buffer",
    "free_managed_buffer",
    "write_bytes_to_buffer",
    "read_bytes_from_buffer",
    "get_local_topology",
    "warmup_efa_segment",
]


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# What is looked up by name


def test_every_name_is_there() -> None:
    missing = run(f"""
        from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode, InnerTransferEngine
        print([name for name in {REQUIRED} if not callable(getattr(TransferEngine, name, None))])
    """)
    assert missing.strip() == "[]"


def test_callers_ask_by_hasattr() -> None:
    """SGLang asks for a method after an exception; only AttributeError may come of a name that is not there."""
    run("""
        import importlib.util
        assert importlib.util.find_spec("mooncake.engine") is not None
        from mooncake.engine import TransferEngine
        engine = TransferEngine()
        assert not hasattr(engine, "no_such_method")
        for name in ("batch_transfer_sync_write", "batch_register_memory"):
            assert hasattr(engine, name)
    """)


def test_submodules_that_are_not_ours_are_import_errors() -> None:
    run("""
        import importlib
        for name in ("mooncake.pg", "mooncake.store"):
            try:
                importlib.import_module(name)
            except ImportError:
                pass
    """)


def test_opcodes_and_notifications() -> None:
    run("""
        import mooncake.engine as e
        assert e.TransferEngine.TransferOpcode is e.TransferOpcode
        assert int(e.TransferOpcode.Read) == 0 and int(e.TransferOpcode.Write) == 1
        assert e.TransferOpcode.Read != e.TransferOpcode.Write and e.Write == e.TransferOpcode.Write
        n = e.TransferNotify("a", "b")
        assert (n.name, n.msg) == ("a", "b")
        n.name, n.msg = "c", "d"
        assert (n.name, n.msg) == ("c", "d")
        k = e.TransferNotify(name="x", msg="")
        assert (k.name, k.msg) == ("x", "")
        assert (e.TransferNotify().name, e.TransferNotify().msg) == ("", "")
        for make in (lambda: e.TransferNotify("one"), e.InnerTransferEngine):
            try:
                make()
            except TypeError:
                continue
            raise AssertionError(make)
    """)


def test_keywords_of_the_documented_parameters(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(4 * KIB, seed=1), target.registered(4 * KIB)
    single: dict[str, Any] = {
        "target_hostname": target.name,
        "buffer": local.base,
        "peer_buffer_address": remote.base,
        "length": 64,
    }
    many: dict[str, Any] = {
        "target_hostname": target.name,
        "buffers": [local.base],
        "peer_buffer_addresses": [remote.base],
        "lengths": [64],
    }
    assert node.call("transfer_sync_write", **single, transport_hint="").ok
    assert node.call("transfer_sync_read", **single).ok
    assert node.call("transfer_sync", **single, opcode=opcode("Write"), notify=None).ok
    assert node.call("batch_transfer_sync_write", **many).ok
    assert node.call("batch_transfer_sync", **many, opcode=opcode("Read"), transport_hint="tcp").ok
    batch = node.call("batch_transfer_async", **many, opcode=opcode("Write")).value
    assert batch > 0
    assert node.call("get_batch_transfer_status", [batch]).value == 0
    region = node.region(4 * KIB)
    assert node.call("register_memory", buffer_addr=region.base, capacity=4 * KIB, location="cpu:0").ok


# Python data


@pytest.mark.parametrize("dtype", ["uint64", "int64"])
def test_numpy_arrays_for_lists(pair: Pair, dtype: str) -> None:
    node, target = pair.initiator, pair.target
    count, size = 1_000, 512
    local, remote = node.registered(count * size, seed=1), target.registered(count * size)

    def array(numbers: list[int], kind: str = dtype) -> dict[str, Any]:
        return {"array": [kind, numbers]}

    sources = array([local.at(n * size) for n in range(count)])
    targets = array([remote.at(n * size) for n in range(count)])
    for form in ("batch_transfer_sync_write", "batch_transfer_sync_read"):
        assert node.call(form, target.name, sources, targets, array([size] * count)).ok
    assert node.call("batch_transfer_sync_write", target.name, sources, targets, array([size] * count, "int32")).ok
    assert remote.digest() == local.digest()
    negative = node.call("batch_transfer_sync_write", target.name, array([-1], "int64"), array([1]), array([1]))
    assert negative.raised == "TypeError"
    floats = node.call("batch_transfer_sync_write", target.name, array([1.5], "float64"), array([1]), array([1]))  # type: ignore[list-item]
    assert floats.raised == "TypeError"


def test_numpy_scalars(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.region(4 * KIB, seed=1), target.registered(4 * KIB)

    def scalar(kind: str, value: int) -> dict[str, Any]:
        return {"scalar": [kind, value]}

    assert node.call("register_memory", scalar("uint64", local.base), scalar("int64", 4 * KIB)).ok
    arguments = scalar("int64", local.base), scalar("uint64", remote.base), scalar("int32", 4 * KIB)
    assert node.call("transfer_sync_write", target.name, *arguments).ok
    assert remote.digest() == local.digest()
    lists = [[scalar("uint64", n)] for n in (local.base, remote.base, 64)]
    assert node.call("batch_transfer_sync_read", target.name, *lists).raised is None
    assert node.call("unregister_memory", scalar("uint64", local.base)).ok
