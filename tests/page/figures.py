"""An engine's figures over HTTP, counted from the transfers that this process really made.

It answers as an engine does that was told to (`GET /report`), and announces itself in the engine's descriptor.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
import urllib.request
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import moonrail


class Moved:
    """What was moved to or from one peer."""

    def __init__(self) -> None:
        self._transfers = 0
        self._bytes = 0
        self._took: deque[float] = deque(maxlen=1000)

    def add(self, size: int, seconds: float) -> None:
        self._transfers += 1
        self._bytes += size
        self._took.append(seconds * 1e6)

    def told(self, op: str, path: str) -> dict[str, Any]:
        took = sorted(self._took)
        latency = {"count": len(took), "p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100]}
        counters = {"transfers": self._transfers, "bytes": self._bytes, "failures": 0}
        return {"op": op, "path": path, "latency_us": latency} | counters


class Figures:
    """Counters of one engine, and the port that tells them."""

    def __init__(self, engine: moonrail.Engine, metadata: str) -> None:
        self._engine = engine
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._moved: dict[tuple[str, str], dict[str, Moved]] = {}
        self._failures: list[dict[str, Any]] = []
        figures = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(figures.report()).encode() if self.path == "/report" else b""
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._announce(metadata, f"http://127.0.0.1:{server.server_address[1]}")

    def moved(self, peer: moonrail.Peer, op: str, size: int, seconds: float) -> None:
        path = peer.path
        with self._lock:
            self._moved.setdefault((peer.name, path), {}).setdefault(op, Moved()).add(size, seconds)

    def failed(self, peer: str, op: str, error: moonrail.MoonrailError) -> None:
        failure = {"time_ms": time.time_ns() // 1_000_000, "peer": peer, "op": op, "message": str(error)}
        with self._lock:
            self._failures.append(
                failure | {"code": error.code, "stage": error.stage, "retry_safe": error.retry == "safe"}
            )

    def report(self) -> dict[str, Any]:
        own = self._engine.report()
        with self._lock:
            peers = [
                {"name": name, "path": path, "lanes": 1, "ops": [moved.told(op, path) for op, moved in ops.items()]}
                for (name, path), ops in self._moved.items()
            ]
            failures = self._failures[-64:]
        return {
            "schema": 1,
            "time_ms": time.time_ns() // 1_000_000,
            "name": own.name,
            "epoch": f"{own.epoch:016x}",
            "uptime_seconds": time.monotonic() - self._started,
            "paths": own.paths,
            "fallbacks": own.fallbacks,
            "served": {
                "requests": own.served,
                "refused": own.refused,
                "bytes_in": own.bytes_in,
                "bytes_out": own.bytes_out,
            },
            "peers": peers,
            "failures": failures,
        }

    def _announce(self, metadata: str, url: str) -> None:
        key = urllib.parse.quote(f"mooncake/ram/{self._engine.name}", safe="")
        address = f"{metadata}?key={key}"
        with urllib.request.urlopen(address, timeout=5) as answer:
            descriptor = json.load(answer)
        descriptor["moonrail"]["metrics"] = url
        request = urllib.request.Request(address, data=json.dumps(descriptor).encode(), method="PUT")
        urllib.request.urlopen(request, timeout=5).close()
