#!/usr/bin/env python3
"""The interoperability matrix from the command line: `tests/interop/run.py --help`.

Exit status: 0 all is well, 1 a cell is FAIL or FALSE SUCCESS, 2 the run could not be made. With `--engine genuine`
the run only tells what genuine releases do to each other, and cells do not change the status.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.interop import environments, matrix, report
from tests.interop.cases import Case, all_cases
from tests.interop.environments import LATEST, RELEASES, Unavailable
from tests.interop.pair import Mode
from tests.interop.report import Cell, Role


def main(arguments: Sequence[str]) -> int:
    """Runs what the arguments ask for."""
    options = parser().parse_args(arguments)
    if options.list:
        print("\n".join(case.name for case in all_cases()))
        return 0
    try:
        plan = plan_of(options)
        done = matrix.run(plan, progress(options.quiet))
    except Unavailable as error:
        print(f"interop: {error}", file=sys.stderr)
        return 2
    if options.json:
        options.json.write_text(report.as_json(done), encoding="utf-8")
    print(report.as_markdown(done) if options.markdown else report.as_text(done))
    for cell in done.bad:
        print(f"\n{report.line(cell)}\n{cell.logs}", file=sys.stderr)
    return 1 if done.bad and options.engine == "moonrail" else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        description="Runs Moonrail against genuine Mooncake releases and prints what works.",
        epilog="Exit status: 0 all is well, 1 a cell went wrong, 2 the run could not be made.",
    )

    def several(flag: str, values: list[str], default: list[str] | None, text: str, metavar: str | None = None) -> None:
        metavar = metavar or f"{{{','.join(values)}}}"
        choices = values or None
        result.add_argument(
            flag, nargs="+", action=Several, choices=choices, default=default, metavar=metavar, help=text
        )

    add = result.add_argument
    several("--release", list(RELEASES), list(RELEASES), "releases to run", "V")
    several("--role", [role.value for role in Role], [role.value for role in Role], "what the releases are")
    text = "how peers find each other; left out: p2p and http, and http-genuine for the newest release"
    several("--mode", [mode.value for mode in Mode], None, text)
    several("--case", [], ["*"], "cases to run, see --list", "GLOB")
    add("--list", action="store_true", help="print the names of the cases and stop")
    add("--json", type=Path, metavar="FILE", help="write every cell there as well")
    add("--markdown", action="store_true", help="print Markdown instead of text")
    add("--engine", choices=["moonrail", "genuine"], default="moonrail", help="what the releases are paired with")
    add("--stand-in", metavar="V", choices=list(RELEASES), default=LATEST, help="the release for --engine genuine")
    add(
        "--moonrail-python", type=Path, metavar="PATH", help="Python that has Moonrail; left out: this one, or .cache's"
    )
    add(
        "--moonrail-cli",
        type=Path,
        metavar="PATH",
        help="the moonrail command, for its metadata server; with --engine genuine too",
    )
    add("--logs", type=Path, metavar="DIR", default=environments.CACHE / "logs", help="logs of cells that went wrong")
    add("--jobs", type=int, metavar="N", default=2, help="cells at a time")
    add("--quiet", action="store_true", help="no line for each cell on stderr")
    return result


class Several(argparse.Action):
    """Values of a flag that may be given more than once; the first one given replaces the default."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        """Adds the values."""
        before = getattr(namespace, self.dest)
        given = [] if before is self.default else before
        setattr(namespace, self.dest, [*given, *(values or [])])


def plan_of(options: argparse.Namespace) -> matrix.Plan:
    """The plan that the command line asks for; makes the environments that are not there."""
    modes = [Mode(name) for name in options.mode] if options.mode else list(Mode)
    program = None
    if options.engine == "moonrail":
        home = environments.moonrail(options.moonrail_python)
        if Mode.HTTP in modes:
            program = environments.moonrail_program(home, options.moonrail_cli)
    else:
        home = environments.genuine(options.stand_in)
        program = options.moonrail_cli
        if program is None and not options.mode:
            modes.remove(Mode.HTTP_GENUINE)  # Both HTTP modes would be the same.
    newest = [name for name in RELEASES if name in options.release][-1:]
    return matrix.Plan(
        home=home,
        visitors=[environments.genuine(release) for release in options.release],
        roles=[Role(name) for name in options.role],
        modes=modes,
        cases=chosen(options.case),
        moonrail_program=program,
        genuine_server=environments.genuine(LATEST),
        genuine_server_releases=options.release if options.mode else newest,
        logs=options.logs,
        jobs=options.jobs,
    )


def chosen(patterns: Sequence[str]) -> list[Case]:
    """The cases whose names match."""
    cases = [case for case in all_cases() if any(fnmatch.fnmatchcase(case.name, pattern) for pattern in patterns)]
    if not cases:
        raise Unavailable(f"no case is named {' or '.join(patterns)}; --list names them")
    return cases


def progress(quiet: bool) -> Callable[[Cell], None]:
    """Prints a line for each cell, whole even when several end at once."""
    lock = threading.Lock()

    def show(cell: Cell) -> None:
        if not quiet:
            with lock:
                print(report.line(cell), file=sys.stderr, flush=True)

    return show


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
