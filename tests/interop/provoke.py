"""Makes a genuine engine say what the error reference has records of. Run by the genuine release's interpreter.

Before each provocation a line `### slug` goes to standard error, where the engine's log goes too. Needs nothing but
the engine.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

from mooncake.engine import TransferEngine


def main() -> None:
    engine, target = TransferEngine(), TransferEngine()
    say("mooncake-no-rdma-devices-found mooncake-local-segment-descriptor-not-found")
    engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
    say("mooncake-memory-allocator-already-initialized")
    target.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
    near, far = ctypes.create_string_buffer(1 << 20), ctypes.create_string_buffer(1 << 20)
    local, remote = ctypes.addressof(near), ctypes.addressof(far)
    peer = f"127.0.0.1:{target.get_rpc_port()}"
    engine.register_memory(local, 1 << 20)
    target.register_memory(remote, 1 << 19)
    write = engine.transfer_sync_write
    calls: list[tuple[str, Callable[[], object]]] = [
        ("mooncake-overlapped-memory-region", lambda: engine.register_memory(local + 100, 1000)),
        ("mooncake-zero-length-memory-region", lambda: engine.register_memory(remote, 0)),
        ("mooncake-connect-refused", lambda: write("127.0.0.1:1", local, remote, 100)),
        ("mooncake-failed-to-get-ip-address", lambda: write("not a session", local, remote, 100)),
        (
            "mooncake-address-not-within-registered-buffer mooncake-rejected-by-server",
            lambda: write(peer, local, remote + (1 << 19), 100),
        ),
        (
            "mooncake-lists-different-size",
            lambda: engine.batch_transfer_sync_write(peer, [local] * 2, [remote], [1]),
        ),
        (
            "mooncake-queue-full",
            lambda: engine.batch_transfer_sync_write(peer, [local] * 10000, [remote] * 10000, [16] * 10000),
        ),
        (
            "mooncake-http-metadata-curl mooncake-failed-to-set-location",
            lambda: TransferEngine().initialize("127.0.0.1:5", "http://127.0.0.1:1/metadata", "tcp", ""),
        ),
        ("mooncake-incompatible-function-arguments", lambda: print_type_error(write, peer, "x", remote, 1)),
        ("mooncake-object-has-no-attribute", lambda: print_attribute_error(engine)),
    ]
    for slug, call in calls:
        say(slug)
        call()
    os._exit(0)


def say(what: str) -> None:
    print("###", what, file=sys.stderr, flush=True)


def print_type_error(call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except TypeError as error:
        print("TypeError:", error, file=sys.stderr)


def print_attribute_error(engine: object) -> None:
    try:
        engine.no_such_method()  # type: ignore[attr-defined]
    except AttributeError as error:
        print("AttributeError:", error, file=sys.stderr)


main()
