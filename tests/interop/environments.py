"""Where the engines under test come from: the genuine releases and what each can do, and their virtual environments.

Must not know the cases. Environments lie under `.cache/interop/<release>` and are made once, with pip.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache" / "interop"
PACKAGE = "mooncake-transfer-engine-non-cuda"
PIP_SECONDS = 600
IMPORT_SECONDS = 60

# Library that the wheels need from the system -> Debian package that has it.
SYSTEM_LIBRARIES = {
    "libibverbs.so.1": "libibverbs1",
    "libnuma.so.1": "libnuma1",
    "libcurl.so.4": "libcurl4",
}


class Unavailable(Exception):
    """An engine, a library or a tool that the run needs is not here; the text says what to do."""


@dataclass(frozen=True)
class Release:
    """One engine under test. All that is here was seen on the wheels, not only read."""

    name: str
    moonrail: bool = False
    data_protocol: int = 2
    """The highest data protocol it speaks: 1 has no answer to a write."""
    has_send_probe: bool = True
    """Whether its Python API can probe."""
    answers_probe: bool = True
    """Whether it knows the probe message of the handshake."""
    pool_switch: bool = True
    """Whether MC_TCP_ENABLE_CONNECTION_POOL is known to it."""
    ipv6: bool = True
    """Whether its data port can be reached over IPv6, and whether it can reach one."""
    slab_at_start: bool = False
    """Whether its 2 GiB of managed memory is registered from the start, before any buffer of the user's."""
    notified_with_server: bool = True
    """Whether it opens its handshake port when there is a metadata server; without, notifications cannot come."""
    package: str = PACKAGE
    """The distribution that it is installed from."""
    keeps_connections: bool = True
    """Whether a data connection serves more than one request."""

    @property
    def genuine(self) -> bool:
        """Whether this is a release of Mooncake."""
        return not self.moonrail


MOONRAIL = Release("moonrail", moonrail=True, pool_switch=False)

RELEASES = {
    release.name: release
    for release in (
        Release(
            "0.3.7.post2",
            data_protocol=1,
            has_send_probe=False,
            answers_probe=False,
            pool_switch=False,
            ipv6=False,
            slab_at_start=True,
            notified_with_server=False,
            keeps_connections=False,
        ),
        Release(
            "0.3.9",
            data_protocol=1,
            has_send_probe=False,
            answers_probe=False,
            pool_switch=False,
            keeps_connections=False,
        ),
        Release("0.3.10.post2", data_protocol=1, has_send_probe=False),
        Release("0.3.11.post1", data_protocol=1),
        Release("0.3.12.post1"),
        Release("0.3.13.post1"),
    )
}
LATEST = "0.3.13.post1"

OLD = Release(
    "0.3.3.post2",
    data_protocol=1,
    has_send_probe=False,
    answers_probe=False,
    pool_switch=False,
    ipv6=False,
    slab_at_start=True,
    package="mooncake-transfer-engine",
    keeps_connections=False,
)
"""The release that has no batched calls. It serves data on its handshake port + 1 and looks for it there at its peers, so
it meets only its like: it is not a part of the matrix."""


@dataclass(frozen=True)
class Environment:
    """An engine together with the interpreter that can import it."""

    release: Release
    python: Path

    def script(self, name: str) -> Path:
        """A console script beside the interpreter."""
        return self.python.parent / name


def genuine(release: str) -> Environment:
    """The environment of a genuine release, made if it is not there."""
    known = RELEASES | {OLD.name: OLD}
    if release not in known:
        raise Unavailable(f"release {release} is not one of {', '.join(known)}")
    package = known[release].package
    require_system_libraries()
    home = CACHE / release
    python = home / "bin" / "python"
    stamp = home / ".complete"
    CACHE.mkdir(parents=True, exist_ok=True)
    with exclusive(CACHE / f".{release}.lock"):
        if not stamp.exists():
            shutil.rmtree(home, ignore_errors=True)
            command([sys.executable, "-m", "venv", str(home)], f"cannot make the environment {home}")
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            command(
                [*install, "--only-binary", ":all:", f"{package}=={release}"],
                f"cannot install {package}=={release} for Python {sys.version_info[0]}.{sys.version_info[1]}",
            )
            if not imports(python, "mooncake.engine"):
                raise Unavailable(f"{package}=={release} is installed in {home}, but cannot be imported")
            stamp.touch()
    return Environment(known[release], python)


def moonrail(named: Path | None = None) -> Environment:
    """The environment that has `moonrail` and `moonrail-mooncake`: never changed here.

    It is the one named; else the one this runs in, or one of `.cache/venv-test` and `.cache/venv`.
    """
    kept = [REPOSITORY / ".cache" / folder / "bin" / "python" for folder in ("venv-test", "venv")]
    candidates = [named] if named else [Path(sys.executable), *kept]
    for python in candidates:
        if python.exists() and imports(python, "moonrail", "mooncake.engine"):
            return Environment(MOONRAIL, python)
    raise Unavailable(
        f"the packages moonrail and moonrail-mooncake are not both installed for {' or '.join(map(str, candidates))}: "
        "name a Python that has them with --moonrail-python"
    )


def moonrail_program(environment: Environment, named: Path | None) -> Path:
    """The `moonrail` command: the one named, or the environment's, or the one that cargo built last."""
    built = [REPOSITORY / "target" / profile / "moonrail" for profile in ("release", "debug")]
    present = sorted((path for path in built if path.exists()), key=lambda path: -path.stat().st_mtime)
    candidates = [named] if named else [environment.script("moonrail"), *present]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise Unavailable("no moonrail command: build it (cargo build -p moonrail-cli) or name it with --moonrail-cli")


def require_system_libraries() -> None:
    """Sees that what the wheels link to is here; as root, installs what is missing."""
    missing = missing_libraries()
    packages = sorted(SYSTEM_LIBRARIES[name] for name in missing)
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        failure = f"cannot install {' '.join(packages)}"
        command(["apt-get", "update", "-qq"], failure)
        command(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], failure)
        missing = missing_libraries()
    if missing:
        raise Unavailable(
            f"genuine Mooncake needs {', '.join(missing)}: install them, e.g. apt-get install {' '.join(packages)}"
        )


def missing_libraries() -> list[str]:
    """The system libraries that cannot be loaded."""
    missing = []
    for name in SYSTEM_LIBRARIES:
        try:
            ctypes.CDLL(name)
        except OSError:
            missing.append(name)
    return missing


def imports(python: Path, *modules: str) -> bool:
    """Whether an interpreter has the modules."""
    arguments = [str(python), "-I", "-c", f"import {', '.join(modules)}"]
    return subprocess.run(arguments, capture_output=True, timeout=IMPORT_SECONDS, check=False).returncode == 0


def command(arguments: list[str], failure: str) -> None:
    """Runs to the end; what it printed becomes part of the error when it fails."""
    try:
        done = subprocess.run(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PIP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{failure}: not done after {PIP_SECONDS} s") from error
    if done.returncode != 0:
        raise Unavailable(f"{failure}: {done.stdout.strip()[-1500:]}")


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock file, so that two runs do not build one environment at once."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
