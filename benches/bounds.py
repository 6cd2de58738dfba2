"""Bounds that figures must keep.

CASE OP ENGINE/ENGINE <= X    the ratio of their times. Of an engine above the line that has no figure it is not met;
                              where the one below the line fails it is: that one could not do the work
no failure ENGINE             it did every case
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benches.cases import Key
from benches.table import Table


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


@dataclass(frozen=True)
class Ratio:
    """One engine's time over another's in one case."""

    key: Key
    over: str
    under: str
    most: float

    def verdict(self, table: Table) -> Verdict:
        """Looks at the figures."""
        if table.us(self.key, self.over) is None:
            return Verdict(False, table.error(self.key, self.over) or f"no figure for {self.over}")
        if table.error(self.key, self.under) is not None:
            return Verdict(True, f"{self.under} fails here")
        ratio = table.ratio(self.key, self.over, self.under)
        if ratio is None:
            return Verdict(False, f"no figure for {self.under}")
        return Verdict(ratio <= self.most, f"{ratio:.3f}")


@dataclass(frozen=True)
class NoFailure:
    """An engine that does every case."""

    engine: str

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
    if match := re.fullmatch(r"(.+) (write|read|register|unregister) (.+?)/(.+) <= (\d+(?:\.\d+)?)", text):
        return Ratio((match[1], match[2]), match[3], match[4], float(match[5]))
    raise BadBound(f"cannot read the bound {text!r}")


def from_file(path: Path) -> list[str]:
    """One bound a line; # starts a comment."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]
