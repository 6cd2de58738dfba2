"""What a cell of the matrix can say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """What a cell says."""

    OK = "ok"
    REFUSED = "refused"
    NOT_TOLD = "refused, not told (v1)"
    NOT_APPLICABLE = "n/a"
    FALSE_SUCCESS = "FALSE SUCCESS"
    FAIL = "FAIL"

    @property
    def bad(self) -> bool:
        """Whether something went wrong that should not."""
        return self in (Status.FALSE_SUCCESS, Status.FAIL)


@dataclass(frozen=True)
class Verdict:
    """A cell's status, and what else there is to say."""

    status: Status
    note: str = ""

    def __str__(self) -> str:
        return f"{self.status.value} ({self.note})" if self.note else self.status.value


OK = Verdict(Status.OK)


def fail(what: str) -> Verdict:
    """A failure where there should be none."""
    return Verdict(Status.FAIL, what)


def not_applicable(reason: str) -> Verdict:
    """The case does not fit the pair."""
    return Verdict(Status.NOT_APPLICABLE, reason)
