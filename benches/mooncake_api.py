"""What is used of the `mooncake.engine` Python API, whoever offers it."""

from __future__ import annotations

import importlib
import os
from typing import Protocol, cast

MODULE = os.environ.get("ENGINE_MODULE", "mooncake.engine")


class Engine(Protocol):
    """What is used of `mooncake.engine.TransferEngine`."""

    def initialize(self, local: str, metadata: str, protocol: str, device: str, /) -> int: ...
    def get_rpc_port(self) -> int: ...
    def register_memory(self, address: int, length: int, /) -> int: ...
    def unregister_memory(self, address: int, /) -> int: ...
    def allocate_managed_buffer(self, length: int, /) -> int: ...
    def free_managed_buffer(self, address: int, length: int, /) -> int: ...
    def batch_register_memory(self, addresses: list[int], lengths: list[int], /) -> int: ...
    def batch_unregister_memory(self, addresses: list[int], /) -> int: ...
    def transfer_sync_write(self, peer: str, local: int, remote: int, length: int, /) -> int: ...
    def transfer_sync_read(self, peer: str, local: int, remote: int, length: int, /) -> int: ...
    def batch_transfer_sync_write(
        self, peer: str, local: list[int], remote: list[int], lengths: list[int], /
    ) -> int: ...
    def batch_transfer_sync_read(
        self, peer: str, local: list[int], remote: list[int], lengths: list[int], /
    ) -> int: ...


def load() -> None:
    """Imports the engine: its time is not that of the first transfer."""
    importlib.import_module(MODULE)


def started() -> Engine:
    """A new engine on this host."""
    engine = cast(Engine, importlib.import_module(MODULE).TransferEngine())
    must("initialize", engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""))
    return engine


def must(what: str, status: int) -> None:
    """Fails unless the engine said that it had done it."""
    if status != 0:
        raise RuntimeError(f"{what} returned {status}")
