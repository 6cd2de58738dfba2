"""Three ways to be ``mooncake.engine``, and what must stay of a genuine Mooncake."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .support import clean_environment

TELL = """
import importlib.util, json, sys
import mooncake.engine
answer = {"engine": mooncake.engine.TransferEngine.__module__, "file": mooncake.engine.__file__}
answer["spec"] = importlib.util.find_spec("mooncake.engine") is not None
try:
    import mooncake.store
    answer["store"] = mooncake.store.WHO
except ImportError as error:
    answer["store"] = None
from mooncake import engine
answer["same"] = engine is mooncake.engine
answer["argv"] = sys.argv
print(json.dumps(answer))
"""


@pytest.fixture
def genuine(tmp_path: Path) -> Path:
    """A folder with a package that looks like a genuine Mooncake's."""
    package = tmp_path / "site" / "mooncake"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("WHO = 'genuine'\n")
    (package / "engine.py").write_text("class TransferEngine: pass\n")
    (package / "store.py").write_text("from mooncake.engine import TransferEngine\nWHO = 'genuine'\n")
    return package.parent


def python(*arguments: str, path: Path | None = None, **environment: Any) -> subprocess.CompletedProcess[str]:
    env = clean_environment(**environment)
    env.pop("PYTHONPATH", None)
    if path is not None:
        env["PYTHONPATH"] = str(path)
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=env)


def told(*arguments: str, path: Path | None = None, **environment: Any) -> dict[str, object]:
    done = python(*arguments, path=path, **environment)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_without_being_asked_nothing_changes(genuine: Path) -> None:
    answer = told("-c", TELL, path=genuine)
    assert answer["engine"] == "mooncake.engine"
    assert answer["store"] == "genuine"
    assert told("-c", TELL, path=genuine, MOONRAIL_AS_MOONCAKE="0")["engine"] == "mooncake.engine"


def test_the_variable_replaces_the_engine_only(genuine: Path) -> None:
    answer = told("-c", TELL, path=genuine, MOONRAIL_AS_MOONCAKE="1")
    assert answer["engine"] == "moonrail.mooncake"
    assert answer["store"] == "genuine"
    assert answer["spec"] is True
    assert answer["same"] is True


def test_run_replaces_the_engine_only(genuine: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TELL)
    for how in (["-c", TELL], [str(program)], ["-m", "program"]):
        path = f"{genuine}{os.pathsep}{tmp_path}"
        answer = told("-m", "moonrail.run", *how, "a", "-b", path=Path(path))
        assert answer["engine"] == "moonrail.mooncake", how
        assert answer["store"] == "genuine"
        argv = answer["argv"]
        assert isinstance(argv, list)
        assert argv[1:] == ["a", "-b"]


def test_run_covers_child_processes(genuine: Path) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {TELL!r}], check=True)"
    assert told("-m", "moonrail.run", "-c", code, path=genuine)["engine"] == "moonrail.mooncake"


def test_run_passes_on_how_a_program_ends(tmp_path: Path) -> None:
    assert python("-m", "moonrail.run", "-c", "raise SystemExit(7)").returncode == 7
    done = python("-m", "moonrail.run", "-c", "1 / 0")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert python("-m", "moonrail.run", "no-such-program").returncode == 2
    assert python("-m", "moonrail.run").returncode == 2
    assert python("-m", "moonrail.run", "-m").returncode == 2
    assert python("-m", "moonrail.run", "--help").returncode == 0


def test_run_finds_commands(tmp_path: Path) -> None:
    script = tmp_path / "serve"
    script.write_text(f"#!{sys.executable}\n{TELL}")
    script.chmod(0o755)
    environment: dict[str, Any] = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    assert told("-m", "moonrail.run", "serve", **environment)["engine"] == "moonrail.mooncake"
    shell = tmp_path / "wrapped"
    shell.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    shell.chmod(0o755)
    answer = told("-m", "moonrail.run", "wrapped", "x", **environment)
    assert answer["engine"] == "moonrail.mooncake"
    assert answer["argv"] == [str(script), "x"]


def test_the_script_folder_is_first_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("print('found')\n")
    (tmp_path / "program.py").write_text("import neighbour\n")
    done = python("-m", "moonrail.run", str(tmp_path / "program.py"))
    assert done.stdout == "found\n", done.stderr


