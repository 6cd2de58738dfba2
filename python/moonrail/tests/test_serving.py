"""`moonrail.serving` over Moonrail. tests/interop has it over Mooncake."""

from __future__ import annotations

import logging
from typing import Any

import moonrail
import pytest
from moonrail._environment.judge import ADAPTED
from moonrail.mooncake import TransferEngine as Engine
from moonrail.serving import BATCHED, ServingError, TransferEngine

from .support import Block, PeerProcess, free_port


def adapter(**options: Any) -> TransferEngine:
    return TransferEngine("127.0.0.1", protocol="tcp", **options)


def test_the_doctor_offers_the_adapter_for_what_it_does_without() -> None:
    assert {*BATCHED, "send_probe"} == ADAPTED


class WithoutBatches:
    """An engine that has only the single calls, carried out by one that has all."""

    KEPT = ("initialize", "get_rpc_port", "register_memory", "unregister_memory", "transfer_sync_write")

    def __init__(self) -> None:
        self.engine = Engine()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name not in self.KEPT:
            raise AttributeError(name)
        self.calls.append(name)
        return getattr(self.engine, name)


def test_names_and_results_are_sglangs(peer: PeerProcess) -> None:
    engine = adapter(gpu_id=3, ib_device='{"3": "mlx5_0, mlx5_1"}')
    host, _, port = engine.get_session_id().rpartition(":")
    assert (host, port.isdigit(), engine.get_ib_device()) == ("127.0.0.1", True, "mlx5_0, mlx5_1")
    block = Block(8192, b"served")
    assert engine.register(block.addr, 8192) is None
    assert engine.transfer_sync(peer.name, block.addr, peer.addr, 6) == 0
    assert engine.batch_transfer_sync(peer.name, [block.addr], [peer.addr + 100], [6]) == 0
    assert peer.read(0, 6) == peer.read(100, 6) == b"served"
    assert engine.send_probe(peer.name) == 0
    assert engine.send_probe(f"127.0.0.1:{free_port()}") == -102
    assert engine.get_engine() is not None
    assert engine.deregister(block.addr) is None
    assert engine.batch_register([block.addr], [8192]) == 0
    assert engine.batch_deregister([block.addr]) == 0
    assert (engine.lacks, engine.release) == ((), f"Moonrail {moonrail.__version__}")


