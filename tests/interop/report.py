"""The finished cells as text, as JSON and as Markdown. Must not know how they came about."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tests.interop.verdict import Status, Verdict


class Role(Enum):
    """What the genuine release is in a pair."""

    INITIATOR = "initiator"
    TARGET = "target"


@dataclass(frozen=True)
class Cell:
    """One case with one release in one role and one mode."""

    release: str
    role: Role
    mode: str
    case: str
    verdict: Verdict
    seconds: float
    logs: str = ""


@dataclass(frozen=True)
class Matrix:
    """All cells of a run, and the engine that the releases were paired with."""

    engine: str
    cells: Sequence[Cell]

    @property
    def bad(self) -> list[Cell]:
        """The cells in which something went wrong that should not."""
        return [cell for cell in self.cells if cell.verdict.status.bad]

    def summary(self) -> str:
        """How many cells there are of each status."""
        counts = Counter(cell.verdict.status for cell in self.cells)
        parts = [f"{counts[status]} {status.value}" for status in Status if counts[status]]
        return f"{len(self.cells)} cells with {self.engine}: {', '.join(parts)}"


@dataclass(frozen=True)
class Table:
    """The cells of one mode and role: a row a case, a column a release, remarks numbered."""

    title: str
    releases: list[str]
    rows: list[tuple[str, list[str]]]
    remarks: list[str]


def tables(matrix: Matrix) -> list[Table]:
    """The cells by mode and role, in the order in which they came."""
    groups: dict[tuple[str, Role], list[Cell]] = {}
    for cell in matrix.cells:
        groups.setdefault((cell.mode, cell.role), []).append(cell)
    return [table(matrix.engine, mode, role, cells) for (mode, role), cells in groups.items()]


def table(engine: str, mode: str, role: Role, cells: list[Cell]) -> Table:
    """One table."""
    releases = list(dict.fromkeys(cell.release for cell in cells))
    remarks: dict[str, int] = {}

    def text(cell: Cell | None) -> str:
        if cell is None:
            return ""
        verdict = cell.verdict
        if not verdict.note:
            return verdict.status.value
        return f"{verdict.status.value} [{remarks.setdefault(verdict.note, len(remarks) + 1)}]"

    found = {(cell.case, cell.release): cell for cell in cells}
    names = dict.fromkeys(cell.case for cell in cells)
    rows = [(name, [text(found.get((name, release))) for release in releases]) for name in names]
    between = f"Mooncake -> {engine}" if role is Role.INITIATOR else f"{engine} -> Mooncake"
    return Table(f"{between}, {mode}", releases, rows, [f"[{number}] {note}" for note, number in remarks.items()])


def as_text(matrix: Matrix) -> str:
    """For a terminal."""
    return "\n\n".join([*(text_table(one) for one in tables(matrix)), matrix.summary()])


def text_table(one: Table) -> str:
    """One table for a terminal."""
    lines = [["", *one.releases], *([name, *cells] for name, cells in one.rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    body = ["  ".join(field.ljust(width) for field, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([one.title, "", *body, *one.remarks])


def as_markdown(matrix: Matrix) -> str:
    """For documentation."""
    parts = []
    for one in tables(matrix):
        head = ["| case | " + " | ".join(one.releases) + " |", "|---" * (len(one.releases) + 1) + "|"]
        rows = ["| " + " | ".join([name, *cells]) + " |" for name, cells in one.rows]
        remarks = ["", *(f"- {remark}" for remark in one.remarks)] if one.remarks else []
        parts.append("\n".join([f"### {one.title}", "", *head, *rows, *remarks]))
    return "\n\n".join([*parts, matrix.summary()]) + "\n"


def as_json(matrix: Matrix) -> str:
    """For programs."""
    cells = [
        {
            "release": cell.release,
            "role": cell.role.value,
            "mode": cell.mode,
            "case": cell.case,
            "status": cell.verdict.status.value,
            "note": cell.verdict.note,
            "seconds": round(cell.seconds, 3),
            "logs": cell.logs,
        }
        for cell in matrix.cells
    ]
    return json.dumps({"engine": matrix.engine, "cells": cells}, indent=1, ensure_ascii=False) + "\n"


def line(cell: Cell) -> str:
    """One cell, for progress."""
    return f"{cell.mode:12} {cell.role.value:9} {cell.release:12} {cell.case:36} {cell.verdict}  {cell.seconds:.1f} s"
