"""What is run: the engines, each with an interpreter that can import it, and the machine's ceilings.

Must not know what their figures mean.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benches import cases
from benches.cases import COLLAPSED, OPS, OWN_COST, REGISTERED, REGISTERED_AT_MOST, SYNC, Key
from benches.far import FAR
from benches.rows import Row, parse
from tests.interop import environments
from tests.interop.environments import Unavailable

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "bench"
PLOT_REQUIREMENTS = HERE.parent / "python" / "requirements" / "plots.txt"
NIXL = "nixl"
NIXL_PACKAGE = "nixl-cu12"
RUST = "moonrail-rust"
RUST_PROGRAM = "MOONRAIL_RUST_ROWS"
"""Names the program that measures the Rust API, where it is not in target/release."""
RUST_NAMES = (*(case.name for case in SYNC[:2]), OWN_COST)

API_GROUPS = ("plain", "mixed", "cold", "threads", "registration", "trace")
GROUPS_OF = {
    "moonrail": (*API_GROUPS, "managed", "pages", "peers"),
    "moonrail-tcp": (*API_GROUPS, "peers"),
    "genuine": (*API_GROUPS, "genuine"),
    "moonrail-to-genuine": ("genuine",),
    "genuine-to-moonrail": ("genuine",),
    RUST: ("plain",),
    NIXL: ("plain", "mixed"),
}
BUILT_IN = tuple(GROUPS_OF)
DEFAULT = tuple(name for name in BUILT_IN if name != NIXL)
CEILING_GROUPS = ("plain", "mixed", "managed", "pages", "cold", "genuine")
RUN_SECONDS = 900
"""One engine's cases in one round."""


@dataclass(frozen=True)
class Engine:
    """A command that prints rows (rows.py)."""

    name: str
    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    version: str = ""
    known_as: str = ""
    """Which of BUILT_IN it is; empty for a command of the caller's, which runs engine_bench.py's cases."""

    @property
    def takes_cpu(self) -> bool:
        """Whether it can say what CPU it used."""
        return self.known_as not in (RUST, NIXL)

    def groups(self, wanted: Sequence[str]) -> list[str]:
        """Those of the wanted groups that it runs."""
        return [group for group in GROUPS_OF.get(self.known_as, API_GROUPS) if group in wanted]

    def keys(self, groups: Sequence[str], only: str) -> list[Key]:
        """The rows to expect."""
        if self.known_as == RUST:
            rows = [(name, op) for name in RUST_NAMES for op in (OPS if name != OWN_COST else ("write",))]
            return [key for key in rows if only in key[0]]
        return cases.keys(groups, only, self.most_registered)

    @property
    def most_registered(self) -> int:
        """Buffers in one registration."""
        return REGISTERED_AT_MOST.get(self.known_as, max(REGISTERED))

    def rows(self, wanted: Sequence[str], only: str, flags: list[str]) -> Iterator[Row]:
        """Runs it once. What it did not print is a row with an error."""
        groups = self.groups(wanted)
        missing = dict.fromkeys(self.keys(groups, only)) if groups else {}
        if not missing:
            return
        arguments = [*self.command, *flags, *(["--only", only] if only else [])]
        if self.known_as != RUST:
            arguments += [word for group in groups for word in ("--group", group)]
        if self.most_registered < max(REGISTERED):
            arguments += ["--most-registered", str(self.most_registered)]
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

    def rows(self, wanted: Sequence[str], only: str, quick: bool) -> Iterator[Row]:
        """Runs it once; the rows name the ceiling that they are of."""
        groups = [group for group in CEILING_GROUPS if group in wanted]
        lines = []
        for case in cases.chosen(groups, only):
            memory = "huge" if case in COLLAPSED else case.memory
            lines.append(f"{case.count} {case.measured(quick)} {memory} {case.before} {case.name}")
            requests = zip(case.lengths, case.sources, case.targets, strict=True)
            lines += [f"{length} {source} {target}" for length, source, target in requests]
        if not lines:
            return
        done = subprocess.run(
            [str(self.program)],
            input="\n".join([*lines, ""]),
            stdout=subprocess.PIPE,
            text=True,
            timeout=RUN_SECONDS,
            check=True,
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
        return replace(known, name=name, variables=known.variables | variables)
    if not command:
        raise Unavailable(f"engine {name!r} is not one of {', '.join(BUILT_IN)}; others need NAME=COMMAND")
    return Engine(name, shlex.split(command), variables)


def built_in(name: str) -> Engine:
    """An engine that needs no more than its name."""
    if name == NIXL:
        python, version = nixl()
        return Engine(name, [str(python), str(HERE / "nixl_bench.py")], {}, version, name)
    if name == RUST:
        return Engine(name, [str(rust_program())], {}, importlib.metadata.version("moonrail"), name)
    bench = str(HERE / "engine_bench.py")
    near, _, far = name.partition("-to-")
    python, variables, version = home(near)
    if far:
        far_python, far_variables, far_version = home(far)
        variables = variables | {FAR: json.dumps({"python": str(far_python), "variables": far_variables})}
        version = f"{version} to {far_version}"
    return Engine(name, [str(python), bench], variables, version, name)


def home(name: str) -> tuple[Path, dict[str, str], str]:
    """An engine's interpreter, its variables, and its release."""
    if name == "genuine":
        python = environments.genuine(environments.LATEST).python
        return python, {"PYTHONPATH": str(numpy_folder()), "MOONRAIL_AS_MOONCAKE": ""}, environments.LATEST
    python = environments.moonrail(Path(sys.executable)).python
    paths = {"MOONRAIL_PATHS": "tcp"} if name == "moonrail-tcp" else {}
    variables = {"MOONRAIL_AS_MOONCAKE": "1", "PYTHONPATH": ""} | paths
    return python, variables, importlib.metadata.version("moonrail")


def rust_program() -> Path:
    """What measures the Rust API."""
    named = os.environ.get(RUST_PROGRAM)
    program = Path(named) if named else HERE.parent / "target" / "release" / "rust-rows"
    if not program.exists():
        raise Unavailable(f"{program} is missing: cargo build --release --package moonrail-benches --bin rust-rows")
    return program


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


def plotter() -> Path:
    """An interpreter that can draw."""
    wanted = PLOT_REQUIREMENTS.read_text(encoding="utf-8")
    home = CACHE / "plots"
    stamp = home / ".complete"
    CACHE.mkdir(parents=True, exist_ok=True)
    with environments.exclusive(CACHE / ".lock"):
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
            shutil.rmtree(home, ignore_errors=True)
            environments.command([sys.executable, "-m", "venv", str(home)], f"cannot make the environment {home}")
            pip(home / "bin" / "python", ["--requirement", str(PLOT_REQUIREMENTS)])
            stamp.write_text(wanted, encoding="utf-8")
    return home / "bin" / "python"


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
