"""`moonrail doctor` on one host: what it says of Python environments in the states that people get them into.

Each is a bare interpreter with a folder of packages in front. tests/interop has the real wheels.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import venv
from pathlib import Path
from typing import Any

import moonrail
import pytest

from .support import PeerProcess, clean_environment

ALL = [
    "initialize",
    "get_rpc_port",
    "register_memory",
    "batch_register_memory",
    "batch_transfer_sync_write",
    "send_probe",
]
SINGLE = ["initialize", "get_rpc_port", "register_memory", "transfer_sync_write"]

VLLM = """
    from mooncake.engine import TransferEngine as Engine
    from mooncake import store

    class Worker:
        def __init__(self, host):
            self.te: Engine = Engine()
            if self.te.initialize(host, "P2PHANDSHAKE", "rdma", "") != 0:
                raise RuntimeError("initialization failed")

        def send(self, session, a, b, c):
            try:
                return self.te.batch_transfer_sync_write(session, a, b, c)
            except AttributeError:
                if not hasattr(self.te, "batch_transfer_sync_write"):
                    raise RuntimeError(
                        "please upgrade "
                        "the engine"
                    )
            return self.other.batch_transfer_sync_write(1)
"""


class Installed:
    """A bare interpreter and a folder of packages for it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "venv", symlinks=True, with_pip=False)
        self.python = folder / "venv" / "bin" / "python"
        self.packages = folder / "packages"
        self.packages.mkdir()

    def write(self, path: str, text: str = "") -> Path:
        file = self.packages / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    def distribution(self, name: str, version: str, files: list[str]) -> None:
        """What pip leaves of a wheel, without the files themselves."""
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        self.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        self.write(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*files, f"{info}/METADATA"]))

    def mooncake(self, version: str, methods: list[str], name: str = "mooncake-transfer-engine") -> None:
        files = ["mooncake/__init__.py", "mooncake/engine.py", "mooncake/store.py"]
        for file in files:
            self.write(file)
        body = "".join(f"    def {method}(self): ...\n" for method in methods)
        (self.packages / "mooncake/engine.py").write_text(f"class TransferEngine:\n{body}")
        self.distribution(name, version, files)

    def doctor(self, *arguments: str, **variables: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the report."""
        command = [sys.executable, "-m", "moonrail", "doctor", "--json", "--python", str(self.python), *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=clean_environment(PYTHONPATH=str(self.packages)) | variables,
            cwd=self.packages.parent,
        )
        assert done.stdout, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        assert report["exit_code"] == done.returncode
        return done.returncode, report


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


def levels(report: dict[str, Any], check: str) -> list[str]:
    return [finding["level"] for finding in report["findings"] if finding["check"] == check]


def found(report: dict[str, Any], check: str) -> dict[str, Any]:
    findings: list[dict[str, Any]] = [finding for finding in report["findings"] if finding["check"] == check]
    assert len(findings) == 1, findings
    return findings[0]


def test_a_whole_engine_with_its_caller_is_well(installed: Installed) -> None:
    installed.mooncake("0.3.13.post1", ALL)
    installed.write("vllm/worker.py", VLLM)
    installed.write("vllm/__init__.py", "raise SystemExit('a framework must not be imported')")
    installed.distribution("vllm", "0.33.0", ["vllm/worker.py"])
    code, report = installed.doctor()
    assert code == 0, report["findings"]
    assert levels(report, "python.methods") == ["ok"]
    assert "vLLM 0.33.0 calls 2 methods" in found(report, "python.methods")["what"]
    assert report["python"]["engine"]["distribution"] == "mooncake-transfer-engine"
    assert levels(report, "python.data-protocol") == []


def test_missing_methods_are_told_in_the_words_of_the_caller(installed: Installed) -> None:
    installed.mooncake("0.3.3.post2", SINGLE)
    installed.write("vllm/worker.py", VLLM)
    installed.write("vllm/__init__.py")
    # A file of another engine, and one that cannot be parsed: the table of known calls stands in for it.
    installed.write("vllm/nixl/conn.py", "import mooncake\nself.engine.batch_register_memory([], [])")
    known = "vllm/distributed/kv_transfer/kv_connector/v1/mooncake/mooncake_connector.py"
    installed.write(known, "def (")
    code, report = installed.doctor()
    assert code == 1
    missing = {f["method"]: f for f in report["findings"] if f["check"] == "python.methods"}
    assert set(missing) == {"batch_transfer_sync_write", "batch_register_memory"}
    told = missing["batch_transfer_sync_write"]
    assert told["raises"] == "RuntimeError: please upgrade the engine"
    assert told["raised"]
    assert "vllm/worker.py:13" in told["places"]
    assert missing["batch_register_memory"]["places"] == [f"{known}:0"]
    assert "it came with 0.3.5" in missing["batch_register_memory"]["fix"]
    assert levels(report, "python.data-protocol") == ["warning"]


def test_no_engine_is_a_problem_only_where_one_is_called(installed: Installed) -> None:
    code, report = installed.doctor()
    assert (code, levels(report, "python.engine")) == (0, ["note"])
    installed.write("vllm/worker.py", VLLM)
    installed.write("vllm/__init__.py")
    code, report = installed.doctor()
    assert (code, levels(report, "python.engine")) == (1, ["problem"])
    assert "pip install" in found(report, "python.engine")["fix"]


def test_an_engine_that_cannot_be_loaded_or_crashes_is_told(installed: Installed) -> None:
    installed.mooncake("0.3.13", ALL)
    installed.write("mooncake/engine.py", "raise ImportError('libibverbs.so.1: cannot open shared object file')")
    code, report = installed.doctor()
    assert code == 1
    assert "libibverbs.so.1" in found(report, "python.engine")["what"]
    assert "apt-get install libibverbs1" in found(report, "python.engine")["fix"]
    installed.write("mooncake/engine.py", "import os\nos.abort()")
    assert "signal 6" in found(installed.doctor()[1], "python.engine")["what"]


def test_two_distributions_of_one_package_are_told(installed: Installed) -> None:
    installed.mooncake("0.3.13", ALL)
    installed.mooncake("0.3.13", ALL, name="moonrail-mooncake")
    code, report = installed.doctor()
    assert code == 1
    assert "both own the package" in found(report, "python.both-installed")["what"]
    assert "MOONRAIL_AS_MOONCAKE" in found(report, "python.both-installed")["fix"]


def test_what_an_uninstall_left_behind_is_told(installed: Installed) -> None:
    installed.mooncake("0.3.13", ALL)
    (installed.packages / "mooncake/store.py").unlink()
    code, report = installed.doctor()
    assert code == 1
    assert "1 of its files are gone" in found(report, "python.half-removed")["what"]


def test_a_folder_without_an_owner_is_told(installed: Installed) -> None:
    installed.write("mooncake/store.py")
    code, report = installed.doctor()
    assert code == 1
    assert "left over" in found(report, "python.half-removed")["what"]


def test_a_package_that_hides_another_is_told(installed: Installed) -> None:
    installed.mooncake("0.3.13", ALL)
    local = installed.packages.parent / "mooncake"
    local.mkdir()
    (local / "__init__.py").touch()
    code, report = installed.doctor()
    told = found(report, "python.shadowed")
    assert told["level"] == "warning"
    assert str(local) in told["what"].split(" hides ")[0]
    assert (code, levels(report, "python.engine")) == (1, ["problem"]), "the one in front has no engine"


def test_settings_that_cannot_work_are_told(installed: Installed) -> None:
    installed.mooncake("0.3.13", ALL)
    _, report = installed.doctor(MOONRAIL_AS_MOONCAKE="1")
    assert levels(report, "python.hook") == ["problem"], "moonrail is not installed there"
    code, report = installed.doctor(MC_LOG_DIR="/tmp", MC_TCP_PROTO="1", MC_METADATA_SERVER="p2phandshake")
    assert code == 1
    assert sorted(levels(report, "python.settings")) == ["problem", "problem", "warning"]
    code, report = installed.doctor(MC_MIN_RPC_PORT="lots")
    assert code == 1
    assert "MC_MIN_RPC_PORT" in found(report, "host.settings")["what"]


def test_secrets_stay_out_of_the_report(installed: Installed) -> None:
    _, report = installed.doctor(MC_REDIS_PASSWORD="hunter2", MOONRAIL_KEY="hunter2", MC_TCP_LANES_PER_PEER="4")
    assert "hunter2" not in json.dumps(report)
    assert report["python"]["environment"]["MC_TCP_LANES_PER_PEER"] == "4"


def test_warnings_fail_only_where_that_is_asked_for(installed: Installed) -> None:
    installed.mooncake("0.3.7.post2", ALL)
    assert installed.doctor()[0] == 0
    assert installed.doctor("--strict")[0] == 1


def test_moonrail_is_found_in_its_own_environment() -> None:
    """The command of the wheel looks at the interpreter that runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "moonrail", "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean_environment(),
        cwd="/",
    )
    report = json.loads(done.stdout)
    assert report["python"]["engine"]["moonrail"], report["findings"]
    assert report["python"]["engine"]["version"] == moonrail.__version__
    assert report["python"]["python"]["prefix"] == sys.prefix
    checks = {finding["check"] for finding in report["findings"]}
    expected = "ports interfaces ipv6 ptrace memory-lock open-files huge-pages clock rdma gpu"
    assert {f"host.{name}" for name in expected.split()} <= checks


