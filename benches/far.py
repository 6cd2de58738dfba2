"""The process at the far end, and what both ends know of the bytes to move.

Must not know any engine: whoever starts it registers the memory.
"""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from benches.cases import POOL, Case

Pool = npt.NDArray[np.uint8]


def new_pool(length: int = POOL) -> Pool:
    """Memory with every page touched."""
    return np.full(length, 7, dtype=np.uint8)


def pattern(seed: int, length: int) -> Pool:
    """Bytes that both ends can make for themselves."""
    return np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8)


def cpu_seconds() -> float:
    """What this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def serve(pool: Pool, *words: object) -> NoReturn:
    """Says READY with the words, then answers questions about the memory until the other end is gone."""
    print("READY", *words, flush=True)
    for line in sys.stdin:
        question, *numbers = line.split()
        length, seed = ([int(number) for number in numbers] + [0, 0])[:2]
        if question == "clear":
            pool[:length] = 0
            answer = "cleared"
        elif question == "fill":
            pool[:length] = pattern(seed, length)
            answer = "filled"
        elif question == "digest":
            answer = hashlib.sha256(pool[:length].data).hexdigest()
        elif question == "cpu":
            answer = str(cpu_seconds())
        else:
            break
        print("ANSWER", answer, flush=True)
    os._exit(0)


class Far:
    """The far end as the initiator sees it."""

    def __init__(self, script: str) -> None:
        """Starts `script --target` with this interpreter."""
        command = [sys.executable, str(Path(script).resolve()), "--target"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.words = self._line("READY")

    def ask(self, question: str, *numbers: int) -> str:
        """The answer to a question."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join([question, *map(str, numbers)]) + "\n")
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


def arrived(case: Case, op: str, pool: Pool, far: Far) -> bool:
    """Whether each request's bytes are where they belong."""
    sent = pattern(case.seed(op), case.total).reshape(case.count, case.size)
    order = np.array(case.targets()) // case.size
    if op == "read":
        return bool(np.array_equal(pool[: case.total].reshape(case.count, case.size), sent[order]))
    expected = np.empty_like(sent)
    expected[order] = sent
    return far.ask("digest", case.total) == hashlib.sha256(expected.data).hexdigest()
