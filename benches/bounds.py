"""Bounds that figures must keep, one a line.

FIGURE is CASE DONE ENGINE, for example `sync 4KiB read moonrail-tcp`; with ` each` behind it, the time of one request.

FIGURE/ENGINE <= X      one engine's time over another's in the same case. Of an engine above the line that has no figure it
                        is not met; where the one below the line fails it is: that one could not do the work
FIGURE/FIGURE <= X      the same between two cases
FIGURE <= X us          microseconds
FIGURE <= X             of a figure that is not a time
no failure ENGINE       it did every case
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benches.cases import Key
from benches.table import Table

DONE = "write|read|register|unregister|first contact|memory|descriptors|p50|p99"
ENGINE = r"ceiling \w+|[\w.-]+"
FIGURE = rf"([^/]+?) ({DONE}) ({ENGINE})( each)?"
NUMBER = r"(\d+(?:\.\d+)?)"


class BadBound(Exception):
    """The text is not a bound."""


@dataclass(frozen=True)
class Verdict:
    """Whether a bound is met, and the figure."""

    met: bool
    found: str


class Bound(Protocol):
    """What a run is held to."""

    def verdict(self, table: Table) -> Verdict:
        """Looks at the figures."""

    @property
    def looks_at(self) -> list[Figure]:
        """The figures, as far as they are named."""


@dataclass(frozen=True)
class Figure:
    """One engine's figure in one case."""

    key: Key
    engine: str
    each: bool = False

    def of(self, table: Table) -> float | None:
        """The figure, if there is one."""
        return table.each(self.key, self.engine) if self.each else table.us(self.key, self.engine)

    def error(self, table: Table) -> str | None:
        """Why there is none, if it failed."""
        return table.error(self.key, self.engine)

    def missing(self, table: Table) -> Verdict:
        """Of a figure that is not there."""
        return Verdict(False, self.error(table) or f"no figure for {' '.join(self.key)} {self.engine}")


@dataclass(frozen=True)
class Ratio:
    """One figure over another."""

    over: Figure
    under: Figure
    most: float

    @property
    def looks_at(self) -> list[Figure]:
        """Both."""
        return [self.over, self.under]

    def verdict(self, table: Table) -> Verdict:
        """Looks at the figures."""
        top, bottom = self.over.of(table), self.under.of(table)
        if top is None:
            return self.over.missing(table)
        if self.under.error(table) is not None and self.under.engine != self.over.engine:
            return Verdict(True, f"{self.under.engine} fails here")
        if not bottom:
            return self.under.missing(table)
        return Verdict(top / bottom <= self.most, f"{top / bottom:.3f} ({top:.4g} over {bottom:.4g})")


@dataclass(frozen=True)
class AtMost:
    """A figure by itself."""

    figure: Figure
    most: float

    @property
    def looks_at(self) -> list[Figure]:
        """The one."""
        return [self.figure]

    def verdict(self, table: Table) -> Verdict:
        """Looks at the figure."""
        found = self.figure.of(table)
        return self.figure.missing(table) if found is None else Verdict(found <= self.most, f"{found:.4g}")


@dataclass(frozen=True)
class NoFailure:
    """An engine that does every case."""

    engine: str

    @property
    def looks_at(self) -> list[Figure]:
        """Whatever there is."""
        return []

    def verdict(self, table: Table) -> Verdict:
        """Looks at the figures."""
        if self.engine not in table.engines:
            return Verdict(False, f"{self.engine} was not run")
        failed = [f"{case} {op}" for case, op in table.cells if table.error((case, op), self.engine) is not None]
        return Verdict(not failed, f"fails: {', '.join(failed)}" if failed else "none")


def parsed(text: str) -> Bound:
    """The bound that a line says."""
    if match := re.fullmatch(r"no failure (.+)", text):
        return NoFailure(match[1])
    if match := re.fullmatch(rf"{FIGURE} <= {NUMBER}(?: us)?", text):
        return AtMost(Figure((match[1], match[2]), match[3], bool(match[4])), float(match[5]))
    if match := re.fullmatch(rf"{FIGURE}/({ENGINE}) <= {NUMBER}", text):
        over = Figure((match[1], match[2]), match[3], bool(match[4]))
        return Ratio(over, Figure(over.key, match[5], over.each), float(match[6]))
    if match := re.fullmatch(rf"{FIGURE}/{FIGURE} <= {NUMBER}", text):
        over = Figure((match[1], match[2]), match[3], bool(match[4]))
        return Ratio(over, Figure((match[5], match[6]), match[7], bool(match[8])), float(match[9]))
    raise BadBound(f"cannot read the bound {text!r}")


def from_file(path: Path) -> list[str]:
    """One bound a line; # starts a comment, and {a, b} stands for a line with each word."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [each for line in lines if line for each in alternatives(line)]


def alternatives(line: str) -> list[str]:
    """A line for each word of the first {a, b} in it, and so on."""
    found = re.search(r"\{([^{}]*)\}", line)
    if found is None:
        return [line]
    words = [word.strip() for word in found[1].split(",")]
    return [each for word in words for each in alternatives(line.replace(found[0], word))]
