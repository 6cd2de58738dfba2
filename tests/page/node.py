"""An engine with a pool at a metadata server, told what to do on standard input.

A request is one JSON object a line, and so is its answer. Where its figures are told is up to MOONRAIL_METRICS.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import moonrail

POOL = 8 << 20
SMALL = 64 << 10
LARGE = 1 << 20


class Node:
    def __init__(self, name: str, metadata: str) -> None:
        self.engine = moonrail.Engine(name, metadata, listen="127.0.0.1")
        self.pool = self.engine.allocate(POOL, name="pool")
        self.stop = threading.Event()

    def do(self, request: dict[str, Any]) -> Any:
        if request["do"] == "write":
            return self.write(request["peer"])
        if request["do"] == "load":
            threading.Thread(target=self.load, args=(request["peer"],), daemon=True).start()
        elif request["do"] == "stop":
            self.stop.set()
        return None

    def write(self, name: str) -> str | None:
        """The code of the failure, if it failed."""
        try:
            peer = self.engine.connect(name)
            peer.write(self.pool[:SMALL], peer.buffer("pool")[:SMALL], timeout=5.0)
        except moonrail.MoonrailError as error:
            return error.code
        return None

    def load(self, name: str) -> None:
        """Writes and reads until it is told to stop, with rests, so that the machine has time for the browser."""
        peer = self.engine.connect(name)
        remote = peer.buffer("pool")
        while not self.stop.wait(0.01):
            peer.write(self.pool[:LARGE], remote[:LARGE])
            peer.read(self.pool[: LARGE // 4], remote[: LARGE // 4])


def main() -> None:
    name, metadata = sys.argv[1:]
    node = Node(name, metadata)
    print(json.dumps({"name": node.engine.name}), flush=True)
    for line in sys.stdin:
        print(json.dumps(node.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
