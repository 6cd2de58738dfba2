"""The rows of the matrix.

A case starts what it needs, does it, and judges. It says `ok` or `refused` only after the bytes of every region it
made were compared, by hash, at the side where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.interop import peers
from tests.interop.pair import Mismatch, Pair
from tests.interop.processes import NodeFailed
from tests.interop.refusals import Bad, refused, v1_clients_refused
from tests.interop.restarts import restart
from tests.interop.transfers import MIB, forced_v1, large_batch, moves, pool_switched, varied
from tests.interop.verdict import Verdict, fail


@dataclass(frozen=True)
class Case:
    """A row of the matrix."""

    name: str
    run: Callable[[Pair], Verdict]


def judge(case: Case, pair: Pair) -> Verdict:
    """Runs a case; whatever goes wrong becomes a verdict."""
    try:
        return case.run(pair)
    except (Mismatch, NodeFailed) as error:
        return fail(str(error))


SIZES = {
    "0 B": 0,
    "1 B": 1,
    "65,535 B": 65_535,
    "65,536 B": 65_536,
    "65,537 B": 65_537,
    "1 MiB": MIB,
    "> 64 MiB": 64 * MIB + 12345,
}
V1 = {"MC_TCP_PROTO": "1"}


def all_cases() -> list[Case]:
    """Every row, in the order of the report."""
    rows = []
    for op in ("write", "read"):
        rows += [Case(f"{op} {label}", moves(op, [size])) for label, size in SIZES.items()]
        rows.append(Case(f"{op} batch 1", moves(op, [4097], wait="batch")))
        rows += [Case(f"{op} batch {n:,}", moves(op, varied(n), wait="batch")) for n in (100, 2000)]
        rows.append(Case(f"{op} batch 20,000", large_batch(op)))
        rows.append(Case(f"{op} async batch 100", moves(op, varied(100), wait="batch_async")))
        rows += [Case(f"{op} {why.value}", refused(op, why)) for why in Bad]
        rows.append(Case(f"{op} pool off", pool_switched(op, "0")))
        rows.append(Case(f"{op} pool on", pool_switched(op, "1")))
        rows.append(Case(f"{op} forced v1", forced_v1(moves(op, [100_000], initiator_variables=V1))))
        rows.append(Case(f"{op} forced v1 never registered", forced_v1(refused(op, Bad.NEVER, initiator_variables=V1))))
    rows += [
        Case("v1 clients refused", v1_clients_refused),
        Case("restart", restart(same_ports=False)),
        Case("restart same ports", restart(same_ports=True)),
        Case("notify", peers.notify),
        Case("probe", peers.probe),
        Case("first buffer", peers.first_buffer),
        Case("1,000 buffers", peers.many_buffers),
        Case("managed memory", peers.managed),
        Case("withdraw", peers.withdraw),
        Case("ipv6", peers.over_ipv6),
    ]
    return rows
