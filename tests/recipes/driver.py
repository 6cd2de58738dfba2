"""One process under test: owns engines and guarded memory, and does what its standard input says.

A request is one JSON object a line, and so is its answer. Standard library only, because the same file runs
under whatever Python holds the engine: ours, or a genuine Mooncake release. It prints nothing else on the
answer stream: file descriptor 1 is turned into 2 for everybody else in the process.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib
import json
import mmap
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

GUARD = 4096
GUARD_BYTE = b"\xa5"

Json = dict[str, Any]


def pattern(seed: int, size: int) -> bytes:
    """The bytes that `seed` stands for; the test computes the same ones."""
    return random.Random(seed).randbytes(size)


class Block:
    """Anonymous memory with guard bytes on both sides of the part that is given out."""

    def __init__(self, size: int, skew: int) -> None:
        self.start = GUARD + skew
        self.size = size
        self.map = mmap.mmap(-1, self.start + size + GUARD)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map)) + self.start
        self.map[: self.start] = GUARD_BYTE * self.start
        self.map[self.start + size : self.start + size + GUARD] = GUARD_BYTE * GUARD

    def write(self, offset: int, data: bytes) -> None:
        self.map[self.start + offset : self.start + offset + len(data)] = data

    def read(self, offset: int, size: int) -> bytes:
        return self.map[self.start + offset : self.start + offset + size]

    def digest(self, offset: int, size: int) -> str:
        with memoryview(self.map) as view:
            return hashlib.sha256(view[self.start + offset : self.start + offset + size]).hexdigest()

    def intact(self) -> bool:
        tail = self.start + self.size
        return self.map[: self.start] == GUARD_BYTE * self.start and self.map[tail : tail + GUARD] == GUARD_BYTE * GUARD


def engine_module() -> Any:
    """The package under test, imported no earlier than it is needed."""
    return importlib.import_module("mooncake.engine")


def memory_kib(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    raise KeyError(field)


def outcome(call: Callable[[], Any]) -> Json:
    start = time.perf_counter()
    try:
        value = call()
    except Exception as error:  # the class and text are what the test looks at
        return {
            "raised": type(error).__name__,
            "text": str(error),
            "seconds": time.perf_counter() - start,
        }
    return {"value": plain(value), "seconds": time.perf_counter() - start}


def plain(value: Any) -> Any:
    """A returned object as JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "name") and hasattr(value, "msg"):
        return {"name": value.name, "msg": value.msg}
    return {"object": type(value).__name__}


