"""Mooncake's two data protocols and its handshake by hand, as its old and new releases speak them."""

from __future__ import annotations

import json
import socket
import struct
from contextlib import closing
from typing import Any

READ, WRITE, V2 = 0, 1, 0x80
STATUS_MAGIC = 0x4D435456
SECONDS = 5.0


def metadata(port: int, host: str = "127.0.0.1") -> dict[str, Any]:
    """The segment descriptor of the engine behind a handshake port."""
    body = b"\x01{}\n"
    with closing(socket.create_connection((host, port), SECONDS)) as peer:
        peer.sendall(struct.pack("<Q", len(body)) + body)
        (length,) = struct.unpack("<Q", exactly(peer, 8))
        reply = exactly(peer, length)
    assert reply[0] == 1
    descriptor: dict[str, Any] = json.loads(reply[1:])
    return descriptor


def data_connection(handshake_port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection((host, metadata(handshake_port, host)["tcp_data_port"]), SECONDS)


def header(size: int, address: int, opcode: int) -> bytes:
    return struct.pack("<QQB7x", size, address, opcode)


def write(connection: socket.socket, address: int, data: bytes, version: int) -> int | None:
    """The status of a v2 write; None for v1, which has none."""
    connection.sendall(header(len(data), address, WRITE | (V2 if version == 2 else 0)) + data)
    return status(connection) if version == 2 else None


def read(connection: socket.socket, address: int, size: int, version: int) -> bytes:
    connection.sendall(header(size, address, READ | (V2 if version == 2 else 0)))
    if version == 2:
        assert status(connection) == 0
    return exactly(connection, size)


def status(connection: socket.socket) -> int:
    code, magic = struct.unpack("<II", exactly(connection, 8))
    assert magic == STATUS_MAGIC
    return int(code)


def exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError(f"the peer closed after {len(data)} of {size} bytes")
        data += part
    return bytes(data)
