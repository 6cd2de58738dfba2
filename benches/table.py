"""The figures of all rounds, and the one that is kept of each.

Must not know how they are shown.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Literal

from benches.cases import CROWDS, OPS, Key
from benches.rows import Row

Keep = Literal["best", "median"]


@dataclass
class Cell:
    """One engine's rows of one case and direction, a round each."""

    rows: list[Row] = field(default_factory=list)

    @property
    def error(self) -> str | None:
        """Why there is no figure: it failed in a round."""
        return next((row.error for row in self.rows if row.error is not None), None)

    def us(self, keep: Keep) -> float | None:
        """Microseconds a call: of the rounds' medians, the best (a shared machine only ever adds time) or the middle."""
        medians = [row.median_us for row in self.rows if row.median_us is not None]
        if self.error is not None or not medians:
            return None
        return min(medians) if keep == "best" else statistics.median(medians)

    @property
    def cpu(self) -> float | None:
        """CPU seconds a gigabyte."""
        used = [row.cpu_s_per_gb for row in self.rows if row.cpu_s_per_gb is not None]
        return statistics.median(used) if used else None


class Table:
    """Cells by case and direction, and by engine, in the order in which they came."""

    def __init__(self, keep: Keep) -> None:
        self.keep: Keep = keep
        self.cells: dict[Key, dict[str, Cell]] = {}

    def add(self, engine: str, row: Row) -> None:
        """One more figure."""
        self.cells.setdefault(row.key, {}).setdefault(engine, Cell()).rows.append(row)

    @property
    def engines(self) -> list[str]:
        """Whoever has a figure."""
        return list(dict.fromkeys(name for cells in self.cells.values() for name in cells))

    def us(self, key: Key, engine: str) -> float | None:
        """Microseconds a call, if that engine has a figure there."""
        cell = self.cells.get(key, {}).get(engine)
        return cell.us(self.keep) if cell else None

    def error(self, key: Key, engine: str) -> str | None:
        """Why there is none, if it failed."""
        cell = self.cells.get(key, {}).get(engine)
        return cell.error if cell else None

    def ratio(self, key: Key, over: str, under: str) -> float | None:
        """One engine's time over another's."""
        top, bottom = self.us(key, over), self.us(key, under)
        return top / bottom if top is not None and bottom else None

    def share(self, name: str, alone: str, op: str, engine: str) -> float | None:
        """All threads' rate over one thread's."""
        together, one = self.us((name, op), engine), self.us((alone, op), engine)
        return one / together if one is not None and together else None

    def shares(self) -> list[tuple[str, dict[str, float | None]]]:
        """Of each crowd that was run: its name and direction, and each engine's share."""
        return [
            (f"{crowd.name} {op}", {engine: self.share(crowd.name, crowd.alone, op, engine) for engine in cells})
            for crowd in CROWDS
            for op in OPS
            if (cells := self.cells.get((crowd.name, op))) and (crowd.alone, op) in self.cells
        ]
