"""What the drop-in takes as an address, a length, a list or a name."""

from __future__ import annotations

import array
import time
from collections import UserList
from typing import Any

import numpy as np
import pytest
from moonrail.mooncake import Read, TransferEngine, Write

from .support import Block, PeerProcess

NOBODY = "127.0.0.1:1"


class Index:
    """An integer by protocol only."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize(
    "kind",
    [int, np.uint64, np.int64, Index, lambda n: np.array(n)],
    ids=["int", "uint64", "int64", "index", "array"],
)
def test_integers(engine: TransferEngine, peer: PeerProcess, block: Block, kind: Any) -> None:
    assert engine.transfer_sync_write(peer.name, kind(block.addr), kind(peer.addr), kind(64)) == 0
    assert engine.batch_transfer_sync_write(peer.name, [kind(block.addr)], [kind(peer.addr)], [kind(64)]) == 0
    assert peer.read(0, 64) == block.bytes(0, 64)


@pytest.mark.parametrize("bad", [-1, 1 << 64, 1.0, "1", None, b"1", [1], np.float64(1), np.int64(-1)], ids=repr)
def test_what_is_no_unsigned_integer_is_a_type_error(engine: TransferEngine, bad: Any) -> None:
    for position in range(3):
        arguments: list[Any] = [4096, 4096, 8]
        arguments[position] = bad
        for call in (engine.transfer_sync_write, engine.transfer_sync_read, engine.transfer_submit_write):
            with pytest.raises(TypeError):
                call(NOBODY, *arguments)
        lists = [[argument] for argument in arguments]
        many: Any
        for many in (engine.batch_transfer_sync_write, engine.batch_transfer_async_read):
            with pytest.raises(TypeError):
                many(NOBODY, *lists)
    with pytest.raises(TypeError):
        engine.register_memory(bad, 8)
    with pytest.raises(TypeError):
        engine.transfer_check_status(bad)
    with pytest.raises(TypeError):
        engine.get_batch_transfer_status([bad])


def test_the_largest_integers_are_taken(engine: TransferEngine) -> None:
    top = (1 << 64) - 1
    assert engine.transfer_sync_write(NOBODY, top, top, top) == -1
    assert engine.batch_transfer_sync_write(NOBODY, [top], np.array([top], dtype=np.uint64), (top,)) == -1
    assert engine.register_memory(top, top) == -1
    assert engine.transfer_check_status(top) == -1
    assert engine.unregister_memory(top) == -3


SEQUENCES: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "range-like": UserList,
    "uint64": lambda items: np.array(items, dtype=np.uint64),
    "int64": lambda items: np.array(items, dtype=np.int64),
    "reversed strides": lambda items: np.array(items[::-1], dtype=np.uint64)[::-1],
    "every second": lambda items: np.repeat(np.array(items, dtype=np.uint64), 2)[::2],
    "big endian": lambda items: np.array(items, dtype=">u8"),
    "objects": lambda items: np.array(items, dtype=object),
    "unaligned": lambda items: np.frombuffer(b"x" + np.array(items, dtype=np.uint64).tobytes(), np.uint8)[1:].view(
        np.uint64
    ),
    "array": lambda items: array.array("Q", items),
    "memoryview": lambda items: memoryview(array.array("Q", items)),
}


@pytest.mark.parametrize("kind", SEQUENCES)
def test_sequences(engine: TransferEngine, peer: PeerProcess, block: Block, kind: str) -> None:
    make = SEQUENCES[kind]
    offsets = [0, 512, 64, 4096]
    peer.write(0, bytes(8192))
    buffers = make([block.addr + offset for offset in offsets])
    addresses = make([peer.addr + offset for offset in offsets])
    assert engine.batch_transfer_sync_write(peer.name, buffers, addresses, make([10, 20, 30, 40])) == 0
    for offset, size in zip(offsets, [10, 20, 30, 40], strict=True):
        assert peer.read(offset, size) == block.bytes(offset, size)
    assert engine.batch_transfer_sync_read(peer.name, buffers, addresses, make([10, 20, 30, 40])) == 0


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"])
def test_arrays_of_every_width(engine: TransferEngine, peer: PeerProcess, block: Block, dtype: str) -> None:
    peer.write(0, bytes(256))
    lengths = np.array([100, 7], dtype=dtype)
    assert engine.batch_transfer_sync_write(peer.name, [block.addr] * 2, [peer.addr, peer.addr + 100], lengths) == 0
    assert peer.read(0, 108) == block.bytes(0, 100) + block.bytes(0, 7) + b"\0"


@pytest.mark.parametrize(
    "bad",
    ["12", b"12", {1: 2}, {1}, iter([1]), 5, None, np.array([1.0]), np.array([[1]]), np.array([-1]), np.array([True])],
    # An iterator's repr has its address, and the workers of one run must agree on the names of the tests.
    ids=lambda value: type(value).__name__ if hasattr(value, "__next__") else f"{type(value).__name__} {value!r}",
)
def test_what_is_no_sequence_of_integers_is_a_type_error(engine: TransferEngine, bad: Any) -> None:
    for position in range(3):
        arguments: list[Any] = [[1], [1], [1]]
        arguments[position] = bad
        with pytest.raises(TypeError):
            engine.batch_transfer_sync_write(NOBODY, *arguments)
    with pytest.raises(TypeError):
        engine.batch_register_memory(bad, [1])
    with pytest.raises(TypeError):
        engine.get_batch_transfer_status(bad)


def test_the_error_names_argument_and_item(engine: TransferEngine) -> None:
    with pytest.raises(TypeError, match=r"peer_buffer_addresses.*item 2.*str"):
        engine.batch_transfer_sync_write(NOBODY, [1, 1, 1], [1, 1, "x"], [1, 1, 1])
    with pytest.raises(TypeError, match=r"lengths.*item 1.*2\*\*64"):
        engine.batch_transfer_sync_write(NOBODY, [1, 1], [1, 1], np.array([1, -5]))
    with pytest.raises(TypeError, match=r"float(.|\n)*'length'"):
        engine.transfer_sync_write(NOBODY, 1, 1, 1.5)  # type: ignore[arg-type]


def test_an_item_that_changes_its_list_does_no_harm(engine: TransferEngine) -> None:
    class Eraser:
        def __index__(self) -> int:
            del items[1:]
            return 7

    items: list[Any] = [1, Eraser(), 3, 4, 5]
    assert engine.batch_transfer_sync_write(NOBODY, items, [1] * 5, [1] * 5) == -1
    assert engine.last_error().code == "LENGTH_MISMATCH"


def test_an_exception_of_an_item_passes_through(engine: TransferEngine) -> None:
    class Angry:
        def __index__(self) -> int:
            raise RuntimeError("not now")

    with pytest.raises(RuntimeError, match="not now"):
        engine.batch_transfer_sync_write(NOBODY, [Angry()], [1], [1])


@pytest.mark.parametrize(
    "kind", [str, str.encode, lambda text: bytearray(text.encode())], ids=["str", "bytes", "bytearray"]
)
def test_names_as_text_and_bytes(engine: TransferEngine, peer: PeerProcess, block: Block, kind: Any) -> None:
    assert engine.transfer_sync_write(kind(peer.name), block.addr, peer.addr, 8) == 0
    assert engine.send_probe(kind(peer.name)) == 0
    assert engine.get_first_buffer_address(kind(peer.name)) == peer.addr


@pytest.mark.parametrize("name", ["", "\0", "\ud800", b"\xff\xfe:1", "a" * 100_000], ids=repr)
def test_names_that_are_no_names(engine: TransferEngine, block: Block, name: Any) -> None:
    try:
        assert engine.transfer_sync_write(name, block.addr, 1, 8) == -1
    except TypeError:
        assert name == "\ud800"


@pytest.mark.parametrize("position", range(4))
def test_none_in_initialize(position: int) -> None:
    arguments: list[Any] = ["127.0.0.1", "P2PHANDSHAKE", "tcp", ""]
    arguments[position] = None
    engine = TransferEngine()
    if position == 3:
        assert engine.initialize(*arguments) == 0
    else:
        with pytest.raises(TypeError, match="None"):
            engine.initialize(*arguments)


def test_opcode_and_notify_have_types(engine: TransferEngine, peer: PeerProcess, block: Block) -> None:
    for bad in (0, 1, "Read", None):
        with pytest.raises(TypeError):
            engine.transfer_sync(peer.name, block.addr, peer.addr, 8, bad)  # type: ignore[arg-type]
    for notify in ("text", ("a", "b"), 1):
        with pytest.raises(TypeError):
            engine.transfer_sync(peer.name, block.addr, peer.addr, 8, Write, notify)  # type: ignore[arg-type]
    assert engine.transfer_sync(peer.name, block.addr, peer.addr, 8, type(Read)(5)) == -1
    assert "opcode 5" in engine.last_error()


def test_a_batch_of_1_3_million(engine: TransferEngine, peer: PeerProcess) -> None:
    """The worst case of a real caller. The time is that of the conversion: the last length makes the call fail early."""
    count = 1_300_000
    numbers = list(range(1 << 40, (1 << 40) + count))
    lengths = [1] * count
    start = time.perf_counter()
    assert engine.batch_transfer_sync_write(peer.name, numbers, numbers, lengths[:-1]) == -1
    seconds = time.perf_counter() - start
    assert engine.last_error().code == "LENGTH_MISMATCH"
    assert seconds < 1.5, f"{seconds:.2f} s"
    arrays = np.array(numbers, dtype=np.uint64)
    start = time.perf_counter()
    assert engine.batch_transfer_sync_write(peer.name, arrays, arrays, np.ones(count - 1, dtype=np.uint64)) == -1
    assert time.perf_counter() - start < 1.5


@pytest.mark.parametrize("kind", [list, lambda items: np.array(items, dtype=np.uint64)], ids=["lists", "arrays"])
def test_a_batch_of_1_3_million_arrives(engine: TransferEngine, peer: PeerProcess, kind: Any) -> None:
    count, size = 1_300_000, 16
    block = Block(count * size)
    block.map[:] = np.random.default_rng(5).integers(0, 256, count * size, dtype=np.uint8).tobytes()
    assert engine.register_memory(block.addr, block.size) == 0
    offsets = np.arange(count, dtype=np.uint64) * np.uint64(size)
    lists = [kind(offsets + np.uint64(block.addr)), kind(offsets[::-1] + np.uint64(peer.addr)), kind([size] * count)]
    assert engine.batch_transfer_sync_write(peer.name, *lists) == 0, engine.last_error()
    expected = np.frombuffer(block.bytes(), dtype=np.uint8).reshape(count, size)[::-1]
    import hashlib

    assert peer.digest(count * size) == hashlib.sha256(expected.tobytes()).hexdigest()
    assert engine.unregister_memory(block.addr) == 0
