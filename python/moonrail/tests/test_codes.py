"""Return values, and what `last_error` tells of them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from moonrail.mooncake import InnerTransferEngine, TransferEngine, TransferNotify, Write

from .support import Block, PeerProcess, free_port


def test_success_is_0_and_leaves_no_error(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    assert engine.transfer_sync_write(peer.name, block.addr, peer.addr, block.size) == 0
    assert peer.read(0, 4096) == block.bytes(0, 4096)
    error = engine.last_error()
    assert error == ""
    assert (error.code, error.peer, error.index, error.stage, error.retry) == (None,) * 5


def test_read(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    peer.write(100, b"read me")
    assert engine.transfer_sync_read(peer.name, block.addr + 5, peer.addr + 100, 7) == 0
    assert block.bytes(5, 7) == b"read me"


def test_registration_codes(engine: TransferEngine) -> None:
    block = Block(1 << 16)
    assert engine.register_memory(block.addr, 0) == -1
    assert engine.register_memory(0, 4096) == -1
    assert engine.register_memory((1 << 64) - 4096, 8192) == -1
    assert engine.register_memory(block.addr, 32768) == 0
    assert engine.register_memory(block.addr, 32768) == -7
    assert engine.register_memory(block.addr + 100, 10) == -7
    assert engine.last_error().code == "ADDRESS_OVERLAPPED"
    assert engine.register_memory(block.addr + 32768, 32768) == 0, "adjacent regions are legal"
    assert engine.unregister_memory(block.addr + 1) == -3
    assert engine.unregister_memory(block.addr) == 0
    assert engine.unregister_memory(block.addr) == -3
    assert engine.register_memory(block.addr, 4096) == 0, "and so is registering again"
    assert engine.batch_unregister_memory([block.addr, 12345, block.addr + 32768]) == -3, "it goes on"
    assert engine.last_error().index == 1
    assert engine.register_memory(block.addr, block.size) == 0


def test_batch_registration_is_all_or_none(engine: TransferEngine) -> None:
    block = Block(1 << 16)
    addresses = [block.addr, block.addr + 4096]
    assert engine.batch_register_memory(addresses, [4096, 0]) == -1
    assert engine.last_error().index == 1
    assert engine.batch_register_memory([*addresses, block.addr + 10], [4096] * 3) == -7
    assert engine.batch_register_memory(addresses, [4096]) == -1
    assert engine.last_error().code == "LENGTH_MISMATCH"
    assert engine.unregister_memory(block.addr) == -3
    assert engine.batch_register_memory(addresses, [4096] * 2) == 0
    assert engine.batch_unregister_memory(addresses) == 0
    assert engine.batch_register_memory([], []) == 0
    assert engine.batch_unregister_memory([]) == 0


@pytest.mark.parametrize(
    ("peer_name", "code"),
    [("no-such-host.invalid:17", -101), ("127.0.0.1:{free_port}", -102), ("127.0.0.1:70000", -200), ("", -200)],
)
def test_probe_codes(engine: TransferEngine, peer_name: str, code: int) -> None:
    assert engine.send_probe(peer_name.format(free_port=free_port())) == code
    assert engine.last_error()


def test_probe_of_the_living(engine: TransferEngine, peer: PeerProcess) -> None:
    assert engine.send_probe(peer.name) == 0
    assert engine.send_probe(f"127.0.0.1:{engine.get_rpc_port()}") == 0
    assert TransferEngine().send_probe(peer.name) == -1


def test_the_error_tells_the_whole_story(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    lists = [block.addr] * 3, [peer.addr, peer.addr, peer.addr + peer.size], [8, 8, 8]
    assert engine.batch_transfer_sync_write(peer.name, *lists) == -1
    error = engine.last_error()
    assert isinstance(error, str)
    assert error.code == "REMOTE_NOT_REGISTERED"
    assert error.peer == peer.name
    assert error.index == 2
    assert error.stage == "arguments"
    assert error.retry == "after-fix"
    assert peer.name in error
    assert "REMOTE_NOT_REGISTERED" in error


def test_a_local_range_must_be_registered(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    assert engine.transfer_sync_write(peer.name, block.addr + block.size - 4, peer.addr, 8) == -1
    assert engine.last_error().code == "LOCAL_NOT_REGISTERED"


def test_empty_batches(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    assert engine.batch_transfer_sync_write(peer.name, [], [], []) == 0
    assert engine.batch_transfer_sync_read(peer.name, [block.addr], [peer.addr], [0]) == 0
    assert engine.transfer_sync_write(peer.name, 0, 0, 0) == 0
    assert engine.batch_transfer_sync(peer.name, [], [], [], Write, TransferNotify("n", "m")) == -1
    assert engine.batch_transfer_sync(peer.name, [], [], [], Write) == 0


def test_bytes_in_and_out(engine: TransferEngine) -> None:
    address = engine.allocate_managed_buffer(5000)
    assert address
    for source in (b"moon\0rail", bytearray(b"moon\0rail"), "moon\0rail", memoryview(b"moon\0rail")):
        assert engine.write_bytes_to_buffer(address, bytes(9), 9) == 0
        assert engine.write_bytes_to_buffer(address, source, 9) == 0
        assert engine.read_bytes_from_buffer(address, 9) == b"moon\0rail"
    assert engine.write_bytes_to_buffer(address, b"abc", 2) == 0
    assert engine.read_bytes_from_buffer(address, 4) == b"abon"
    assert engine.read_bytes_from_buffer(address, 0) == b""
    with pytest.raises(TypeError):
        engine.write_bytes_to_buffer(address, 5, 1)
    assert engine.free_managed_buffer(address, 5000) == 0
    assert engine.free_managed_buffer(address, 5000) == -1


@pytest.mark.parametrize("length", [4, 1 << 20, 1 << 45, (1 << 64) - 1])
@pytest.mark.parametrize("address", [0, 8, (1 << 64) - 2])
def test_bytes_from_nowhere_are_no_crash(engine: TransferEngine, address: int, length: int) -> None:
    assert engine.read_bytes_from_buffer(address, length) is None
    assert engine.last_error()
    assert engine.write_bytes_to_buffer(address, b"abcd", length) == -1


def test_a_copy_longer_than_its_source_is_refused(engine: TransferEngine) -> None:
    address = engine.allocate_managed_buffer(100)
    assert engine.write_bytes_to_buffer(address, b"abc", 4) == -1
    assert "only 3" in engine.last_error()
    assert engine.read_bytes_from_buffer(address, 1 << 45) is None


def test_managed_buffers_of_no_length_and_of_too_much(engine: TransferEngine) -> None:
    assert engine.allocate_managed_buffer(0)
    assert engine.allocate_managed_buffer(1 << 60) == 0
    assert engine.last_error().code == "RESOURCE_LIMIT"


def test_before_initialize() -> None:
    engine = TransferEngine()
    negative: list[tuple[str, list[Any]]] = [
        ("get_rpc_port", []),
        ("transfer_sync_write", ["x:1", 1, 1, 1]),
        ("transfer_sync", ["x:1", 1, 1, 1, Write]),
        ("batch_transfer_sync_read", ["x:1", [1], [1], [1]]),
        ("batch_transfer_sync", ["x:1", [1], [1], [1], Write]),
        ("get_batch_transfer_status", [[1]]),
        ("transfer_check_status", [1]),
        ("register_memory", [4096, 4096]),
        ("unregister_memory", [4096]),
        ("batch_register_memory", [[4096], [4096]]),
        ("batch_unregister_memory", [[4096]]),
        ("free_managed_buffer", [4096, 4096]),
        ("write_bytes_to_buffer", [4096, b"a", 1]),
        ("send_probe", ["x:1"]),
    ]
    for method, arguments in negative:
        assert getattr(engine, method)(*arguments) == -1, method
        assert engine.last_error().code == "NOT_INITIALIZED", method
    for method, arguments in (
        ("batch_transfer_async_write", ["x:1", [1], [1], [1]]),
        ("batch_transfer_async", ["x:1", [1], [1], [1], Write]),
        ("transfer_submit_write", ["x:1", 1, 1, 1]),
        ("allocate_managed_buffer", [100]),
        ("get_first_buffer_address", ["x:1"]),
    ):
        assert getattr(engine, method)(*arguments) == 0, method
        assert engine.last_error().code == "NOT_INITIALIZED", method
    assert engine.get_engine() is None
    assert engine.read_bytes_from_buffer(4096, 1) is None
    assert engine.get_notifies() == []
    assert engine.get_engine_ptr() == 0
    assert engine.get_batch_transfer_status([]) == 0
    assert engine.warmup_efa_segment("x") == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("127.0.0.1", "P2PHANDSHAKE", "nosuch", ""),
        ("127.0.0.1", "p2phandshake", "tcp", ""),
        ("127.0.0.1", "redis://127.0.0.1:1", "tcp", ""),
        ("127.0.0.1:70000", "P2PHANDSHAKE", "tcp", ""),
        ("no-such-host.invalid", "P2PHANDSHAKE", "tcp", ""),
        ("127.0.0.1", "http://127.0.0.1:1/metadata", "tcp", ""),
    ],
)
def test_a_failed_initialize_leaves_an_object_that_can_be_used_again(arguments: tuple[str, str, str, str]) -> None:
    engine = TransferEngine()
    assert engine.initialize(*arguments) == -1
    assert engine.last_error()
    assert engine.get_rpc_port() == -1
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert engine.get_rpc_port() > 0


def test_initialize_ext_builds_the_connection_string() -> None:
    engine = TransferEngine()
    assert engine.initialize_ext("127.0.0.1", "P2PHANDSHAKE", "tcp", "", "http") == 0
    assert engine.initialize_ext("127.0.0.1", "127.0.0.1:1/metadata", "tcp", "", "http") == -1
    assert "127.0.0.1:1" in engine.last_error()
    assert engine.initialize_ext("127.0.0.1", "127.0.0.1:1", "tcp", "", "redis") == -1
    assert "redis" in engine.last_error()
    assert engine.initialize_ext("127.0.0.1", "etcd://127.0.0.1:1", "tcp", "", "http") == -1
    assert "etcd" in engine.last_error()


def test_a_second_initialize_replaces_the_engine(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    port = engine.get_rpc_port()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert engine.send_probe(f"127.0.0.1:{engine.get_rpc_port()}") == 0
    if engine.get_rpc_port() != port:
        assert engine.send_probe(f"127.0.0.1:{port}") == -102
    assert engine.transfer_sync_write(peer.name, block.addr, peer.addr, 8) == -1, "its registrations are gone"
    assert engine.register_memory(block.addr, block.size) == 0
    assert engine.transfer_sync_write(peer.name, block.addr, peer.addr, 8) == 0


def test_an_asked_for_port_is_used_again_by_a_second_initialize() -> None:
    engine = TransferEngine()
    host = f"127.0.0.1:{free_port()}"
    for _ in range(2):
        assert engine.initialize(host, "P2PHANDSHAKE", "tcp", "") == 0, engine.last_error()
        assert f"127.0.0.1:{engine.get_rpc_port()}" == host


def test_get_engine_is_an_opaque_object(engine: TransferEngine) -> None:
    assert isinstance(engine.get_engine(), InnerTransferEngine)


def test_each_thread_has_its_own_last_error(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    """A thread's own failure is never displaced by another's."""
    turn = threading.Barrier(2)
    seen: dict[str, str | None] = {}

    def fail(name: str, address: int, peer_name: str) -> None:
        turn.wait()
        for _ in range(50):
            assert engine.transfer_sync_write(peer_name, address, peer.addr, 8) == -1
            code = engine.last_error().code
            if seen.setdefault(name, code) != code:
                seen[name] = f"{code} among others"

    threads = [
        threading.Thread(target=fail, args=("local", 4096, peer.name)),
        threading.Thread(target=fail, args=("peer", block.addr, "127.0.0.1:1")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"local": "LOCAL_NOT_REGISTERED", "peer": "PEER_UNREACHABLE"}
    assert engine.last_error().code in seen.values(), "a failure in another thread can be asked for from here"
    assert engine.transfer_sync_write(peer.name, block.addr, peer.addr, 8) == 0
    assert engine.last_error() == ""
    assert TransferEngine().last_error() == ""


def test_topology_is_json_without_an_engine() -> None:
    import json

    topology = json.loads(TransferEngine().get_local_topology())
    assert topology
    assert all(name.startswith("cpu:") and lists == [[], []] for name, lists in topology.items())
