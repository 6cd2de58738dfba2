"""One measured figure as a line of JSON: what the benchmarks print and compare.py reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """A case and what was done. One that failed has `error`, and is never left out."""

    case: str
    op: str
    error: str | None = None
    median_us: float | None = None
    """Microseconds a call; in the cases with threads, wall time over the calls of all threads."""
    min_us: float | None = None
    p99_us: float | None = None
    us_per_request: float | None = None
    gbps: float | None = None
    """Gigabytes (10^9) a second at the median."""
    requests: int | None = None
    bytes: int | None = None
    cpu_s_per_gb: float | None = None
    """CPU seconds of both processes a gigabyte."""
    value: float | None = None
    """The figure of a row that is not a time, in `unit`; less is better."""
    unit: str | None = None
    engine: str | None = None
    """Set only by programs that measure several things."""

    def line(self) -> str:
        """As JSON."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None or name == "error"})

    @property
    def key(self) -> tuple[str, str]:
        """The case and what was done."""
        return self.case, self.op

    @property
    def figure(self) -> float | None:
        """What the row is about."""
        return self.value if self.value is not None else self.median_us


def timed(case: str, op: str, seconds: Sequence[float], requests: int, size: int, cpu: float | None = None) -> Row:
    """The row of calls that took these times, each of `requests` requests and `size` bytes."""
    times = sorted(seconds)
    median = times[len(times) // 2]
    return Row(
        case,
        op,
        median_us=round(median * 1e6, 2),
        min_us=round(times[0] * 1e6, 2),
        p99_us=round(times[min(len(times) - 1, int(len(times) * 0.99))] * 1e6, 2),
        us_per_request=round(median * 1e6 / requests, 4),
        gbps=round(size / median / 1e9, 3) if size else None,
        requests=requests,
        bytes=size or None,
        cpu_s_per_gb=cpu,
    )


def parse(line: str) -> Row | None:
    """A row, if the line is one: engines log to the same stream."""
    if not line.startswith("{"):
        return None
    try:
        fields: dict[str, Any] = json.loads(line)
        return Row(**fields)
    except (ValueError, TypeError):
        return None
