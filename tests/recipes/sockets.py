"""Ports and listening sockets of this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody had a moment ago, outside the range engines choose from by themselves."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def has_ipv6() -> bool:
    try:
        with closing(socket.socket(socket.AF_INET6)) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def listening_sockets(pid: int) -> Iterator[tuple[str, int]]:
    """(address, port) of every TCP socket that a process listens on."""
    inodes = set(socket_inodes(pid))
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        path = Path(f"/proc/{pid}/net/{table}")
        if not path.exists():
            continue
        for line in path.read_text(encoding="ascii").splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and columns[9] in inodes:
                address, port = columns[1].split(":")
                words = bytes.fromhex(address)
                # The kernel prints each 32-bit word of the address in the byte order of this machine.
                packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
                yield socket.inet_ntop(family, packed), int(port, 16)


def socket_inodes(pid: int) -> Iterable[str]:
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{entry}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]
