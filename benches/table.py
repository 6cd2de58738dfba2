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
        """Microseconds a call, or the figure that the row has instead."""
        return self._kept([row.figure for row in self.rows], keep)

    def each(self, keep: Keep) -> float | None:
        """Microseconds a request."""
        return self._kept([row.us_per_request for row in self.rows], keep)

    @property
    def unit(self) -> str | None:
        """Of a figure that is not a time."""
        return next((row.unit for row in self.rows if row.unit is not None), None)

    def _kept(self, figures: list[float | None], keep: Keep) -> float | None:
        """Of the rounds' figures, the best (a shared machine only ever adds time) or the middle."""
        known = [figure for figure in figures if figure is not None]
        if self.error is not None or not known:
            return None
        return min(known) if keep == "best" else statistics.median(known)

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

    def each(self, key: Key, engine: str) -> float | None:
        """Microseconds a request, if that engine has a figure there."""
        cell = self.cells.get(key, {}).get(engine)
        return cell.each(self.keep) if cell else None

    def unit(self, key: Key) -> str | None:
        """Of figures that are not times."""
        return next((cell.unit for cell in self.cells.get(key, {}).values() if cell.unit is not None), None)

    def error(self, key: Key, engine: str) -> str | None:
        """Why there is none, if it failed."""
        cell = self.cells.get(key, {}).get(engine)
        return cell.error if cell else None

    def ratio(self, key: Key, over: str, under: str) -> float | None:
        """One engine's time over another's."""
        top, bottom = self.us(key, over), self.us(key, under)
        return top / bottom if top is not None and bottom else None

    def shares(self) -> list[tuple[str, dict[str, float | None]]]:
        """Of each number of threads: the crowd's name and what is done, and each engine's rate over one thread's."""
        found = []
        for crowd in CROWDS:
            for threads in crowd.threads:
                for op in OPS if threads > 1 else ():
                    together, alone = (crowd.name(threads), op), (crowd.name(1), op)
                    if engines := [name for name in self.cells.get(together, {}) if self.us(alone, name) is not None]:
                        shares = {name: self.over(alone, together, name) for name in engines}
                        found.append((f"{together[0]} {op}", shares))
        return found

    def over(self, over: Key, under: Key, engine: str) -> float | None:
        """One engine's time in one case over its time in another."""
        top, bottom = self.us(over, engine), self.us(under, engine)
        return top / bottom if top is not None and bottom else None