def test_without_any_mooncake_the_variable_brings_the_package(tmp_path: Path) -> None:
    """In an environment where the distribution moonrail-mooncake is hidden."""
    hide = "import sys; sys.path = [p for p in sys.path if not p.endswith('-packages')] + [sys.argv[1]]\n"
    import moonrail

    copy = tmp_path / "bare"
    shutil.copytree(Path(moonrail.__file__).parent, copy / "moonrail")
    answer = told("-c", hide + TELL, str(copy), MOONRAIL_AS_MOONCAKE="1")
    assert answer["engine"] == "moonrail.mooncake"
    assert answer["store"] is None


def test_the_hook_loads_nothing_of_moonrail() -> None:
    code = "import sys; print([name for name in sys.modules if name.startswith(('moonrail', 'mooncake'))])"
    assert python("-c", code, MOONRAIL_AS_MOONCAKE="1").stdout == "[]\n"
    code = "import sys; print('_moonrail_hook' in sys.modules)"
    assert python("-c", code).stdout == "False\n"


# The distribution moonrail-mooncake


@pytest.fixture
def installed() -> Path:
    """Where the package mooncake of moonrail-mooncake is."""
    files = importlib.metadata.files("moonrail-mooncake")
    assert files
    (found,) = [file for file in files if str(file) == "mooncake/__init__.py"]
    return Path(str(found.locate())).parent


def test_the_distribution_brings_the_package() -> None:
    answer = told("-c", TELL)
    assert answer["engine"] == "moonrail.mooncake"
    assert answer["store"] is None
    assert python("-c", "import mooncake.engine").stderr == ""
    own = importlib.import_module("moonrail.mooncake")
    offered = importlib.import_module("mooncake.engine")
    assert offered.__all__ == own.__all__ and set(own.__all__) <= set(dir(offered))
    assert all(getattr(offered, name) is getattr(own, name) for name in own.__all__)


def test_the_two_distributions_are_of_one_version() -> None:
    version = importlib.metadata.version("moonrail")
    assert importlib.metadata.version("moonrail-mooncake") == version
    assert importlib.metadata.requires("moonrail-mooncake") == [f"moonrail=={version}"]


@pytest.mark.parametrize("foreign", ["engine.cpython-311-x86_64-linux-gnu.so", "store.py", "libetcd_wrapper.so"])
def test_files_of_another_distribution_in_its_folder_are_refused(tmp_path: Path, installed: Path, foreign: str) -> None:
    shutil.copytree(installed, tmp_path / "mooncake")
    assert told("-W", "ignore", "-c", TELL, path=tmp_path)["engine"] == "moonrail.mooncake"
    (tmp_path / "mooncake" / foreign).touch()
    done = python("-c", "import mooncake", path=tmp_path)
    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert foreign in done.stderr
    assert "pip uninstall moonrail-mooncake" in done.stderr
    assert "MOONRAIL_AS_MOONCAKE=1" in done.stderr


def test_hiding_another_mooncake_is_said(tmp_path: Path, genuine: Path, installed: Path) -> None:
    first = tmp_path / "first"
    shutil.copytree(installed, first / "mooncake")
    done = python("-c", TELL, path=Path(f"{first}{os.pathsep}{genuine}"))
    assert json.loads(done.stdout)["engine"] == "moonrail.mooncake"
    assert "RuntimeWarning" in done.stderr
    assert str(genuine) in done.stderr


def test_the_engine_moves_bytes_under_that_name() -> None:
    code = """
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
address = engine.allocate_managed_buffer(4096)
engine.write_bytes_to_buffer(address, b"mooncake", 8)
own = f"127.0.0.1:{engine.get_rpc_port()}"
assert engine.transfer_sync(own, address, address + 100, 8, TransferOpcode.Write, TransferNotify("a", "b")) == 0
print(engine.read_bytes_from_buffer(address + 100, 8).decode(), engine.get_notifies()[0].msg)
"""
    assert python("-c", code).stdout == "mooncake b\n"


# The command


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("moonrail")
    version = importlib.metadata.version("moonrail")
    for start in ([str(command)], [sys.executable, "-m", "moonrail"]):
        done = subprocess.run([*start, "--version"], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        assert version in done.stdout
        assert subprocess.run([*start, "nosuch"], capture_output=True, timeout=30, check=False).returncode == 2


def test_ctrl_c_ends_the_command_as_it_does_elsewhere() -> None:
    command = Path(sys.executable).with_name("moonrail")
    process = subprocess.Popen(
        [str(command), "serve", "--size", "1MiB"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert "127.0.0.1" in first
    assert process.returncode == 0
    assert errors == ""
