from __future__ import annotations

from collections.abc import Iterator

import moonrail
import pytest
from moonrail.mooncake import TransferEngine

from .support import Block, PeerProcess


@pytest.fixture(scope="session")
def peer() -> Iterator[PeerProcess]:
    """A target that every test may write to; what must not be shared makes its own."""
    process = PeerProcess()
    yield process
    process.close()


@pytest.fixture
def own_peer() -> Iterator[PeerProcess]:
    """A target of this test alone."""
    process = PeerProcess()
    yield process
    process.close()


@pytest.fixture
def tcp_peer() -> Iterator[PeerProcess]:
    """A target of this test alone whose help is needed for each byte: it offers no same-host path."""
    process = PeerProcess(paths="tcp")
    yield process
    process.close()


@pytest.fixture
def engine() -> TransferEngine:
    """The drop-in, initialised."""
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0, engine.last_error()
    return engine


@pytest.fixture
def block(engine: TransferEngine) -> Iterator[Block]:
    """1 MiB of registered memory, not all zero."""
    block = Block(1 << 20, bytes(range(256)) * 16)
    assert engine.register_memory(block.addr, block.size) == 0
    yield block
    engine.unregister_memory(block.addr)


@pytest.fixture
def typed() -> Iterator[moonrail.Engine]:
    """The typed engine."""
    with moonrail.Engine("127.0.0.1") as engine:
        yield engine
