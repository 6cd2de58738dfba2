"""Notifications of the drop-in."""

from __future__ import annotations

from moonrail.mooncake import Read, TransferEngine, TransferNotify, Write

from .support import Block, PeerProcess


def test_a_notify_comes_after_its_bytes(engine: TransferEngine, own_peer: PeerProcess, block: Block) -> None:
    notify = TransferNotify("me", "transfer_complete")
    assert engine.transfer_sync(own_peer.name, block.addr, own_peer.addr, 64, Write, notify) == 0
    assert own_peer.notifies() == [("me", "transfer_complete")]
    assert own_peer.read(0, 64) == block.bytes(0, 64)
    assert own_peer.notifies() == [], "each is fetched once"


def test_notifies_of_every_form(engine: TransferEngine, own_peer: PeerProcess, block: Block) -> None:
    lists = [block.addr] * 3, [own_peer.addr] * 3, [8, 0, 8]
    assert engine.transfer_sync(own_peer.name, block.addr, own_peer.addr, 8, Read, TransferNotify("a", "1")) == 0
    assert engine.batch_transfer_sync(own_peer.name, *lists, Write, TransferNotify("b", "2")) == 0
    assert engine.transfer_sync(own_peer.name, 0, 0, 0, Write, TransferNotify("c", "é\0\n")) == 0
    assert engine.transfer_sync(own_peer.name, block.addr, own_peer.addr, 8, Write, None) == 0
    assert own_peer.notifies() == [("a", "1"), ("b", "2"), ("c", "é\0\n")]


def test_no_notify_after_a_failure(engine: TransferEngine, own_peer: PeerProcess, block: Block) -> None:
    end = own_peer.addr + own_peer.size
    assert engine.transfer_sync(own_peer.name, block.addr, end, 8, Write, TransferNotify("x", "y")) == -1
    assert engine.transfer_sync(own_peer.name, block.addr, own_peer.addr, 8, Write, TransferNotify(b"\xff", "")) == -1
    assert own_peer.notifies() == []


def test_get_notifies(engine: TransferEngine, block: Block) -> None:
    own = f"127.0.0.1:{engine.get_rpc_port()}"
    for number in range(5):
        notify = TransferNotify("n", str(number))
        assert engine.transfer_sync(own, block.addr, block.addr + 4096, 8, Write, notify) == 0
    received = engine.get_notifies()
    assert all(isinstance(notify, TransferNotify) for notify in received)
    assert [(notify.name, notify.msg) for notify in received] == [("n", str(number)) for number in range(5)]
    assert engine.get_notifies() == []
