"""Whether the error reference knows everything that the recipes have provoked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def unexplained(folder: Path) -> list[str]:
    """Warnings and errors of Moonrail's in the logs of `folder` that have no record."""
    logs = b"\n".join(log.read_bytes() for log in sorted(folder.glob("*.log")))
    done = subprocess.run(
        [sys.executable, "-m", "moonrail", "explain", "--log", "-", "--json"],
        input=logs,
        capture_output=True,
        timeout=60,
        check=False,
    )
    report = json.loads(done.stdout)
    lines: list[str] = report["unknownLines"]
    return lines
