"""Runs cells: every chosen case, for every chosen release, role and mode, a few at a time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.interop.cases import Case, judge
from tests.interop.environments import Environment
from tests.interop.pair import Mode, Pair
from tests.interop.processes import MetadataServer, tail
from tests.interop.report import Cell, Matrix, Role
from tests.interop.verdict import fail


@dataclass(frozen=True)
class Plan:
    """What to run: `home` is the engine that each of `visitors` is paired with."""

    home: Environment
    visitors: Sequence[Environment]
    roles: Sequence[Role]
    modes: Sequence[Mode]
    cases: Sequence[Case]
    moonrail_program: Path | None
    genuine_server: Environment
    genuine_server_releases: Sequence[str]
    """The releases that run in `Mode.HTTP_GENUINE` too."""
    logs: Path
    jobs: int


@dataclass(frozen=True)
class Job:
    """One cell to be."""

    visitor: Environment
    role: Role
    mode: Mode
    case: Case


def run(plan: Plan, progress: Callable[[Cell], None]) -> Matrix:
    """Runs the plan; `progress` hears of each cell as it is done."""
    shutil.rmtree(plan.logs, ignore_errors=True)
    plan.logs.mkdir(parents=True)
    with ExitStack() as stack:
        servers = {mode: stack.enter_context(server(plan, mode)) for mode in plan.modes if mode.uses_server}
        work = jobs(plan)

        def one(job: Job) -> Cell:
            cell = run_cell(plan, job, servers.get(job.mode))
            progress(cell)
            return cell

        with ThreadPoolExecutor(plan.jobs) as pool:
            cells = list(pool.map(one, work))
    return Matrix(plan.home.release.name, cells)


def jobs(plan: Plan) -> list[Job]:
    """Every cell of the plan, in the order of the report."""
    return [
        Job(visitor, role, mode, case)
        for mode in plan.modes
        for role in plan.roles
        for visitor in plan.visitors
        if mode is not Mode.HTTP_GENUINE or visitor.release.name in plan.genuine_server_releases
        for case in plan.cases
    ]


def run_cell(plan: Plan, job: Job, metadata: MetadataServer | None) -> Cell:
    """Runs one cell, with logs of its own that are kept only if it went wrong."""
    place = "-".join([job.mode.value, job.role.value, job.visitor.release.name, job.case.name])
    logs = plan.logs / "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in place)
    logs.mkdir()
    initiator, target = (job.visitor, plan.home) if job.role is Role.INITIATOR else (plan.home, job.visitor)
    start = time.monotonic()
    with Pair(initiator, target, job.mode, metadata, logs) as pair:
        try:
            verdict = judge(job.case, pair)
        except Exception as error:  # A fault of the harness: one bad cell, not a lost run.
            verdict = fail(f"harness: {type(error).__name__}: {error}")
    seconds = time.monotonic() - start
    texts = ""
    if verdict.status.bad:
        texts = "\n".join(f"{log.stem}:\n{tail(log)}" for log in sorted(logs.glob("*.log")))
    else:
        shutil.rmtree(logs, ignore_errors=True)
    return Cell(job.visitor.release.name, job.role, job.mode.value, job.case.name, verdict, seconds, texts)


def server(plan: Plan, mode: Mode) -> MetadataServer:
    """The metadata server of a mode. `HTTP` is Moonrail's, unless no Moonrail takes part."""
    log = plan.logs / f"{mode.value}-server.log"
    if mode is Mode.HTTP and plan.moonrail_program is not None:
        return MetadataServer.moonrail(plan.moonrail_program, log)
    return MetadataServer.genuine(plan.genuine_server, log)