class Driver:
    def __init__(self) -> None:
        self.engines: dict[str, Any] = {}
        self.blocks: dict[int, Block] = {}
        self.running: dict[int, tuple[threading.Thread, Json]] = {}

    def handle(self, request: Json) -> Json:
        method: Callable[[Json], Json] = getattr(self, "do_" + request["do"])
        return method(request)

    def bound(self, request: Json) -> Callable[[], Any]:
        """The engine call that a request describes, arguments ready, not yet made."""
        method = getattr(self.engines[request.get("engine", "main")], request["method"])
        args = [self.argument(item) for item in request.get("args", [])]
        kwargs = {name: self.argument(item) for name, item in request.get("kwargs", {}).items()}
        return lambda: method(*args, **kwargs)

    def argument(self, item: Any) -> Any:
        """JSON as an argument; an object stands for what JSON cannot say, or for a long list."""
        if isinstance(item, list) and item and isinstance(item[0], dict):
            return [self.argument(part) for part in item]
        if not isinstance(item, dict):
            return item
        ((kind, value),) = item.items()
        if kind == "range":
            start, step, count = value
            return list(range(start, start + step * count, step)) if step else [start] * count
        if kind == "shuffled":
            seed, start, step, count = value
            items = list(range(start, start + step * count, step))
            random.Random(seed).shuffle(items)
            return items
        if kind == "join":
            return [number for part in value for number in self.argument(part)]
        if kind == "bytes":
            return bytes.fromhex(value)
        if kind in ("array", "scalar"):
            import numpy

            dtype, numbers = value
            return numpy.array(numbers, dtype=dtype) if kind == "array" else getattr(numpy, dtype)(numbers)
        module = engine_module()
        if kind == "opcode":
            return getattr(module.TransferOpcode, value)
        if kind == "notify":
            return module.TransferNotify(*value)
        raise ValueError(kind)

    # Engines

    def do_create(self, request: Json) -> Json:
        self.engines[request.get("engine", "main")] = engine_module().TransferEngine()
        return {}

    def do_destroy(self, request: Json) -> Json:
        start = time.perf_counter()
        self.engines.pop(request.get("engine", "main"))
        gc.collect()
        return {"seconds": time.perf_counter() - start}

    def do_reset(self, request: Json) -> Json:
        """As at the start of the process, as far as that can be: for the next test."""
        alive = [token for token, (thread, _) in self.running.items() if thread.is_alive()]
        if alive:
            raise RuntimeError(f"calls {alive} are still running")
        self.running.clear()
        self.engines.clear()
        gc.collect()
        self.blocks.clear()
        return {}

    def do_call(self, request: Json) -> Json:
        call = self.bound(request)
        if not request.get("memory"):
            return outcome(call)
        before = memory_kib("VmRSS")
        answer = outcome(call)
        answer["grown_kib"] = max(0, memory_kib("VmHWM") - before)
        return answer

    def do_repeat(self, request: Json) -> Json:
        """The same calls in turn, many times: how often each value came, and the slowest of all."""
        calls = [self.bound(request | step) for step in request.get("steps", [{}])]
        values: list[Counter[str]] = [Counter() for _ in calls]
        slowest = 0.0
        start = time.perf_counter()
        for _ in range(request["times"]):
            for call, counter in zip(calls, values, strict=True):
                begun = time.perf_counter()
                value = call()
                slowest = max(slowest, time.perf_counter() - begun)
                counter[str(value)] += 1
        return {"values": values, "slowest": slowest, "seconds": time.perf_counter() - start}

    def do_threads(self, request: Json) -> Json:
        """Every step in a thread of its own, all released at once, each `times` times."""
        calls = [self.bound(request | step) for step in request["steps"]]
        gate = threading.Barrier(len(calls))
        values: Counter[str] = Counter()
        lock = threading.Lock()

        def work(call: Callable[[], Any]) -> None:
            gate.wait()
            for _ in range(request.get("times", 1)):
                value = str(call())
                with lock:
                    values[value] += 1

        threads = [threading.Thread(target=work, args=(call,)) for call in calls]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"values": values, "seconds": time.perf_counter() - start}

    def do_start(self, request: Json) -> Json:
        """Begins a call in a thread; `finish` collects it."""
        call = self.bound(request)
        answer: Json = {}
        thread = threading.Thread(target=lambda: answer.update(outcome(call)), daemon=True)
        token = max(self.running, default=0) + 1
        self.running[token] = (thread, answer)
        thread.start()
        return {"token": token}

    def do_finish(self, request: Json) -> Json:
        thread, answer = self.running[request["token"]]
        thread.join(request["limit"])
        return {"running": True} if thread.is_alive() else answer

    def do_poll(self, request: Json) -> Json:
        """Asks `transfer_check_status` until it is no longer 0."""
        status = self.engines[request.get("engine", "main")].transfer_check_status
        start = time.perf_counter()
        polls = 0
        while True:
            value = status(request["id"])
            polls += 1
            seconds = time.perf_counter() - start
            if value != 0 or seconds > request["limit"]:
                return {"value": value, "seconds": seconds, "polls": polls}
            time.sleep(0.0002)

    def do_count_during(self, request: Json) -> Json:
        """How fast a Python thread counts while a call is made, and while nothing is."""
        ticks = 0
        stop = threading.Event()

        def count() -> None:
            nonlocal ticks
            while not stop.is_set():
                ticks += 1

        call = self.bound(request)
        thread = threading.Thread(target=count)
        thread.start()
        before = ticks
        start = time.perf_counter()
        time.sleep(0.3)
        idle = (ticks - before) / (time.perf_counter() - start)
        before = ticks
        answer = outcome(call)
        busy = (ticks - before) / answer["seconds"]
        stop.set()
        thread.join()
        return answer | {"idle_rate": idle, "busy_rate": busy}

    def do_fork(self, request: Json) -> Json:
        """Makes a call in a forked child; the child's way of leaving is part of the answer."""
        fresh = request.get("fresh", False)
        call = None if fresh else self.bound(request)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            if call is None:
                engine = engine_module().TransferEngine()
                answer = outcome(lambda: engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""))
                self.engines["fresh"] = engine
                if answer.get("value") == 0:
                    answer = outcome(self.bound(request | {"engine": "fresh"}))
            else:
                answer = outcome(call)
                explain = getattr(self.engines[request.get("engine", "main")], "last_error", None)
                answer["explanation"] = explain() if explain else None
            os.write(writer, json.dumps(answer).encode())
            if request.get("leave") == "finalize":
                os.close(writer)
                self.engines.clear()
                gc.collect()
                sys.exit(0)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
        return {
            "exit": os.waitstatus_to_exitcode(status),
            "answer": json.loads(text) if text else None,
        }

    # Memory

    def do_allocate(self, request: Json) -> Json:
        block = Block(request["size"], request.get("skew", 0))
        self.blocks[block.base] = block
        if request.get("seed") is not None:
            block.write(0, pattern(request["seed"], block.size))
        return {"base": block.base}

    def do_unmapped(self, request: Json) -> Json:
        """An address range that was mapped a moment ago and is no more."""
        size = request["size"]
        area = mmap.mmap(-1, size)
        holder = ctypes.c_char.from_buffer(area)
        base = ctypes.addressof(holder)
        del holder
        area.close()
        return {"base": base}

    def do_fill(self, request: Json) -> Json:
        self.blocks[request["base"]].write(request["offset"], pattern(request["seed"], request["size"]))
        return {}

    def do_digest(self, request: Json) -> Json:
        return {"digest": self.blocks[request["base"]].digest(request["offset"], request["size"])}

    def do_read(self, request: Json) -> Json:
        return {"data": self.blocks[request["base"]].read(request["offset"], request["size"]).hex()}

    def do_guards(self, request: Json) -> Json:
        return {"broken": [hex(block.base) for block in self.blocks.values() if not block.intact()]}

    def do_release(self, request: Json) -> Json:
        del self.blocks[request["base"]]
        return {}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    driver = Driver()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = driver.handle(request)
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if os.environ.get("DRIVER_LEAVE") != "finalize":
        os._exit(0)


if __name__ == "__main__":
    main()
