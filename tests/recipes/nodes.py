"""Processes under test, seen from the test: start them, call their engines, look at what they hold.

The test process itself never imports the engine, so a crash or a hang is a failed test and not the end of the run.
Only processes started here are ever signalled.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .driver import Json
from .sockets import listening_sockets

DRIVER = Path(__file__).with_name("driver.py")
LIMIT_S = 30.0
"""How long any single answer may take, whatever the test says."""


class NodeDied(AssertionError):
    """The process under test ended in the middle of something."""


class NodeHung(AssertionError):
    """The process under test did not answer within its limit."""


@dataclass(frozen=True)
class Outcome:
    """What one call gave: a value, or an exception, and how long it took."""

    value: Any
    raised: str | None
    text: str
    seconds: float
    more: Json

    @classmethod
    def of(cls, answer: Json) -> Outcome:
        return cls(
            answer.get("value"),
            answer.get("raised"),
            answer.get("text", ""),
            answer.get("seconds", 0.0),
            answer,
        )

    @property
    def ok(self) -> bool:
        return self.raised is None and self.value == 0 and self.value is not False


@dataclass
class Region:
    """A block of memory in a node, guard bytes around it."""

    node: Node
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size

    def at(self, offset: int) -> int:
        return self.base + offset

    def fill(self, seed: int, offset: int = 0, size: int | None = None) -> None:
        self.node.ask(
            "fill",
            base=self.base,
            offset=offset,
            seed=seed,
            size=self.size - offset if size is None else size,
        )

    def digest(self, offset: int = 0, size: int | None = None) -> str:
        size = self.size - offset if size is None else size
        return str(self.node.ask("digest", base=self.base, offset=offset, size=size)["digest"])

    def read(self, offset: int, size: int) -> bytes:
        return bytes.fromhex(self.node.ask("read", base=self.base, offset=offset, size=size)["data"])


@dataclass(frozen=True)
class Usage:
    """What a process holds."""

    rss_kib: int
    files: int
    threads: int


@dataclass(eq=False)
class Node:
    """One process under test."""

    process: subprocess.Popen[bytes]
    log_path: Path
    host: str = "127.0.0.1"
    expected_to_die: bool = False
    buffered: bytearray = field(default_factory=bytearray)
    log_start: int = 0
    """Where the part of the log begins that belongs to this test."""
    reusable: bool = False
    unanswered: int = 0

    # The line protocol

    def send(self, do: str, **request: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.death() from None
        self.unanswered += 1

    def receive(self, limit: float = LIMIT_S) -> Json:
        line = self.read_line(limit)
        self.unanswered -= 1
        answer: Json = json.loads(line)
        assert "failed" not in answer, f"the driver failed: {answer['failed']}\n{self.log_tail()}"
        return answer

    def ask(self, do: str, /, wait: float = LIMIT_S, **request: Any) -> Json:
        self.send(do, **request)
        return self.receive(wait)

    def read_line(self, limit: float) -> bytes:
        assert self.process.stdout is not None
        end = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.buffered:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(left):
                    self.kill()
                    raise NodeHung(f"no answer within {limit} s\n{self.log_tail()}")
                chunk = os.read(self.process.stdout.fileno(), 1 << 20)
                if not chunk:
                    raise self.death()
                self.buffered += chunk
        line, _, rest = bytes(self.buffered).partition(b"\n")
        self.buffered = bytearray(rest)
        return line

    def death(self) -> NodeDied:
        code = self.process.wait(10)
        self.expected_to_die = True  # told here, once
        what = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return NodeDied(f"the process under test ended with {what}\n{self.log_tail()}")

    # Engines

    def create(self, engine: str = "main") -> None:
        self.ask("create", engine=engine)

    def destroy(self, engine: str = "main") -> float:
        """Drops the engine; the seconds that took."""
        return float(self.ask("destroy", engine=engine)["seconds"])

    def call(
        self,
        method: str,
        *args: Any,
        engine: str = "main",
        limit: float = LIMIT_S,
        memory: bool = False,
        **kwargs: Any,
    ) -> Outcome:
        answer = self.ask("call", wait=limit, method=method, args=args, kwargs=kwargs, engine=engine, memory=memory)
        return Outcome.of(answer)

    def start(self, method: str, *args: Any, engine: str = "main") -> int:
        """Begins a call in a thread of the node; give the token to `finish`."""
        return int(self.ask("start", method=method, args=args, engine=engine)["token"])

    def finish(self, token: int, limit: float = LIMIT_S) -> Outcome:
        answer = self.ask("finish", wait=limit + 5, token=token, limit=limit)
        assert "running" not in answer, f"a call was still running after {limit} s\n{self.log_tail()}"
        return Outcome.of(answer)

    def initialize(
        self,
        host: str = "127.0.0.1",
        metadata: str = "P2PHANDSHAKE",
        protocol: str = "tcp",
        engine: str = "main",
    ) -> Outcome:
        self.create(engine)
        return self.call("initialize", host, metadata, protocol, "", engine=engine)

    def port(self, engine: str = "main") -> int:
        value = self.call("get_rpc_port", engine=engine).value
        assert isinstance(value, int)
        return value

    @property
    def name(self) -> str:
        """What peers call the main engine."""
        return self.name_of("main")

    def name_of(self, engine: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port(engine)}"

    def explanation(self, engine: str = "main") -> str:
        """Why the last failing call failed; every failure must leave one."""
        outcome = self.call("last_error", engine=engine)
        assert isinstance(outcome.value, str), f"last_error() gave {outcome}"
        assert outcome.value.strip(), "last_error() is empty after a failure"
        return outcome.value

    # Memory

    def region(self, size: int, seed: int | None = None, skew: int = 0) -> Region:
        """Memory that no engine knows yet."""
        return Region(self, int(self.ask("allocate", size=size, seed=seed, skew=skew)["base"]), size)

    def registered(self, size: int, seed: int | None = None, skew: int = 0, engine: str = "main") -> Region:
        region = self.region(size, seed, skew)
        outcome = self.call("register_memory", region.base, size, engine=engine)
        assert outcome.ok, f"register_memory gave {outcome}\n{self.log_tail()}"
        return region

    def unmapped(self, size: int) -> int:
        return int(self.ask("unmapped", size=size)["base"])

    # The process

    @property
    def pid(self) -> int:
        return self.process.pid

    def alive(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        # A thread that is running when the process is told to stop goes on for a moment.
        while number == signal.SIGSTOP and not self.stopped():
            time.sleep(0.001)

    def stopped(self) -> bool:
        """Whether every thread is stopped."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.iterdir())

    def kill(self) -> None:
        self.expected_to_die = True
        if self.alive():
            self.process.kill()
        self.process.wait(10)

    def end(self) -> None:
        """Kills it and lets go of its pipes."""
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def leave(self, limit: float = 10.0) -> int:
        """Ends the node's input and waits for it to go; its exit code."""
        self.expected_to_die = True
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(limit)

    def log(self) -> list[str]:
        """The lines of its standard error."""
        return self.log_path.read_bytes()[self.log_start :].decode(errors="replace").splitlines()

    def log_tail(self) -> str:
        return "\n".join(["--- its standard error:", *self.log()[-15:]])

    def usage(self) -> Usage:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        fields = dict(line.split(":", 1) for line in status.splitlines())
        files = len(os.listdir(f"/proc/{self.pid}/fd"))
        return Usage(int(fields["VmRSS"].split()[0]), files, int(fields["Threads"]))

    def listeners(self) -> set[tuple[str, int]]:
        return set(listening_sockets(self.pid))


