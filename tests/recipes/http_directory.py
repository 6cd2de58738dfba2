"""A metadata server as the HTTP contract describes it, small enough to be made to misbehave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Directory:
    """The keys, and the faults to show."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}
        self.refuse_put: str | None = None
        self.url = ""

    def key(self, kind: str, name: str) -> str:
        return f"mooncake/{kind}/{name}"


@contextmanager
def http_directory() -> Iterator[Directory]:
    directory = Directory()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def requested_key(self) -> str:
            return parse_qs(urlsplit(self.path).query).get("key", [""])[0]

        def do_GET(self) -> None:
            value = directory.keys.get(self.requested_key())
            if value is None:
                self.answer(404, b"metadata not found")
            else:
                self.answer(200, value)

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            key = self.requested_key()
            if directory.refuse_put is not None and directory.refuse_put in key:
                self.answer(500, b"no")
            elif "rpc_meta" in key and key in directory.keys:
                self.answer(400, b"Duplicate rpc_meta key not allowed")
            else:
                directory.keys[key] = body
                self.answer(200, b"metadata updated")

        def do_DELETE(self) -> None:
            if directory.keys.pop(self.requested_key(), None) is None:
                self.answer(404, b"metadata not found")
            else:
                self.answer(200, b"metadata deleted")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    directory.url = f"http://127.0.0.1:{server.server_address[1]}/metadata"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield directory
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
