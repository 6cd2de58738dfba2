"""The examples of docs/python.md, run in order as one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python.md"


def test_the_examples_of_the_page_run() -> None:
    """Each code block continues the one before."""
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    assert program.count("assert") >= 6
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "REMOTE_NOT_REGISTERED" in done.stdout
