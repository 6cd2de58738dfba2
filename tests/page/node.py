"""An engine with a pool at a metadata server, told what to do on standard input.

A request is one JSON object a line, and so is its answer. Its figures are served on a port of 127.0.0.1, unless it was
told to be quiet.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import moonrail

POOL = 8 << 20


def main() -> None:
    name, metadata, metrics = sys.argv[1:]
    options: dict[str, Any] = {"metrics": metrics} if metrics != "none" else {}
    engine = moonrail.Engine(name, metadata, listen="127.0.0.1", **options)
    pool = engine.allocate(POOL, name="pool")
    stop = threading.Event()
    print(json.dumps({"name": engine.name}), flush=True)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        answer: Any = None
        if request["do"] == "write":
            answer = write(engine, pool, request["peer"])
        elif request["do"] == "load":
            arguments = (engine, pool, request["peer"], stop)
            threading.Thread(target=load, args=arguments, daemon=True).start()
        elif request["do"] == "stop":
            stop.set()
        print(json.dumps(answer), flush=True)


def write(engine: moonrail.Engine, pool: moonrail.Buffer, peer: str) -> str | None:
    """The code of the failure, if it failed."""
    try:
        engine.connect(peer).write(pool[:65536], engine.connect(peer).buffer("pool")[:65536], timeout=5.0)
    except moonrail.MoonrailError as error:
        return error.code
    return None


def load(engine: moonrail.Engine, pool: moonrail.Buffer, peer: str, stop: threading.Event) -> None:
    """Writes and reads until it is told to stop, with rests, so that the machine has time for the browser."""
    target = engine.connect(peer)
    remote = target.buffer("pool")
    while not stop.wait(0.01):
        target.write(pool[: 1 << 20], remote[: 1 << 20])
        target.read(pool[: 1 << 18], remote[: 1 << 18])


if __name__ == "__main__":
    main()
