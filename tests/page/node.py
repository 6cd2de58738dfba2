"""An engine with a pool at a metadata server, told what to do on standard input.

A request is one JSON object a line, and so is its answer. Its figures are served on a port of 127.0.0.1, unless it was
told to be quiet.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import moonrail

# Run as a program, from anywhere.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.page.figures import Figures

POOL = 8 << 20
SMALL = 64 << 10
LARGE = 1 << 20


class Node:
    def __init__(self, name: str, metadata: str, quiet: bool) -> None:
        self.engine = moonrail.Engine(name, metadata, listen="127.0.0.1")
        self.pool = self.engine.allocate(POOL, name="pool")
        self.figures = None if quiet else Figures(self.engine, metadata)
        self.stop = threading.Event()

    def do(self, request: dict[str, Any]) -> Any:
        if request["do"] == "write":
            return self.move(request["peer"], "write", SMALL)
        if request["do"] == "load":
            threading.Thread(target=self.load, args=(request["peer"],), daemon=True).start()
        elif request["do"] == "stop":
            self.stop.set()
        return None

    def move(self, name: str, op: str, size: int) -> str | None:
        """The code of the failure, if it failed."""
        started = time.perf_counter()
        try:
            peer = self.engine.connect(name)
            remote = peer.buffer("pool")[:size]
            (peer.write if op == "write" else peer.read)(self.pool[:size], remote, timeout=5.0)
        except moonrail.MoonrailError as error:
            if self.figures is not None:
                self.figures.failed(name, op, error)
            return error.code
        if self.figures is not None:
            self.figures.moved(peer, op, size, time.perf_counter() - started)
        return None

    def load(self, peer: str) -> None:
        """Writes and reads until it is told to stop, with rests, so that the machine has time for the browser."""
        while not self.stop.wait(0.01):
            self.move(peer, "write", LARGE)
            self.move(peer, "read", LARGE // 4)


def main() -> None:
    name, metadata, figures = sys.argv[1:]
    node = Node(name, metadata, figures == "quiet")
    print(json.dumps({"name": node.engine.name}), flush=True)
    for line in sys.stdin:
        print(json.dumps(node.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
