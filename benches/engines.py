"""What is run: the engines, each with an interpreter that can import it, and the machine's ceilings.

Must not know what their figures mean.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benches import cases
from benches.cases import Key
from benches.rows import Row, parse
from tests.interop import environments
from tests.interop.environments import Unavailable

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "bench"
DEFAULT = ("moonrail", "moonrail-tcp", "genuine")
NIXL = "nixl"
BUILT_IN = (*DEFAULT, NIXL)
NIXL_PACKAGE = "nixl-cu12"
RUN_SECONDS = 900
"""One engine's cases in one round."""


@dataclass(frozen=True)
class Engine:
    """A command that prints rows (rows.py)."""

    name: str
    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    version: str = ""
    plain: bool = False
    """Whether it runs the plain transfers only."""

    def keys(self, only: str) -> list[Key]:
        """The rows to expect."""
        return cases.transfer_keys(only) if self.plain else cases.engine_keys(only)

    def rows(self, only: str, flags: list[str]) -> Iterator[Row]:
        """Runs it once. What it did not print is a row with an error."""
        arguments = [*self.command, *flags, *(["--only", only] if only else [])]
        missing = dict.fromkeys(self.keys(only))
        with tempfile.TemporaryFile("w+") as log:
            lines, ending = run(arguments, os.environ | self.variables, log.fileno())
            log.seek(0)
            said = log.read().strip().splitlines()[-1:]
        for row in filter(None, map(parse, lines)):
            missing.pop(row.key, None)
            yield row
        for case, op in missing:
            yield Row(case, op, error=": ".join([f"no result; the engine {ending}", *said]))


@dataclass(frozen=True)
class Ceilings:
    """What the machine can do at most: ceilings.c, built once a run."""

    program: Path

    def rows(self, only: str, quick: bool) -> Iterator[Row]:
        """Runs it once; the rows name the ceiling that they are of."""
        wanted = "".join(
            f"{case.size} {case.count} {case.measured(quick)} {case.name}\n" for case in cases.chosen(only)
        )
        done = subprocess.run(
            [str(self.program)], input=wanted, stdout=subprocess.PIPE, text=True, timeout=RUN_SECONDS, check=True
        )
        yield from filter(None, map(parse, done.stdout.splitlines()))


def ceilings(folder: Path) -> Ceilings:
    """Builds them."""
    program = folder / "ceilings"
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise Unavailable("no C compiler for ceilings.c: install one, or name it in CC")
    environments.command(
        [compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), str(HERE / "ceilings.c")], "cannot build ceilings.c"
    )
    return Ceilings(program)


def engine(specification: str) -> Engine:
    """One of BUILT_IN, or NAME=COMMAND, or NAME=VARIABLE=VALUE,…:COMMAND.

    As COMMAND, one of BUILT_IN stands for that engine's.
    """
    name, _, command = specification.partition("=")
    variables = {}
    if match := re.fullmatch(r"((?:[A-Z_0-9]+=[^,:]*,?)+):(.*)", command, re.DOTALL):
        variables = dict(pair.split("=", 1) for pair in match[1].strip(",").split(","))
        command = match[2]
    if (command or name) in BUILT_IN:
        known = built_in(command or name)
        return Engine(name, known.command, known.variables | variables, known.version, known.plain)
    if not command:
        raise Unavailable(f"engine {name!r} is not one of {', '.join(BUILT_IN)}; others need NAME=COMMAND")
    return Engine(name, shlex.split(command), variables)


def built_in(name: str) -> Engine:
    """An engine that needs no more than its name."""
    bench = str(HERE / "engine_bench.py")
    if name in ("moonrail", "moonrail-tcp"):
        python = environments.moonrail(Path(sys.executable)).python
        version = importlib.metadata.version("moonrail")
        paths = {"MOONRAIL_PATHS": "tcp"} if name == "moonrail-tcp" else {}
        return Engine(name, [str(python), bench], {"MOONRAIL_AS_MOONCAKE": "1"} | paths, version)
    if name == "genuine":
        home = environments.genuine(environments.LATEST)
        return Engine(name, [str(home.python), bench], {"PYTHONPATH": str(numpy_folder())}, environments.LATEST)
    python, version = nixl()
    return Engine(name, [str(python), str(HERE / "nixl_bench.py")], {}, version, plain=True)


def numpy_folder() -> Path:
    """numpy beside the genuine engine's environment, which stays as it is."""
    home = CACHE / f"numpy-{sys.version_info[0]}.{sys.version_info[1]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with environments.exclusive(CACHE / ".lock"):
        if not (home / ".complete").exists():
            pip(Path(sys.executable), ["--target", str(home), "numpy"])
            (home / ".complete").touch()
    return home


def nixl() -> tuple[Path, str]:
    """An interpreter that has NIXL, and NIXL's release. Its CUDA libraries are left out: UCX needs none for host memory."""
    home = CACHE / "nixl"
    python = home / "bin" / "python"
    CACHE.mkdir(parents=True, exist_ok=True)
    with environments.exclusive(CACHE / ".lock"):
        if not (home / ".complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            environments.command([sys.executable, "-m", "venv", str(home)], f"cannot make the environment {home}")
            pip(python, ["numpy"])
            pip(python, ["--no-deps", NIXL_PACKAGE])
            (home / ".complete").touch()
    asked = f"import importlib.metadata as m; print(m.version({NIXL_PACKAGE!r}))"
    return python, subprocess.run([str(python), "-c", asked], capture_output=True, text=True, check=True).stdout.strip()


def pip(python: Path, arguments: list[str]) -> None:
    """Installs wheels."""
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    environments.command([*install, *arguments], f"cannot install {arguments[-1]}")


def run(arguments: list[str], variables: dict[str, str], log: int) -> tuple[list[str], str]:
    """The lines that it printed and how it ended; nothing that it started is left."""
    process = subprocess.Popen(
        arguments,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        errors="replace",
        cwd=HERE,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=RUN_SECONDS)
        status = process.returncode
        ending = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        ending = f"was not done after {RUN_SECONDS} s"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return printed.splitlines(), ending