def test_the_matrix_names_the_path_that_is_taken(
    typed: moonrail.Engine, peer: PeerProcess, tcp_peer: PeerProcess
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "moonrail", "doctor", "--json", typed.name, peer.name, tcp_peer.name],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=clean_environment(),
    )
    pairs = {(pair["initiator"], pair["target"]): pair for pair in json.loads(done.stdout)["pairs"]}
    for target in (peer.name, tcp_peer.name):
        pair = pairs[typed.name, target]
        assert (pair["path"], pair["protocol"], pair["problems"]) == (typed.connect(target).path, "rail-1", [])
    assert pairs[typed.name, peer.name]["path"] == "shm"
    assert pairs[typed.name, tcp_peer.name]["path"] == "tcp"


def serve_in(installed: Installed) -> subprocess.CompletedProcess[str]:
    """Makes the adapter in an environment that has `moonrail` and what else was put there."""
    (installed.packages / "moonrail").symlink_to(Path(moonrail.__file__).parent)
    code = "from moonrail.serving import TransferEngine; print(TransferEngine('127.0.0.1', protocol='tcp').release)"
    environment = clean_environment(PYTHONPATH=str(installed.packages))
    return subprocess.run(
        [str(installed.python), "-c", code], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_the_adapter_takes_moonrails_engine_where_there_is_no_mooncake(installed: Installed) -> None:
    done = serve_in(installed)
    assert done.stdout.strip() == f"Moonrail {moonrail.__version__}", done.stderr


def test_the_adapter_does_not_pass_over_an_engine_that_is_broken(installed: Installed) -> None:
    installed.write("mooncake/__init__.py")
    installed.write("mooncake/engine.py", "raise ImportError('libibverbs.so.1: cannot open shared object file')")
    done = serve_in(installed)
    assert done.returncode == 1
    assert "mooncake.engine cannot be imported: libibverbs.so.1" in done.stderr
    assert "CapabilityError: MISSING_CAPABILITY" in done.stderr
    assert "moonrail doctor" in done.stderr
