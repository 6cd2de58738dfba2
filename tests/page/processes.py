"""The processes of this folder: a metadata server and engines, each ended by its pid."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

NODE = Path(__file__).with_name("node.py")
START_SECONDS = 30.0
CALL_SECONDS = 20.0

AnyProcess = TypeVar("AnyProcess", bound="Process")


class Process:
    """A program that answers in JSON lines."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MC_", "MOONRAIL_"))}
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=kept | environment,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.ready: dict[str, Any] = self._answer(START_SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _answer(self, seconds: float) -> Any:
        line = self._lines.get(timeout=seconds)
        assert line, f"the process ended with {self._process.wait(5)}"
        return json.loads(line)

    def ask(self, do: str, **request: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()
        return self._answer(CALL_SECONDS)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    def __enter__(self: AnyProcess) -> AnyProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        self._process.stdout.close()


class Server(Process):
    """`moonrail metadata-server` on a free port of 127.0.0.1, or on the one given."""

    def __init__(self, port: int = 0) -> None:
        super().__init__("-m", "moonrail", "metadata-server", "--port", str(port), "--json")
        self.metadata: str = self.ready["url"]
        self.port: int = self.ready["port"]
        self.root = self.metadata.removesuffix("metadata")


class Engine(Process):
    """`node.py`."""

    def __init__(self, name: str, server: Server, quiet: bool = False, paths: str = "tcp") -> None:
        figures = {} if quiet else {"MOONRAIL_METRICS": "127.0.0.1:0"}
        super().__init__(str(NODE), name, server.metadata, MOONRAIL_PATHS=paths, **figures)
        self.name: str = self.ready["name"]
