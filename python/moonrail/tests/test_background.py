"""Background batches of the drop-in: ids, status, waiting."""

from __future__ import annotations

import time

import pytest
from moonrail.mooncake import Read, TransferEngine, Write

from .support import Block, PeerProcess, mute_listener


def poll(engine: TransferEngine, batch: int, limit: float = 10) -> int:
    end = time.monotonic() + limit
    while True:
        status = engine.transfer_check_status(batch)
        if status != 0 or time.monotonic() > end:
            return status
        time.sleep(0.001)


def test_ids_count_from_1(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    arguments = peer.name, [block.addr], [peer.addr], [64]
    ids = [
        engine.batch_transfer_async_write(*arguments),
        engine.batch_transfer_async_read(*arguments),
        engine.batch_transfer_async(*arguments, Write),
        engine.batch_transfer_async(*arguments, Read),
        engine.transfer_submit_write(peer.name, block.addr, peer.addr, 64),
    ]
    assert ids == [1, 2, 3, 4, 5]
    assert engine.get_batch_transfer_status(ids) == 0
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert engine.register_memory(block.addr, block.size) == 0
    assert engine.batch_transfer_async_write(*arguments) == 6, "no id is given out twice"
    assert engine.transfer_check_status(3) == -1


def test_the_whole_batch_counts(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    """A status that looks at the first descriptor only would call this done."""
    good, bad = peer.addr, peer.addr + peer.size
    batch = engine.batch_transfer_async_write(peer.name, [block.addr] * 2, [good, bad], [64, 64])
    assert poll(engine, batch) == -1
    assert engine.last_error().index == 1


def test_a_terminal_status_stays(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    good = engine.batch_transfer_async_write(peer.name, [block.addr], [peer.addr], [block.size])
    bad = engine.batch_transfer_async_write("127.0.0.1:1", [block.addr], [peer.addr], [8])
    assert (poll(engine, good), poll(engine, bad)) == (1, -1)
    assert [engine.transfer_check_status(good) for _ in range(3)] == [1] * 3
    assert [engine.transfer_check_status(bad) for _ in range(3)] == [-1] * 3
    assert engine.last_error().code == "PEER_UNREACHABLE"
    assert engine.get_batch_transfer_status([good]) == 0
    assert engine.transfer_check_status(good) == 1


def test_a_result_is_collected_once(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    batch = engine.batch_transfer_async_write(peer.name, [block.addr], [peer.addr], [64])
    assert engine.get_batch_transfer_status([batch, batch]) == 0
    assert engine.get_batch_transfer_status([batch]) == -1
    assert engine.last_error().code == "UNKNOWN_BATCH"


def test_waiting_waits_for_all(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    """Also behind one that failed: afterwards nothing runs any more."""
    bad = engine.batch_transfer_async_write("127.0.0.1:1", [block.addr], [peer.addr], [8])
    large = [
        engine.batch_transfer_async_write(peer.name, [block.addr] * 32, [peer.addr] * 32, [block.size] * 32)
        for _ in range(3)
    ]
    assert engine.get_batch_transfer_status([bad, 999, *large]) == -1
    assert engine.last_error().code == "PEER_UNREACHABLE", "the first failure"
    assert [engine.transfer_check_status(batch) for batch in large] == [1] * 3


@pytest.mark.parametrize("batch", [0, 1, 1 << 63, (1 << 64) - 1])
def test_unknown_ids(engine: TransferEngine, batch: int) -> None:
    assert engine.transfer_check_status(batch) == -1
    assert engine.get_batch_transfer_status([batch]) == -1
    assert engine.last_error().code == "UNKNOWN_BATCH"


def test_a_refused_submission_is_0(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    assert engine.batch_transfer_async_write(peer.name, [block.addr], [peer.addr], []) == 0
    assert engine.batch_transfer_async_write(peer.name, [4096], [peer.addr], [8]) == 0
    assert engine.last_error().code == "LOCAL_NOT_REGISTERED"
    assert engine.transfer_submit_write("", block.addr, peer.addr, 8) == 0


def test_a_silent_peer_is_a_timeout(engine: TransferEngine, block: Block) -> None:
    with mute_listener() as name:
        batch = engine.transfer_submit_write(name, block.addr, 4096, 8)
        assert engine.transfer_check_status(batch) == 0
        start = time.monotonic()
        assert poll(engine, batch) == -2
        assert time.monotonic() - start < 6
    assert engine.transfer_check_status(batch) == -2
    assert engine.get_batch_transfer_status([batch]) == -1


def test_status_is_cheap_and_many_ids_are_remembered(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    batches = [engine.transfer_submit_write(peer.name, block.addr, peer.addr, 0) for _ in range(2000)]
    assert engine.get_batch_transfer_status(batches) == 0
    start = time.perf_counter()
    assert all(engine.transfer_check_status(batch) == 1 for batch in batches)
    assert time.perf_counter() - start < 0.5
