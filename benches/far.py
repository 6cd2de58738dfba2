"""The process at the far end, and what both ends know of the bytes to move.

Must not know any engine: whoever starts it registers the memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import numpy as np

from benches.cases import Case
from benches.memory import Pool, drop, flush, huge_share

FAR = "BENCH_FAR"
"""Names another interpreter and environment for the far end, as JSON: {"python": PATH, "variables": {...}}."""


def pattern(seed: int, length: int) -> Pool:
    """Bytes that both ends can make for themselves."""
    return np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8)


def cpu_seconds() -> float:
    """What this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def serve(words: list[object], memory: Callable[[str], Pool]) -> NoReturn:
    """Says READY with the words, then answers questions about the memory of the kind last asked for, until the other end
    is gone."""
    print("READY", *words, flush=True)
    pool = np.empty(0, dtype=np.uint8)
    for line in sys.stdin:
        question, *rest = line.split()
        if question == "memory":
            pool = memory(rest[0])
            print("ANSWER", pool.ctypes.data, flush=True)
            continue
        length, seed = ([int(number) for number in rest] + [0, 0])[:2]
        if question == "clear":
            pool[:length] = 0
            answer = "cleared"
        elif question == "fill":
            pool[:length] = pattern(seed, length)
            answer = "filled"
        elif question == "drop":
            drop(pool, length)
            answer = "dropped"
        elif question == "flush":
            answer = str(flush())
        elif question == "digest":
            answer = hashlib.sha256(pool[:length].data).hexdigest()
        elif question == "huge":
            answer = str(huge_share(pool))
        elif question == "cpu":
            answer = str(cpu_seconds())
        else:
            break
        print("ANSWER", answer, flush=True)
    os._exit(0)


class Far:
    """The far end as the initiator sees it."""

    def __init__(self, script: str, *arguments: str, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        """Starts `script --target` with this interpreter, or with the one that the environment names."""
        other = json.loads(os.environ.get(FAR, "{}"))
        command = [other.get("python", sys.executable), str(Path(script).resolve()), "--target", *arguments]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **other.get("variables", {}), **variables},
        )
        self.words = self._line("READY")

    def ask(self, question: str, *words: object) -> str:
        """The answer to a question."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join([question, *map(str, words)]) + "\n")
        self.process.stdin.flush()
        return self._line("ANSWER")[0]

    def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()

    def _line(self, kind: str) -> list[str]:
        """The words of the next line of that kind; engines log to the same stream."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            first, *rest = line.split() or [""]
            if first == kind:
                return rest
        raise RuntimeError("the target process ended")


def prepare(case: Case, op: str, pool: Pool, far: Far) -> None:
    """Has the bytes to move at one end, and nothing of them at the other."""
    if op == "write":
        pool[: case.total] = pattern(case.seed(op), case.total)
        far.ask("clear", case.total)
    else:
        pool[: case.total] = 0
        far.ask("fill", case.total, case.seed(op))


def between(case: Case, op: str, pool: Pool, far: Far) -> None:
    """What the case wants done before each call."""
    if case.before == "flushed":
        far.ask("flush")
        flush()
    elif case.before == "untouched" and op == "write":
        far.ask("drop", case.total)
    elif case.before == "untouched":
        drop(pool, case.total)


def arrived(case: Case, op: str, pool: Pool, far: Far) -> bool:
    """Whether each request's bytes are where they belong."""
    sent = pattern(case.seed(op), case.total)
    expected = np.empty_like(sent)
    for source, target, length in zip(case.sources, case.targets, case.lengths, strict=True):
        if op == "write":
            expected[target : target + length] = sent[source : source + length]
        else:
            expected[source : source + length] = sent[target : target + length]
    if op == "read":
        return bool(np.array_equal(pool[: case.total], expected))
    return far.ask("digest", case.total) == hashlib.sha256(expected.data).hexdigest()
