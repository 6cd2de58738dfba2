"""Moonrail, a transfer engine: registered memory moved one-sidedly between processes and hosts.

`Engine` is where to start. Programs written for ``mooncake.engine.TransferEngine`` use `moonrail.mooncake`.
"""

from . import errors as errors
from ._capabilities import Capabilities, Capability, capabilities, require
from ._moonrail import __version__ as __version__
from .engine import Engine, EngineReport
from .errors import (
    AccessError,
    CancelledError,
    CapabilityError,
    DeadlineError,
    EngineClosedError,
    InvalidArgumentError,
    LocalRangeError,
    MoonrailError,
    NotifyRejectedError,
    PeerError,
    PeerGoneError,
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnreachableError,
    RegistrationError,
    RemoteRangeError,
    ResourceLimitError,
    StartError,
    TransferError,
    UnconfirmedError,
)
from .memory import Buffer, LocalRange, Registration, RemoteBuffer, RemoteRange
from .peer import Notify, Peer, Probe, Transfer

__all__ = [
    "AccessError",
    "Buffer",
    "CancelledError",
    "Capabilities",
    "Capability",
    "CapabilityError",
    "DeadlineError",
    "Engine",
    "EngineClosedError",
    "EngineReport",
    "InvalidArgumentError",
    "LocalRange",
    "LocalRangeError",
    "MoonrailError",
    "Notify",
    "NotifyRejectedError",
    "Peer",
    "PeerError",
    "PeerGoneError",
    "PeerProtocolError",
    "PeerTimeoutError",
    "PeerUnreachableError",
    "Probe",
    "Registration",
    "RegistrationError",
    "RemoteBuffer",
    "RemoteRange",
    "RemoteRangeError",
    "ResourceLimitError",
    "StartError",
    "Transfer",
    "TransferError",
    "UnconfirmedError",
    "capabilities",
    "require",
]