class Pool:
    """Processes that a test is done with, engines gone, for the next one: starting Python is most of a test's time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.idle: list[Node] = []
        self.count = 0

    def take(self) -> Node:
        while self.idle:
            node = self.idle.pop()
            if node.alive():
                node.log_start = node.log_path.stat().st_size
                node.host = "127.0.0.1"
                return node
            node.end()
        return self.start(sys.executable, {}, ())

    def start(self, python: str, env: dict[str, str], wrapper: Sequence[str]) -> Node:
        """A new process."""
        self.count += 1
        log_path = self.directory / f"node{self.count}.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MC_", "MOONRAIL_"))}
        if paths := os.environ.get("RECIPES_PATHS"):
            inherited["MOONRAIL_PATHS"] = paths
        with open(log_path, "wb") as log:
            process = subprocess.Popen(
                [*wrapper, python, str(DRIVER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=inherited | env,
            )
        return Node(process, log_path)

    def give_back(self, node: Node) -> None:
        node.ask("reset", wait=10)
        self.idle.append(node)

    def close(self) -> None:
        for node in self.idle:
            node.end()


class Nodes:
    """The nodes of one test. At its end, sees that none crashed and that no guard byte was touched."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.started: list[Node] = []

    def spawn(
        self,
        python: str | None = None,
        env: dict[str, str] | None = None,
        wrapper: Sequence[str] = (),
        fresh: bool = False,
    ) -> Node:
        """A node without an engine; `wrapper` is a command that runs the one behind it.

        `fresh` is for tests that need a process in which nothing has ever happened.
        """
        if fresh or python or env or wrapper:
            node = self.pool.start(python or sys.executable, env or {}, wrapper)
        else:
            node = self.pool.take()
            node.reusable = True
        self.started.append(node)
        return node

    def start(
        self,
        host: str = "127.0.0.1",
        metadata: str = "P2PHANDSHAKE",
        protocol: str = "tcp",
        python: str | None = None,
        env: dict[str, str] | None = None,
        fresh: bool = False,
    ) -> Node:
        """A node with a running engine."""
        node = self.spawn(python, env, fresh=fresh)
        bare = host.strip("[]")
        node.host = bare.partition(":")[0] if bare.count(":") == 1 else bare
        outcome = node.initialize(host, metadata, protocol)
        assert outcome.ok, f"initialize gave {outcome}\n{node.log_tail()}"
        return node

    def start_many(self, count: int, fresh: bool = False) -> list[Node]:
        """Nodes that initialise at the same moment."""
        started = [self.spawn(fresh=fresh) for _ in range(count)]
        for node in started:
            node.create()
        for node in started:
            node.send("call", method="initialize", args=["127.0.0.1", "P2PHANDSHAKE", "tcp", ""])
        for node in started:
            outcome = Outcome.of(node.receive())
            assert outcome.ok, f"initialize gave {outcome}\n{node.log_tail()}"
        return started

    def close(self) -> None:
        problems = []
        for node in self.started:
            problem = self.finish(node)
            if problem:
                problems.append(problem)
        assert not problems, "\n".join(problems)

    def finish(self, node: Node) -> str | None:
        """Ends or gives back a node; what was wrong with it."""
        try:
            if not node.alive():
                return None if node.expected_to_die else str(node.death())
            if node.unanswered:
                return None  # the test broke off in the middle and says why
            broken = node.ask("guards", wait=10)["broken"]
            if broken:
                return f"guard bytes were changed round {broken}"
            if node.reusable and not node.expected_to_die:
                self.pool.give_back(node)
                return None
        except AssertionError as error:
            return str(error)
        finally:
            if node not in self.pool.idle:
                node.end()
        return None
