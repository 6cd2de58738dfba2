"""The interoperability matrix with one release of each data protocol; `run.py` runs it with all.

Every cell is a test. The last tests show that the harness sees what is wrong, on pairs of genuine releases that are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop import environments
from tests.interop.cases import Case, all_cases, judge
from tests.interop.environments import LATEST, Environment, Unavailable
from tests.interop.pair import Mode, Pair
from tests.interop.processes import MetadataServer
from tests.interop.report import Role
from tests.interop.verdict import Status, Verdict

V1, V2 = "0.3.11.post1", LATEST
CASES = {case.name: case for case in all_cases()}
# What depends on how peers find each other; the rest is the same whatever the mode.
DISCOVERY = [
    "write 1 MiB",
    "read 1 MiB",
    "write batch 100",
    "write never registered",
    "read unregistered since",
    "v1 clients refused",
    "restart",
    "notify",
    "probe",
    "first buffer",
    "withdraw",
    "ipv6",
]
CELLS = [
    *((Mode.P2P, name) for name in CASES if name != "withdraw"),
    *((Mode.HTTP, name) for name in DISCOVERY),
    *((Mode.HTTP_GENUINE, name) for name in ("write 1 MiB", "restart", "withdraw")),
]

# The first run installs the releases.
pytestmark = pytest.mark.timeout(600)


class Engines:
    """Engines and metadata servers, each made when a test first wants it."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._servers: dict[Mode, MetadataServer] = {}
        self._stack = ExitStack()

    def genuine(self, release: str) -> Environment:
        """A genuine release."""
        try:
            return environments.genuine(release)
        except Unavailable as error:
            pytest.skip(str(error))

    def moonrail(self) -> Environment:
        """What is under test: without it there is nothing to say."""
        try:
            return environments.moonrail()
        except Unavailable as error:
            pytest.fail(str(error))

    def server(self, mode: Mode) -> MetadataServer | None:
        """The metadata server of a mode."""
        if mode.uses_server and mode not in self._servers:
            self._servers[mode] = self._stack.enter_context(self._start(mode))
        return self._servers.get(mode)

    def close(self) -> None:
        """Ends the servers."""
        self._stack.close()

    def _start(self, mode: Mode) -> MetadataServer:
        log = self._logs / f"{mode.value}.log"
        if mode is Mode.HTTP_GENUINE:
            return MetadataServer.genuine(self.genuine(LATEST), log)
        return MetadataServer.moonrail(environments.moonrail_program(self.moonrail(), None), log)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    engines = Engines(tmp_path_factory.mktemp("interop"))
    try:
        yield engines
    finally:
        engines.close()


def verdict_of(
    case: Case, initiator: Environment, target: Environment, mode: Mode, engines: Engines, logs: Path
) -> Verdict:
    with Pair(initiator, target, mode, engines.server(mode), logs) as pair:
        return judge(case, pair)


@pytest.mark.parametrize(("mode", "name"), CELLS, ids=lambda value: value.value if isinstance(value, Mode) else value)
@pytest.mark.parametrize("role", Role, ids=lambda role: role.value)
@pytest.mark.parametrize("release", [V1, V2])
def test_moonrail_with(release: str, role: Role, mode: Mode, name: str, engines: Engines, tmp_path: Path) -> None:
    genuine, moonrail = engines.genuine(release), engines.moonrail()
    initiator, target = (genuine, moonrail) if role is Role.INITIATOR else (moonrail, genuine)
    verdict = verdict_of(CASES[name], initiator, target, mode, engines, tmp_path)
    if verdict.status is Status.NOT_APPLICABLE:
        pytest.skip(verdict.note)
    logs = "\n".join(log.read_text(errors="replace")[-2000:] for log in sorted(tmp_path.glob("*.log")))
    assert not verdict.status.bad, f"{verdict}\n{logs}"


BAD = {Status.FAIL, Status.FALSE_SUCCESS}


@pytest.mark.parametrize(
    ("initiator", "target", "name", "expected"),
    [
        # Releases up to 0.3.11 check no address: what nobody registered is overwritten and read.
        (V2, V1, "write never registered", {Status.FAIL}),
        (V2, V1, "read never registered", {Status.FAIL}),
        # They have no answer to a write either.
        (V1, V2, "write never registered", {Status.NOT_TOLD}),
        # Up to 0.3.9 a connection serves one request, which the newest release takes for a lane to keep.
        (V2, "0.3.9", "write pool on", BAD),
        (V2, V2, "write past the end", {Status.REFUSED}),
        (V2, V2, "write 1 MiB", {Status.OK}),
    ],
)
def test_the_harness_sees_what_genuine_pairs_do(
    initiator: str, target: str, name: str, expected: set[Status], engines: Engines, tmp_path: Path
) -> None:
    pair = engines.genuine(initiator), engines.genuine(target)
    verdict = verdict_of(CASES[name], *pair, Mode.P2P, engines, tmp_path)
    assert verdict.status in expected, str(verdict)
