"""The figures as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benches.cases import Key
from benches.table import Table

RATIOS = (
    ("moonrail-tcp", "genuine"),
    ("moonrail-tcp", "ceiling tcp"),
    ("moonrail", "genuine"),
    ("moonrail", "ceiling cma"),
    ("moonrail", "nixl"),
)
"""Time over time, where both were measured."""


@dataclass(frozen=True)
class Run:
    """What was measured, and how."""

    table: Table
    rounds: int
    command: str
    machine: dict[str, str]
    versions: dict[str, str]

    @property
    def headline(self) -> str:
        """What the numbers are."""
        return f"microseconds a call, {self.table.keep} of {self.rounds} rounds' medians; lower is better"


def as_text(run: Run) -> str:
    """For a terminal."""
    parts = [run.headline, aligned(grid(run))]
    if shares := crowd_grid(run):
        parts += ["", "rate of all threads over one thread's", aligned(shares)]
    if used := cpu_grid(run):
        parts += ["", "CPU seconds of both processes a gigabyte", aligned(used)]
    if failed := failures(run):
        parts += ["", *failed]
    return "\n".join(parts)


def as_markdown(run: Run) -> str:
    """For documentation."""
    known = run.machine | {"engines": ", ".join(f"{name} {version}" for name, version in run.versions.items())}
    parts = [
        f"`{run.command}`",
        "",
        *(f"- {name}: {value}" for name, value in known.items()),
        "",
        f"{run.headline}.",
        "",
    ]
    pairs = [pair for pair in RATIOS if set(pair) <= set(run.table.engines)]
    rows = grid(run)
    rows[0] += [f"{over}/{under}" for over, under in pairs]
    for row, key in zip(rows[1:], run.table.cells, strict=True):
        row += [shown(run.table.ratio(key, *pair), ".2f") for pair in pairs]
    parts.append(piped(rows))
    if shares := crowd_grid(run):
        parts += ["", "Rate of all threads over one thread's:", "", piped(shares)]
    if used := cpu_grid(run):
        parts += ["", "CPU seconds of both processes a gigabyte:", "", piped(used)]
    if failed := failures(run):
        parts += ["", *(f"- {line}" for line in failed)]
    return "\n".join([*parts, ""])


def as_json(run: Run) -> str:
    """For programs: every round's row too."""
    rows = [
        {
            "case": case,
            "op": op,
            "engines": {
                name: {
                    "us": run.table.us((case, op), name),
                    "error": cell.error,
                    "rounds": [{k: v for k, v in asdict(row).items() if v is not None} for row in cell.rows],
                }
                for name, cell in cells.items()
            },
        }
        for (case, op), cells in run.table.cells.items()
    ]
    about = {"command": run.command, "machine": run.machine, "versions": run.versions}
    return json.dumps(about | {"rounds": run.rounds, "keep": run.table.keep, "rows": rows}, indent=1) + "\n"


def grid(run: Run) -> list[list[str]]:
    """A heading, then one line a case and direction."""
    engines = run.table.engines
    lines = [[f"{key[0]} {key[1]}", *(figure(run, key, name) for name in engines)] for key in run.table.cells]
    return [["case", *engines], *lines]


def cpu_grid(run: Run) -> list[list[str]]:
    """CPU seconds a gigabyte, where they were measured."""
    used = {
        f"{case} {op}": {name: cell.cpu for name, cell in cells.items() if cell.cpu is not None}
        for (case, op), cells in run.table.cells.items()
    }
    engines = list(dict.fromkeys(name for by_engine in used.values() for name in by_engine))
    lines = [[name, *(shown(of.get(engine), ".3f") for engine in engines)] for name, of in used.items() if of]
    return [["case", *engines], *lines] if lines else []


def crowd_grid(run: Run) -> list[list[str]]:
    """The cases with threads, if there are any."""
    shares = run.table.shares()
    engines = list(dict.fromkeys(name for _, by_engine in shares for name in by_engine))
    lines = [[name, *(shown(by_engine.get(engine), ".2f") for engine in engines)] for name, by_engine in shares]
    return [["case", *engines], *lines] if lines else []


def failures(run: Run) -> list[str]:
    """Why there are figures missing, each reason once an engine."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for (case, op), cells in run.table.cells.items():
        for name, cell in cells.items():
            if cell.error is not None:
                reasons.setdefault((name, cell.error), []).append(f"{case} {op}")
    return [f"{name} fails in {', '.join(where)}: {why}" for (name, why), where in reasons.items()]


def figure(run: Run, key: Key, engine: str) -> str:
    """Microseconds."""
    return "FAILS" if run.table.error(key, engine) is not None else shown(run.table.us(key, engine), ",.1f")


def shown(value: float | None, form: str) -> str:
    """A number, or that there is none."""
    return "-" if value is None else format(value, form)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


def piped(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    heading, *lines = rows
    rule = ["---", *(["---:"] * (len(heading) - 1))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, rule, *lines))