def test_failures_are_logged_once_and_come_as_the_caller_chose(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    block = Block(4096)
    for failures in ("sglang", "raise", "return"):
        engine = adapter(failures=failures)
        engine.register(block.addr, 4096)
        caplog.clear()
        arguments = (nobody, block.addr, 4096, 100)
        if failures == "raise":
            with pytest.raises(ServingError) as caught:
                engine.transfer_sync(*arguments)
            assert (caught.value.code, caught.value.peer, caught.value.result) == ("PEER_UNREACHABLE", nobody, -1)
            assert isinstance(caught.value, RuntimeError)
        else:
            assert engine.transfer_sync(*arguments) == -1
        [record] = caplog.records
        assert (record.levelno, record.name) == (logging.ERROR, "moonrail.serving")
        assert "PEER_UNREACHABLE" in record.getMessage()
        caplog.clear()
        if failures == "return":
            assert engine.register(block.addr, 10) == -7
        else:
            with pytest.raises(ServingError, match=r"registration failed \(ret=-7\).*overlaps"):
                engine.register(block.addr, 10)
        assert len(caplog.records) == 1
    assert "returned" not in capfd.readouterr().err, "the engine has logged what the adapter logs"


def test_an_engine_that_was_given_logs_by_itself(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = adapter(engine=Engine())
    assert engine.transfer_sync("nobody:1", 1, 1, 1) < 0
    assert caplog.records == []
    assert "transfer_sync_write returned -1" in capfd.readouterr().err


def test_an_engine_without_batches_is_done_with(caplog: pytest.LogCaptureFixture, own_peer: PeerProcess) -> None:
    inner = WithoutBatches()
    engine = adapter(engine=inner)
    assert "call by call" in caplog.text
    assert "batch_transfer_sync_write" not in engine.provides
    block = Block(1 << 16, bytes(range(256)) * 256)
    half = 1 << 15
    assert engine.batch_register([block.addr, block.addr + half], [half, half]) == 0
    # None of them lies across the two regions.
    moves = [(index * 300, 60 - index % 7) for index in range(100)]
    assert all(at + size <= half or at >= half for at, size in moves)
    sources = [block.addr + at for at, _ in moves]
    targets = [own_peer.addr + at for at, _ in moves]
    sizes = [size if index % 10 else 0 for index, (_, size) in enumerate(moves)]
    inner.calls.clear()
    assert engine.batch_transfer_sync(own_peer.name, sources, targets, sizes) == 0
    assert inner.calls == ["transfer_sync_write"] * 90
    for (at, _), size in zip(moves, sizes, strict=True):
        assert own_peer.read(at, size) == block.bytes(at, size) if size else True
    caplog.clear()
    refused = [own_peer.addr + 50_000, own_peer.addr + 51_000, 4096, own_peer.addr + 52_000]
    assert engine.batch_transfer_sync(own_peer.name, [block.addr] * 4, refused, [8] * 4) < 0
    [record] = caplog.records
    assert "range 2 (the 2 before it were moved)" in record.getMessage()
    assert "buffers that the peer" in record.getMessage() or "registered" in record.getMessage()
    assert own_peer.read(51_000, 8) == block.bytes(0, 8)
    assert own_peer.read(52_000, 8) == bytes(8)
    caplog.clear()
    third = Block(4096)
    assert engine.batch_register([third.addr, block.addr], [4096, 8]) < 0
    assert len(caplog.records) == 1
    assert engine.batch_register([third.addr], [4096]) == 0, "the region before the failure was not taken back"
    assert engine.batch_deregister([12345, third.addr]) < 0
    assert engine.batch_register([third.addr], [4096]) == 0, "it did not go on after a failure"
    with pytest.raises(moonrail.CapabilityError, match="get_engine"):
        engine.get_engine()
    assert engine.send_probe(own_peer.name) == 0


def test_what_is_required_is_looked_for_when_it_is_made() -> None:
    adapter(require=["mooncake-v2", "batch_transfer_sync_write", "rail"])
    with pytest.raises(moonrail.CapabilityError, match="rdma"):
        adapter(require=["rdma"])
    with pytest.raises(moonrail.CapabilityError, match=r"batch_transfer_sync_write: .*upgrade"):
        adapter(engine=WithoutBatches(), require=["batch_transfer_sync_write"])
    with pytest.raises(moonrail.CapabilityError, match=r"register_memory: .*upgrade"):
        adapter(engine=object())


def test_bad_settings_are_told() -> None:
    with pytest.raises(ServingError, match="cannot be initialised") as caught:
        TransferEngine("127.0.0.1", protocol="nosuch")
    assert caught.value.code == "UNKNOWN_PROTOCOL"
    with pytest.raises(ValueError, match="failures"):
        adapter(failures="silently")
    with pytest.raises(ValueError, match="GPU 7"):
        adapter(gpu_id=7, ib_device='{"0": "mlx5_0"}')
    with pytest.raises(ServingError, match="cannot be initialised"):
        TransferEngine("no.such.host.invalid", protocol="tcp")


@pytest.mark.parametrize(
    ("host", "expected"),
    [("10.0.0.1", "10.0.0.1:7"), ("::1", "[::1]:7"), ("[::1]:5", "[::1]:7"), ("node:12", "node:7"), ("node", "node:7")],
)
def test_sessions_are_host_and_port(host: str, expected: str) -> None:
    from moonrail._diagnosis import session_id

    assert session_id(host, 7) == expected
