"""The processes of one cell, seen from the harness: nodes and metadata servers, each with limits, each ended by pid.

Must not know the cases.
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.interop.environments import Environment, Unavailable

NODE_PROGRAM = Path(__file__).resolve().parent / "node.py"
NODE_LIFETIME_SECONDS = 180
START_SECONDS = 30.0
CALL_SECONDS = 45.0
SERVER_START_SECONDS = 20.0
RELAY_IDLE_SECONDS = 20.0


class NodeFailed(Exception):
    """A node died, hung or answered with an exception; the text says which."""


@dataclass(frozen=True)
class Outcome:
    """What a timed call of the engine came to."""

    code: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the engine reported success."""
        return self.code == 0


class Node:
    """One process that runs `node.py` in an engine's environment."""

    def __init__(self, label: str, environment: Environment, variables: dict[str, str], log: Path) -> None:
        self.label = label
        self.environment = environment
        self.log = log
        self._log_file = log.open("ab")
        self._process = subprocess.Popen(
            [str(environment.python), "-I", str(NODE_PROGRAM), str(NODE_LIFETIME_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log_file,
            env=clean_environment() | variables,
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._read, name=f"{label} replies", daemon=True).start()

    def call(self, do: str, timeout: float = CALL_SECONDS, **arguments: Any) -> Any:
        """Asks and waits for the reply; a node that does not answer in time is killed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            self.kill()
            raise NodeFailed(f"{self.label} did not return from {do} within {timeout:.0f} s") from None
        except OSError:
            line = None
        if line is None:
            raise NodeFailed(f"{self.label} {self._how_it_ended()} in {do}")
        reply = json.loads(line)
        if "error" in reply:
            raise NodeFailed(f"{self.label} raised {reply['error']} in {do}")
        return reply["value"]

    def timed(self, do: str, timeout: float = CALL_SECONDS, **arguments: Any) -> Outcome:
        """As `call`, for calls that report a code and a duration."""
        value = self.call(do, timeout, **arguments)
        return Outcome(int(value["code"]), float(value["seconds"]))

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def close(self, timeout: float = 10.0) -> int:
        """Ends the engine and the process as a program would; the exit status."""
        self.call("close", timeout)
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeFailed(f"{self.label} did not exit within {timeout:.0f} s") from None

    def kill(self) -> None:
        """Ends the process at once."""
        end(self._process)
        self._log_file.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as replies:
            for line in replies:
                self._lines.put(line)
        self._lines.put(None)

    def _how_it_ended(self) -> str:
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "closed its output"
        return f"died of {signal.Signals(-status).name}" if status < 0 else f"exited with {status}"


class MetadataServer:
    """An HTTP metadata server, Moonrail's or the genuine one."""

    def __init__(self, arguments: list[str], port: int, log: Path, *, frees_dead_names: bool) -> None:
        self.frees_dead_names = frees_dead_names
        """Whether an engine may take the name of one that died without withdrawing it."""
        self.url = f"http://127.0.0.1:{port}/metadata"
        self.log = log
        self._log_file = log.open("ab")
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=self._log_file,
            stderr=subprocess.STDOUT,
            env=clean_environment(),
        )
        self._wait_until_it_answers()

    @staticmethod
    def moonrail(program: Path, log: Path) -> MetadataServer:
        """`moonrail metadata-server`."""
        port = free_ports(1)
        arguments = [str(program), "metadata-server", "--host", "127.0.0.1", "--port", str(port)]
        return MetadataServer(arguments, port, log, frees_dead_names=True)

    @staticmethod
    def genuine(environment: Environment, log: Path) -> MetadataServer:
        """`mooncake_http_metadata_server`."""
        port = free_ports(1)
        program = environment.script("mooncake_http_metadata_server")
        arguments = [str(program), "--host", "127.0.0.1", "--port", str(port)]
        return MetadataServer(arguments, port, log, frees_dead_names=False)

    def __enter__(self) -> MetadataServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self._process)
        self._log_file.close()

    def get(self, key: str) -> str | None:
        """The value of a key; None when there is none."""
        status, body = self._request("GET", key)
        return body if status == 200 else None

    def delete(self, key: str) -> None:
        """Removes a key, if it is there."""
        self._request("DELETE", key)

    def _request(self, method: str, key: str) -> tuple[int, str]:
        url = f"{self.url}?key={urllib.parse.quote(key, safe='')}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(url, method=method), timeout=5) as reply:
                return int(reply.status), reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + SERVER_START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self._request("GET", "mooncake/ram/none")
            except OSError:
                time.sleep(0.05)
            else:
                return
        end(self._process)
        self._log_file.close()
        raise Unavailable(f"the metadata server does not answer at {self.url}: {tail(self.log)}")


class Relay:
    """A port that passes connections on to another one, which may change: an address that outlives its owner."""

    def __init__(self) -> None:
        self.destination = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def close(self) -> None:
        """Takes no more connections."""
        # Wakes the accepting thread, which a plain close would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.destination), timeout=5)
            except OSError:
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                source.settimeout(RELAY_IDLE_SECONDS)
                threading.Thread(target=pass_on, args=(source, sink), name="relay", daemon=True).start()


def pass_on(source: socket.socket, sink: socket.socket) -> None:
    """Copies bytes until the source ends, and then ends the sink's direction."""
    try:
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        # Neither side is of use any more; the thread of the other direction sees it too.
        for one in (source, sink):
            one.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills one process by its id and reaps it."""
    if process.poll() is None:
        process.kill()
    process.wait()
    if process.stdin is not None:
        try:
            process.stdin.close()
        except OSError:
            pass  # Unsent bytes of a pipe whose reader is gone.


def clean_environment() -> dict[str, str]:
    """This process's environment without what would change an engine or divert its HTTP calls."""
    unwanted = ("MC_", "MOONRAIL_", "GLOG_")
    proxies = {"http_proxy", "https_proxy", "all_proxy"}
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(unwanted) and name.lower() not in proxies and name != "PYTHONPATH"
    }


def free_ports(count: int) -> int:
    """The first of `count` neighbouring TCP ports that nobody listens on, outside the engines' own ranges."""
    for _ in range(200):
        first = random.randrange(18000, 32000)
        if all(port_is_free(port) for port in range(first, first + count)):
            return first
    raise Unavailable("no free TCP ports between 18000 and 32000")


def port_is_free(port: int) -> bool:
    """Whether a listener can be bound to the port on every address."""
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
