"""One process that drives an engine through `moonrail.serving`, told what to do by JSON lines on stdin, as `node.py`.

Must not know what a result ought to be. Runs in any release's environment, with the package `moonrail` on PYTHONPATH.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import mmap
import os
import random
import signal
import sys
from typing import Any

from moonrail import CapabilityError
from moonrail.serving import ServingError, TransferEngine

PR_SET_PDEATHSIG = 1


class Records(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


class Node:
    """The requests a node answers: every public method is one, by its name."""

    def __init__(self) -> None:
        self._records = Records()
        logging.getLogger("moonrail.serving").addHandler(self._records)
        self._memory: dict[str, mmap.mmap] = {}

    def start(self, failures: str = "sglang") -> dict[str, Any]:
        """Makes the adapter."""
        self._engine = TransferEngine("127.0.0.1", protocol="tcp", failures=failures)  # type: ignore[arg-type]
        engine = self._engine
        module = sys.modules[type(engine.engine).__module__].__file__
        return {
            "session": engine.get_session_id(),
            "release": engine.release,
            "provides": sorted(engine.provides),
            "lacks": list(engine.lacks),
            "module": module,
            "moonrails": type(engine.engine).__module__.startswith("moonrail"),
        }

    def start_requiring(self, names: list[str]) -> str:
        """Tries to make an adapter that must have these; what it says."""
        try:
            TransferEngine("127.0.0.1", protocol="tcp", require=names)
        except CapabilityError as error:
            return str(error)
        return ""

    def allocate(self, name: str, length: int, seed: int) -> int:
        """Memory with the bytes of `seed` (0: zeros); its address."""
        memory = self._memory[name] = mmap.mmap(-1, length)
        if seed:
            memory[:] = random.Random(seed).randbytes(length)
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def digest(self, name: str) -> str:
        """SHA-256 of the memory."""
        return hashlib.sha256(self._memory[name]).hexdigest()

    def call(self, method: str, arguments: list[Any]) -> Any:
        """Calls a method of the adapter: its result, or what it raised."""
        try:
            return {"result": getattr(self._engine, method)(*arguments)}
        except ServingError as error:
            return {"raised": str(error), "code": error.code, "index": error.index, "result": error.result}
        except CapabilityError as error:
            return {"raised": str(error), "code": error.code}

    def raw(self, method: str, arguments: list[Any]) -> int:
        """Calls a method of the engine itself."""
        return int(getattr(self._engine.engine, method)(*arguments))

    def log(self) -> list[str]:
        """What was logged since the last time."""
        lines, self._records.lines = self._records.lines, []
        return lines


def main() -> int:
    """Answers requests until stdin ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.alarm(120)
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    node = Node()
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        name = str(request.pop("do"))
        try:
            reply = {"value": getattr(node, name)(**request)}
        except Exception as error:  # The test judges it.
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
