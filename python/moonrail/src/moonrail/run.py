"""Runs a program with Moonrail as its ``mooncake.engine``.

    python -m moonrail.run PROGRAM [ARGUMENT...]
    python -m moonrail.run -m MODULE [ARGUMENT...]
    python -m moonrail.run -c CODE [ARGUMENT...]

PROGRAM is a Python file, or a command on the path. ``mooncake.store`` and everything else of an installed Mooncake stay
as they are. Child processes of the same Python installation are covered too, through MOONRAIL_AS_MOONCAKE=1.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from types import ModuleType

USAGE = 2


def main(arguments: list[str]) -> int:
    """Runs what ``arguments`` say, as if Python had been started with them."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__, file=sys.stderr if not arguments else sys.stdout)
        return 0 if arguments else USAGE
    os.environ["MOONRAIL_AS_MOONCAKE"] = "1"
    import _moonrail_hook

    _moonrail_hook.install()
    first, rest = arguments[0], arguments[1:]
    if first in ("-m", "-c"):
        if not rest:
            print(f"moonrail.run: {first} needs an argument", file=sys.stderr)
            return USAGE
        if first == "-m":
            _run_module(rest)
        else:
            _run_code(rest)
        return 0
    return _run_program(first, rest)


def _run_module(arguments: list[str]) -> None:
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _run_code(arguments: list[str]) -> None:
    sys.argv = ["-c", *arguments[1:]]
    main_module = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(arguments[0], "<string>", "exec"), vars(main_module))


def _run_program(program: str, arguments: list[str]) -> int:
    path = program if os.path.isfile(program) else shutil.which(program)
    if path is None:
        print(f"moonrail.run: there is no file and no command {program!r}", file=sys.stderr)
        return USAGE
    if not _is_for_this_python(path):
        os.execv(path, [program, *arguments])
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    runpy.run_path(path, run_name="__main__")
    return 0


def _is_for_this_python(path: str) -> bool:
    """A Python file, or a script that names this interpreter in its first line."""
    if path.endswith((".py", ".pyc")):
        return True
    with open(path, "rb") as file:
        first = file.readline(512)
    words = first[2:].split()
    if not first.startswith(b"#!") or not words:
        return False
    interpreter = os.fsdecode(words[-1] if words[0].endswith(b"/env") else words[0])
    found = shutil.which(interpreter)
    return found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
