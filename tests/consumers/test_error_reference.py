"""The error reference against its subjects: SGLang's own texts, and a genuine engine that is too old for SGLang."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .sglang_files import CACHE, Unavailable, sglang_root

OLD = "0.3.3.post2"
SCRIPT = Path(__file__).parent / "sglang" / "old_engine.py"
TOO_OLD = ["sglang-batch-transfer-requires-0-3-4-post2", "sglang-batch-register-requires-newer-version"]
SGLANG_FOLDERS = (
    "srt/disaggregation",
    "srt/distributed/device_communicators",
    "srt/mem_cache/storage/mooncake_store",
    "srt/mem_cache/pool_host",
    "srt/model_executor/model_runner_components",
)


def explain(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moonrail", "explain", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def root() -> Path:
    try:
        return sglang_root()
    except Unavailable as error:
        pytest.skip(str(error))


def old_engine() -> Path:
    """The folder with the unpacked wheel of the genuine release."""
    folder = CACHE.parent / "mooncake-old" / OLD / f"cp{sys.version_info.major}{sys.version_info.minor}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "mooncake").is_dir():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            done = subprocess.run(
                [*pip, "--dest", str(folder), f"mooncake-transfer-engine=={OLD}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=200,
                check=False,
            )
            wheels = list(folder.glob("*.whl"))
            if done.returncode != 0 or not wheels:
                raise Unavailable(f"Mooncake {OLD} could not be downloaded: {done.stdout.strip()[-500:]}")
            with zipfile.ZipFile(wheels[0]) as archive:
                archive.extractall(folder)
            wheels[0].unlink()
    return folder


@pytest.mark.timeout(420)  # the first run downloads 32 MB
def test_an_engine_that_is_too_old_is_explained(root: Path) -> None:
    """What SGLang really says over Mooncake 0.3.3.post2 leads to the two records, and nothing else does."""
    try:
        engine = old_engine()
    except Unavailable as error:
        pytest.skip(str(error))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MC_", "MOONRAIL_"))}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env=clean | {"SGLANG_ROOT": str(root), "PYTHONPATH": str(engine)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=90,
        check=False,
    )
    if "cannot open shared object file" in done.stdout:
        pytest.skip(f"a library that the genuine engine needs is not here: {done.stdout.strip()[-300:]}")
    assert done.returncode == 0, done.stdout
    report = json.loads(explain("--log", "-", "--json", stdin=done.stdout).stdout)
    serious = [found for found in report["found"] if found["severity"] != "info"]
    # The tracebacks begin with the AttributeError that SGLang's own error follows from.
    assert [found["slug"] for found in serious] == ["mooncake-object-has-no-attribute", *TOO_OLD], done.stdout
    assert "batch_transfer_sync" in serious[1]["frame"]
    assert report["firstCause"] == serious[0]["id"]
    errors = "\n".join(line for line in done.stdout.splitlines() if line.startswith("RuntimeError: "))
    for_people = explain("--log", "-", stdin=errors)
    assert for_people.returncode == 0
    assert "pip install -U mooncake-transfer-engine" in for_people.stdout
    assert [
        found["slug"] for found in json.loads(explain("--log", "-", "--json", stdin=errors).stdout)["found"]
    ] == TOO_OLD


def texts(root: Path) -> Iterator[str]:
    """Every text in SGLang's files about the engine, with something in each of its places."""
    for folder in SGLANG_FOLDERS:
        for file in (root / "sglang" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield re.sub(r"%[sdrx]|%\.?\d*f|%#x", "1", node.value)
                elif isinstance(node, ast.JoinedStr):
                    parts = [str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values]
                    yield "".join(parts)


def test_every_record_of_sglang_is_in_its_files(root: Path, tmp_path: Path) -> None:
    exported = subprocess.run(
        [sys.executable, "-m", "moonrail", "reference", "export", str(tmp_path)], timeout=60, check=False
    )
    assert exported.returncode == 0
    wanted = {}
    for file in (tmp_path / "api" / "errors").glob("*.json"):
        record = json.loads(file.read_text())
        if record.get("repo") == "sgl-project/sglang":
            wanted[record["slug"]] = re.compile(record["messagePattern"])
    assert len(wanted) > 30
    for text in texts(root):
        line = text.replace("\n", " ")
        for slug in [slug for slug, pattern in wanted.items() if pattern.search(line)]:
            del wanted[slug]
    assert not wanted, "SGLang 0.5.23 has no such text"
