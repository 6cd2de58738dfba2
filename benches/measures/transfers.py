"""Plain transfers: one call after the other, from one thread."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from benches.cases import OPS, Case, chosen
from benches.far import arrived, between, prepare
from benches.measures.bench import Bench
from benches.memory import huge_share
from benches.mooncake_api import must
from benches.rows import Row, timed

COLLAPSE_SECONDS = 6.0
"""What an engine gets to have the memory collapsed into huge pages."""
COLLAPSED = "collapsed: "


def run(bench: Bench, groups: list[str], only: str) -> None:
    """Every case of these groups."""
    waited = False
    for case in chosen(groups, only):
        if case.name.startswith(COLLAPSED) and not waited:
            bench.attempt(case.name, "wait", lambda: wait_for_collapse(bench))
            waited = True
        for op in OPS:
            bench.attempt(case.name, op, functools.partial(measured, bench, case, op))


def measured(bench: Bench, case: Case, op: str) -> Row:
    """Times one case."""
    pool, local, remote = bench.memory(case.memory)
    prepare(case, op, pool, bench.far)
    call = bound(bench, case, op, local, remote)
    calls = case.measured(bench.quick)
    used = bench.used()
    seconds = []
    for _ in range(calls + 1):
        if case.before != "nothing":
            between(case, op, pool, bench.far)
        began = time.perf_counter()
        status = call()
        seconds.append(time.perf_counter() - began)
        must("the call", status)
    # What is done between the calls would count as theirs.
    counted = bench.cpu and case.before == "nothing"
    cpu = round((bench.used() - used) / (case.total * (calls + 1) / 1e9), 4) if counted else None
    if not arrived(case, op, pool, bench.far):
        raise RuntimeError("the bytes that arrived differ")
    return timed(case.name, op, seconds[1:], case.count, case.total, cpu)


def bound(bench: Bench, case: Case, op: str, local: int, remote: int) -> Callable[[], int]:
    """One call of the case, its arguments made before it is timed."""
    engine, session = bench.engine, bench.session
    near = [local + offset for offset in case.sources]
    far = [remote + offset for offset in case.targets]
    if case.count == 1:
        one = engine.transfer_sync_write if op == "write" else engine.transfer_sync_read
        return functools.partial(one, session, near[0], far[0], case.size)
    many = engine.batch_transfer_sync_write if op == "write" else engine.batch_transfer_sync_read
    return functools.partial(many, session, near, far, list(case.lengths))


def wait_for_collapse(bench: Bench) -> list[Row]:
    """Until both ends' memory lies in huge pages, or the time is up; no row of its own."""
    pool, _, _ = bench.memory("small")
    until = time.monotonic() + COLLAPSE_SECONDS
    while time.monotonic() < until and min(huge_share(pool), float(bench.far.ask("huge"))) < 0.95:
        time.sleep(0.1)
    return []
