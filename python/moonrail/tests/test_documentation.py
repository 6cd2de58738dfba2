"""The examples of the pages, each page's run in order as one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize(
    ("page", "assertions", "printed"),
    [("python.md", 6, "REMOTE_NOT_REGISTERED"), ("capabilities.md", 4, "no RDMA path"), ("serving.md", 5, "")],
)
def test_the_examples_of_the_page_run(page: str, assertions: int, printed: str) -> None:
    """Each code block continues the one before."""
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL))
    assert program.count("assert") >= assertions
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
