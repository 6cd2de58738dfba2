"""SGLang's own files, fetched from PyPI once and kept under `.cache/`; they are never part of this repository."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

VERSION = "0.5.23"
REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache" / "sglang"
DOWNLOAD_S = 300


class Unavailable(Exception):
    """The wheel could not be had; the text says why."""


def sglang_root() -> Path:
    """The folder with the unpacked wheel."""
    root = CACHE / VERSION
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            wheel = download()
            fresh = CACHE / f".{VERSION}.{os.getpid()}"
            shutil.rmtree(fresh, ignore_errors=True)
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(fresh)
            fresh.rename(root)
            wheel.unlink()
    return root


def download() -> Path:
    """The wheel as PyPI has it, without what it depends on."""
    arguments = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(CACHE)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments, f"sglang=={VERSION}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DOWNLOAD_S,
        check=False,
    )
    wheels = list(CACHE.glob(f"sglang-{VERSION}-*.whl"))
    if done.returncode != 0 or not wheels:
        raise Unavailable(f"sglang {VERSION} could not be downloaded: {done.stdout.strip()[-500:]}")
    return wheels[0]
