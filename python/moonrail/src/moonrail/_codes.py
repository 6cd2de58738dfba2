"""The codes of failures and the exception of each.

Made by `cargo xtask generate` from crates/reference/records; change it there.
"""

from __future__ import annotations

CLASSES: dict[str, str] = {
    "PERMISSION_DENIED": "RemoteRangeError",
    "TOKEN_REFUSED": "RemoteRangeError",
    "KEY_REQUIRED": "AccessError",
    "KEY_REFUSED": "AccessError",
    "PEER_UNPROVEN": "AccessError",
    "TLS_REQUIRED": "AccessError",
    "TLS_UNTRUSTED": "AccessError",
    "TLS_REFUSED": "AccessError",
    "TLS_NOT_OFFERED": "AccessError",
    "INVALID_ARGUMENT": "InvalidArgumentError",
    "LENGTH_MISMATCH": "InvalidArgumentError",
    "UNKNOWN_BATCH": "InvalidArgumentError",
    "NOT_INITIALIZED": "EngineClosedError",
    "FORKED": "EngineClosedError",
    "ADDRESS_OVERLAPPED": "RegistrationError",
    "ADDRESS_NOT_REGISTERED": "RegistrationError",
    "LOCAL_NOT_REGISTERED": "LocalRangeError",
    "REMOTE_NOT_REGISTERED": "RemoteRangeError",
    "REMOTE_REFUSED": "RemoteRangeError",
    "MEMORY_FAULT": "LocalRangeError",
    "REGION_BUSY": "RegistrationError",
    "BAD_PEER_NAME": "PeerUnreachableError",
    "NAME_RESOLUTION": "PeerUnreachableError",
    "PEER_UNREACHABLE": "PeerUnreachableError",
    "PEER_GONE": "PeerGoneError",
    "PEER_TIMEOUT": "PeerTimeoutError",
    "DEADLINE_EXCEEDED": "DeadlineError",
    "PROTOCOL_ERROR": "PeerProtocolError",
    "UNSUPPORTED_PEER": "PeerProtocolError",
    "UNCONFIRMED": "UnconfirmedError",
    "NOTIFY_REJECTED": "NotifyRejectedError",
    "CHECKSUM_MISMATCH": "PeerProtocolError",
    "METADATA": "PeerUnreachableError",
    "NAME_TAKEN": "StartError",
    "LISTEN_FAILED": "StartError",
    "UNKNOWN_PROTOCOL": "StartError",
    "MISSING_CAPABILITY": "CapabilityError",
    "RESOURCE_LIMIT": "ResourceLimitError",
    "CANCELLED": "CancelledError",
    "INTERRUPTED": "CancelledError",
    "SYSTEM": "TransferError",
}
"""The class in `moonrail.errors` by code; some stages have another one."""
