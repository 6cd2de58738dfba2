"""Target processes, memory and scripts for the tests of this folder."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

PEER = Path(__file__).with_name("peer.py")
POOL = 64 << 20


class PeerProcess:
    """A running `peer.py`."""

    def __init__(self, host: str = "127.0.0.1", size: int = POOL, paths: str = "tcp,shm") -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PEER), host, str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment() | {"MOONRAIL_PATHS": paths},
        )
        first = self._answer()
        self.name: str = first["name"]
        self.addr: int = first["addr"]
        self.aux: int = first["aux"]
        self.size = size

    def ask(self, do: str, **request: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the peer ended with {self.process.wait(5)}"
        return json.loads(line)

    def read(self, offset: int, size: int) -> bytes:
        return bytes.fromhex(self.ask("read", offset=offset, size=size))

    def write(self, offset: int, data: bytes) -> None:
        self.ask("write", offset=offset, data=data.hex())

    def digest(self, size: int, offset: int = 0) -> str:
        return str(self.ask("digest", offset=offset, size=size))

    def notifies(self) -> list[tuple[str, str]]:
        return [tuple(item) for item in self.ask("notifies")]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass


class Block:
    """Memory of this process that no engine knows yet."""

    def __init__(self, size: int, data: bytes = b"") -> None:
        self.size = size
        self.map = mmap.mmap(-1, size)
        self.map[: len(data)] = data
        self.addr = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def bytes(self, offset: int = 0, size: int | None = None) -> bytes:
        return self.map[offset : self.size if size is None else offset + size]


def clean_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MC_", "MOONRAIL_"))}
    return kept | more


def run(code: str, *arguments: str, timeout: float = 30, **environment: Any) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=clean_environment(**environment),
    )


def output(code: str, *arguments: str, timeout: float = 30, **environment: str) -> str:
    """The same; what it printed, when it ended well."""
    done = run(code, *arguments, timeout=timeout, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def mute_listener() -> Iterator[str]:
    """An address where connections are taken and nothing is ever said."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
