"""What can go wrong, as exceptions and as text.

Every failure has a stable code (``REMOTE_NOT_REGISTERED``), the peer, the index of the descriptor in a batch, the stage
at which it failed, and whether the same call may be made again. The classes group the codes by what a program does
about them. The text ends in the command that explains it: ``moonrail explain REMOTE_NOT_REGISTERED``.
"""

from __future__ import annotations

from typing import Any

from ._codes import CLASSES

__all__ = [
    "AccessError",
    "CancelledError",
    "CapabilityError",
    "DeadlineError",
    "EngineClosedError",
    "ErrorText",
    "InvalidArgumentError",
    "LocalRangeError",
    "MoonrailError",
    "NotifyRejectedError",
    "PeerError",
    "PeerGoneError",
    "PeerProtocolError",
    "PeerTimeoutError",
    "PeerUnreachableError",
    "RegistrationError",
    "RemoteRangeError",
    "ResourceLimitError",
    "StartError",
    "TransferError",
    "UnconfirmedError",
]


class MoonrailError(Exception):
    """Base of all failures of this package.

    Attributes:
        code: stable name of what went wrong, for programs to test.
        peer: the peer's name, where one was involved.
        index: the descriptor of the batch that is to blame, counted from 0, where one is.
        stage: how far the call had come: ``initialize``, ``register``, ``arguments``, ``resolve``, ``connect``,
            ``transfer``, ``acknowledge``, ``notify``, ``probe`` or ``wait``.
        retry: ``safe`` (the same call may simply be made again), ``after-fix`` (it fails again until something is
            changed) or ``unsafe`` (part of it may have been applied).
    """

    code: str
    peer: str | None
    index: int | None
    stage: str
    retry: str

    def __init__(
        self,
        message: str,
        *,
        code: str,
        stage: str,
        retry: str = "after-fix",
        peer: str | None = None,
        index: int | None = None,
    ) -> None:
        if f"[moonrail explain {code}]" not in message:
            # Raised by this package's Python; the engine's own say all of it already.
            where = f" peer {peer}" if peer is not None else ""
            where += f" descriptor {index}" if index is not None else ""
            message = f"{code}{where} ({stage}, retry {retry}): {message} [moonrail explain {code}]"
        super().__init__(message)
        self.code = code
        self.peer = peer
        self.index = index
        self.stage = stage
        self.retry = retry

    def __reduce__(self) -> tuple[Any, ...]:
        parts = {name: getattr(self, name) for name in ("code", "peer", "index", "stage", "retry")}
        return _rebuild, (type(self), str(self), parts)


def _rebuild(kind: type[MoonrailError], message: str, parts: dict[str, Any]) -> MoonrailError:
    return kind(message, **parts)


class InvalidArgumentError(MoonrailError, ValueError):
    """An argument cannot be right: INVALID_ARGUMENT, LENGTH_MISMATCH, UNKNOWN_BATCH."""


class StartError(MoonrailError):
    """The engine could not be started: LISTEN_FAILED, NAME_TAKEN, METADATA, UNKNOWN_PROTOCOL, NAME_RESOLUTION."""


class EngineClosedError(MoonrailError):
    """The engine was closed, or belongs to the parent of this forked process: NOT_INITIALIZED, FORKED."""


class RegistrationError(MoonrailError):
    """ADDRESS_OVERLAPPED, ADDRESS_NOT_REGISTERED, REGION_BUSY, or METADATA while registering.

    After REGION_BUSY the memory must not be freed: a transfer still uses it.
    """


class CapabilityError(MoonrailError, RuntimeError):
    """What the program requires is not there: MISSING_CAPABILITY. The message says what, where, and what helps."""


class ResourceLimitError(MoonrailError):
    """The process ran into a limit of descriptors, memory or threads: RESOURCE_LIMIT."""


class TransferError(MoonrailError):
    """A transfer, probe or notification failed. Once it is raised no byte of the transfer moves any more."""


class LocalRangeError(TransferError):
    """The local side is not inside one registered region, or is no memory: LOCAL_NOT_REGISTERED, MEMORY_FAULT."""


class RemoteRangeError(TransferError):
    """The peer has no such memory, or refused: REMOTE_NOT_REGISTERED, REMOTE_REFUSED, PERMISSION_DENIED, TOKEN_REFUSED."""


class PeerError(TransferError):
    """Something about the peer itself."""


class PeerUnreachableError(PeerError, ConnectionError):
    """Nobody answers there: PEER_UNREACHABLE, NAME_RESOLUTION, BAD_PEER_NAME, METADATA."""


class PeerGoneError(PeerError, ConnectionError):
    """The peer closed or reset the connection in the middle: PEER_GONE."""


class PeerTimeoutError(PeerError, TimeoutError):
    """The peer did not answer or move a byte in time: PEER_TIMEOUT."""


class PeerProtocolError(PeerError):
    """The peer answered what its protocol does not allow, or speaks another: PROTOCOL_ERROR, UNSUPPORTED_PEER."""


class AccessError(PeerError, PermissionError):
    """One side does not admit the other: KEY_REQUIRED, KEY_REFUSED, PEER_UNPROVEN, TLS_REQUIRED, TLS_UNTRUSTED, TLS_REFUSED,
    TLS_NOT_OFFERED.
    """


class DeadlineError(TransferError, TimeoutError):
    """The call's own time limit passed: DEADLINE_EXCEEDED."""


class UnconfirmedError(TransferError):
    """It may have been applied, but the peer cannot confirm it: UNCONFIRMED."""


class NotifyRejectedError(TransferError):
    """The peer did not take the notification: NOTIFY_REJECTED."""


class CancelledError(TransferError):
    """The caller cancelled the transfer, or a signal ended it: CANCELLED, INTERRUPTED."""


class ErrorText(str):
    """A failure as text, with its parts as attributes; empty, with None everywhere, when there was none."""

    code: str | None
    peer: str | None
    index: int | None  # type: ignore[assignment]  # of the descriptor; str.index is of no use here
    stage: str | None
    retry: str | None

    def __new__(
        cls,
        text: str,
        *,
        code: str | None = None,
        peer: str | None = None,
        index: int | None = None,
        stage: str | None = None,
        retry: str | None = None,
    ) -> ErrorText:
        self = super().__new__(cls, text)
        self.code = code
        self.peer = peer
        self.index = index
        self.stage = stage
        self.retry = retry
        return self


_CLASSES: dict[str, type[MoonrailError]] = {code: globals()[name] for code, name in CLASSES.items()}

_BY_STAGE: dict[str, type[MoonrailError]] = {"initialize": StartError, "register": RegistrationError}

_GENERAL = ("NAME_RESOLUTION", "METADATA", "BAD_PEER_NAME", "SYSTEM")
"""Codes that mean something else while starting or registering than they do of a peer."""


def exception(message: str, *, code: str, stage: str, retry: str, peer: str | None, index: int | None) -> MoonrailError:
    """The exception for a failure of the engine; called by the extension module."""
    kind = _CLASSES.get(code, TransferError)
    if code in _GENERAL:
        kind = _BY_STAGE.get(stage, kind)
    return kind(message, code=code, stage=stage, retry=retry, peer=peer, index=index)
