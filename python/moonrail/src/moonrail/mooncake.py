"""The drop-in: every name of ``mooncake.engine``, on Moonrail.

Return values, argument conversions and signatures are those that callers know; what went wrong is told by
`TransferEngine.last_error`. Failures are logged on standard error at level WARNING, at most ten lines a second for one
cause (``MC_LOG_LEVEL=ERROR`` silences them).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ._moonrail import InnerTransferEngine, Read, TransferEngine, TransferNotify, TransferOpcode, Write

if TYPE_CHECKING:
    from .rpc import ReceivedData, ReceivedTensor, RpcInterface, create_rpc_client, create_rpc_server
    from .rpc import RpcInterface as CoroRPCInterface
    from .shared_segment import SharedSegment

SUPPORT_CUDA = False
SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_INTRA_NVLINK = False
SUPPORT_MNNVL = False
SUPPORT_MUSA = False

__all__ = [
    "SUPPORT_CUDA",
    "SUPPORT_EFA",
    "SUPPORT_HIP",
    "SUPPORT_INTRA_NVLINK",
    "SUPPORT_MNNVL",
    "SUPPORT_MUSA",
    "CoroRPCInterface",
    "InnerTransferEngine",
    "Read",
    "ReceivedData",
    "ReceivedTensor",
    "RpcInterface",
    "SharedSegment",
    "TransferEngine",
    "TransferNotify",
    "TransferOpcode",
    "Write",
    "create_rpc_client",
    "create_rpc_server",
]

_LATER = {
    "CoroRPCInterface": ("rpc", "RpcInterface"),
    "ReceivedData": ("rpc", "ReceivedData"),
    "ReceivedTensor": ("rpc", "ReceivedTensor"),
    "RpcInterface": ("rpc", "RpcInterface"),
    "SharedSegment": ("shared_segment", "SharedSegment"),
    "create_rpc_client": ("rpc", "create_rpc_client"),
    "create_rpc_server": ("rpc", "create_rpc_server"),
}
"""What few callers use, loaded when it is asked for: it brings a megabyte of modules with it."""


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    value: object = getattr(import_module(f"{__package__}.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
