"""Cases of transfers that must work."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.interop.pair import LATE_BYTES_SECONDS, Memory, Mismatch, Move, Pair, Party, batch, transfer
from tests.interop.processes import Outcome
from tests.interop.verdict import OK, Status, Verdict, fail, not_applicable

MIB = 1 << 20


def moves(
    op: str,
    lengths: list[int],
    *,
    wait: str | None = None,
    initiator_variables: dict[str, str] | None = None,
) -> Callable[[Pair], Verdict]:
    """A legal transfer of the given lengths: as one call when there is one length, else as one batch."""

    def run(pair: Pair) -> Verdict:
        target = pair.target()
        initiator = pair.initiator(initiator_variables)
        plan, size = scatter(lengths)
        source, sink = regions(op, initiator, target, size)
        if wait is None:
            outcome = transfer(op, source, sink, initiator, target.name, plan[0])
        else:
            outcome = batch(op, source, sink, initiator, target.name, plan, wait=wait)
        return applied(pair, op, outcome, sink, source)

    return run


def regions(op: str, initiator: Party, target: Party, size: int) -> tuple[Memory, Memory]:
    """A registered region at both sides: the source and the sink of `op`."""
    near = initiator.memory("buffer", size, 1)
    far = target.memory("buffer", size, 2)
    return (near, far) if op == "write" else (far, near)


def scatter(lengths: list[int]) -> tuple[list[Move], int]:
    """Places ranges of the lengths in two regions of the returned size: gaps between, another order at each side."""
    gap = 13
    size = sum(lengths) + gap * (len(lengths) + 1)
    chance = random.Random(len(lengths))

    def places() -> list[int]:
        order = list(range(len(lengths)))
        chance.shuffle(order)
        offsets = [0] * len(lengths)
        position = gap
        for index in order:
            offsets[index] = position
            position += lengths[index] + gap
        return offsets

    near, far = places(), places()
    return [Move(near[i], far[i], length) for i, length in enumerate(lengths)], size


def varied(count: int) -> list[int]:
    """Lengths of a batch: from 0 bytes to 3 KiB, about 1.5 KiB in the mean."""
    return [(index * 389) % 3073 for index in range(count)]


def applied(pair: Pair, op: str, outcome: Outcome, sink: Memory, source: Memory) -> Verdict:
    """Success, and the bytes are where they should be: at once, except where the initiator cannot know (v1 write)."""
    if not outcome.ok:
        return fail(f"{op} returned {outcome.code} after {outcome.seconds:.2f} s")
    try:
        sink.check(patience(pair, op))
    except Mismatch as error:
        return Verdict(Status.FALSE_SUCCESS, str(error))
    source.check()
    return OK


def patience(pair: Pair, op: str) -> float:
    """Seconds in which bytes may still come after success was reported."""
    return LATE_BYTES_SECONDS if op == "write" and pair.sends_blind else 0.0


def large_batch(op: str) -> Callable[[Pair], Verdict]:
    """20,000 descriptors in one call."""

    def run(pair: Pair) -> Verdict:
        if not pair.initiator_is_moonrail:
            return not_applicable("a genuine initiator refuses batches beyond about 2,050")
        return moves(op, varied(20_000), wait="batch")(pair)

    return run


def forced_v1(run: Callable[[Pair], Verdict]) -> Callable[[Pair], Verdict]:
    """`run`, for genuine initiators that can be told to speak v1 though they know v2."""

    def guarded(pair: Pair) -> Verdict:
        release = pair.initiator_environment.release
        if release.moonrail or release.data_protocol == 1:
            return not_applicable("MC_TCP_PROTO=1 is for genuine initiators of 0.3.12 and later")
        return run(pair)

    return guarded


def pool_switched(op: str, value: str) -> Callable[[Pair], Verdict]:
    """A batch by a genuine initiator with its connection pool switched on or off."""

    def run(pair: Pair) -> Verdict:
        if not pair.initiator_environment.release.pool_switch:
            return not_applicable("the initiator has no such switch")
        variables = {"MC_TCP_ENABLE_CONNECTION_POOL": value}
        return moves(op, varied(100), wait="batch", initiator_variables=variables)(pair)

    return run
