"""The console script ``moonrail``: the same command that Rust programs have."""

from __future__ import annotations

import os
import signal
import sys

from . import _moonrail


def main() -> int:
    """Runs the command line of this process; returns its exit code."""
    # The command has its own way to end on Ctrl-C; Python's handler would raise once it has.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The doctor looks at the packages of this interpreter, on the path that programs have.
    os.environ.setdefault("MOONRAIL_PYTHON", sys.executable)
    if sys.argv[1:2] != ["doctor"]:
        # Some commands start themselves again, with the interpreter behind this environment, which must find us.
        home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = f"{home}{os.pathsep}{path}" if path else home
    return _moonrail.cli_main(["moonrail", *sys.argv[1:]])
