"""The drop-in: every name of ``mooncake.engine``, on Moonrail.

Return values, argument conversions and signatures are those that callers know; what went wrong is told by
`TransferEngine.last_error`. Failures are logged on standard error at level WARNING, at most ten lines a second for one
cause (``MC_LOG_LEVEL=ERROR`` silences them).
"""

from __future__ import annotations

from ._moonrail import InnerTransferEngine, Read, TransferEngine, TransferNotify, TransferOpcode, Write
from .rpc import ReceivedData, ReceivedTensor, RpcInterface, create_rpc_client, create_rpc_server
from .shared_segment import SharedSegment

SUPPORT_CUDA = False
SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_INTRA_NVLINK = False
SUPPORT_MNNVL = False
SUPPORT_MUSA = False

CoroRPCInterface = RpcInterface

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
