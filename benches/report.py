"""The figures as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benches.cases import Key
from benches.table import Cell, Table

RATIOS = (
    ("moonrail-tcp", "ceiling tcp"),
    ("moonrail-tcp", "genuine"),
    ("moonrail", "ceiling cma"),
    ("moonrail", "ceiling map"),
    ("moonrail", "nixl"),
    ("moonrail", "genuine"),
    ("moonrail-rust", "ceiling cma"),
    ("moonrail-to-genuine", "genuine"),
    ("genuine-to-moonrail", "genuine"),
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
        kept = f"{self.table.keep} of {self.rounds} rounds' medians" if self.rounds > 1 else "median of one round"
        return f"microseconds a call where nothing else is said, {kept}; lower is better"


def as_text(run: Run) -> str:
    """For a terminal."""
    parts = [run.headline, aligned(grid(run))]
    if ratios := ratio_grid(run):
        parts += ["", "ratios of the times", aligned(ratios)]
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
    parts.append(piped(grid(run)))
    if ratios := ratio_grid(run):
        parts += ["", "Ratios of the times:", "", piped(ratios)]
    if shares := crowd_grid(run):
        parts += ["", "Rate of all threads over one thread's:", "", piped(shares)]
    if used := cpu_grid(run):
        parts += ["", "CPU seconds of both processes a gigabyte:", "", piped(used)]
    if failed := failures(run):
        parts += ["", *(f"- {line}" for line in failed)]
    return "\n".join([*parts, ""])


def as_json(run: Run) -> str:
    """For programs: every round's row too."""
    lines = []
    for (case, op), cells in run.table.cells.items():
        engines = {name: figures(run, (case, op), name, cell) for name, cell in cells.items()}
        lines.append(
            json.dumps({"case": case, "op": op, "unit": run.table.unit((case, op)) or "us", "engines": engines})
        )
    about = {"command": run.command, "machine": run.machine, "versions": run.versions}
    head = json.dumps(about | {"rounds": run.rounds, "keep": run.table.keep}, indent=1)[:-2]
    rows = ",\n  ".join(lines)
    return f'{head},\n "rows": [\n  {rows}\n ]\n}}\n'


def figures(run: Run, key: Key, name: str, cell: Cell) -> dict[str, Any]:
    """What is kept of one engine in one case."""
    found: dict[str, Any] = {"figure": run.table.us(key, name), "rounds": [row.figure for row in cell.rows]}
    if cell.error is not None:
        found["error"] = cell.error
    if size := next((row.bytes for row in cell.rows if row.bytes is not None), None):
        found["bytes"] = size
    return found


def grid(run: Run) -> list[list[str]]:
    """A heading, then one line a case and direction."""
    engines = run.table.engines
    lines = [[title(run, key), *(figure(run, key, name) for name in engines)] for key in run.table.cells]
    return [["case", *engines], *lines]


def title(run: Run, key: Key) -> str:
    """The name of a line."""
    unit = run.table.unit(key)
    return f"{key[0]} {key[1]}" + (f", {unit}" if unit else "")


def ratio_grid(run: Run) -> list[list[str]]:
    """What of RATIOS can be said, where anything can."""
    pairs = [pair for pair in RATIOS if set(pair) <= set(run.table.engines)]
    lines = []
    for key in run.table.cells:
        ratios = [run.table.ratio(key, *pair) for pair in pairs]
        if any(ratio is not None for ratio in ratios):
            lines.append([title(run, key), *(shown(ratio, ".2f") for ratio in ratios)])
    return [["case", *(f"{over}/{under}" for over, under in pairs)], *lines] if lines else []


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
