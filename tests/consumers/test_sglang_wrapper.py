"""SGLang's unmodified engine wrapper, in two processes, on the engine under test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .sglang_files import Unavailable, sglang_root

SCRIPT = Path(__file__).parent / "sglang" / "wrapper.py"
CHECKS = 29


@pytest.mark.timeout(420)  # the first run downloads 39 MB
@pytest.mark.parametrize("protocol", ["tcp", "rdma"])
def test_sglang_wrapper(protocol: str) -> None:
    """All checks hold; with `rdma`, which is SGLang's default, the engine falls back to TCP by itself."""
    try:
        root = sglang_root()
    except Unavailable as error:
        pytest.skip(str(error))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MC_", "MOONRAIL_"))}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env=clean | {"SGLANG_ROOT": str(root), "MOONCAKE_PROTOCOL": protocol},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    told = f"{done.stdout}\n--- its standard error:\n{done.stderr[-3000:]}"
    lines = done.stdout.splitlines()
    assert lines, told
    assert lines[-1] == "0 failed", told
    assert done.returncode == 0, told
    assert len([line for line in lines if line.startswith("ok ")]) == CHECKS, told
