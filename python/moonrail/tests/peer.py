"""A target process: one engine with a pool and a small named buffer, told what to do on standard input.

A request is one JSON object a line, and so is its answer.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import moonrail


def main() -> None:
    engine = moonrail.Engine(sys.argv[1])
    pool = engine.allocate(int(sys.argv[2]), name="pool")
    aux = engine.allocate(4096, name="aux")
    view = pool.view
    print(json.dumps({"name": engine.name, "addr": pool.addr, "aux": aux.addr}), flush=True)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        answer: Any = None
        start = request.get("offset", 0)
        stop = start + request.get("size", 0)
        if request["do"] == "read":
            answer = view[start:stop].hex()
        elif request["do"] == "digest":
            answer = hashlib.sha256(view[start:stop]).hexdigest()
        elif request["do"] == "write":
            data = bytes.fromhex(request["data"])
            view[start : start + len(data)] = data
        elif request["do"] == "notifies":
            answer = engine.notifies()
        elif request["do"] == "free-aux":
            aux.free()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
