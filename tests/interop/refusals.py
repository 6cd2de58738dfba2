"""Cases of transfers that must be refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from tests.interop.pair import Memory, Mismatch, Mode, Move, Pair, Party, transfer
from tests.interop.transfers import applied, patience, regions
from tests.interop.verdict import Status, Verdict, fail, not_applicable

# Long enough that a genuine initiator's cool-down of 1 s after a failure is over.
GENUINE_RECOVERY_SECONDS = 4.0
# A refused or dead peer: the promise is 100 ms, the rest is for a busy machine.
MOONRAIL_PROMPT_SECONDS = 2.0
SETTLE_SECONDS = 0.3


class Bad(Enum):
    """Why an address is a bad one."""

    NEVER = "never registered"
    SINCE = "unregistered since"
    PAST_END = "past the end"


def refused(op: str, why: Bad, *, initiator_variables: dict[str, str] | None = None) -> Callable[[Pair], Verdict]:
    """A transfer to a bad address: refused, memory as it was, and a legal one works right after."""

    def run(pair: Pair) -> Verdict:
        target = pair.target()
        initiator = pair.initiator(initiator_variables)
        source, sink = regions(op, initiator, target, 64 * 1024)
        other = target.memory("other", 64 * 1024, 3, registered=why is Bad.SINCE)
        move = Move(100, 200, 4096)
        near = source if op == "write" else sink
        ends = {"write": (near, other), "read": (other, near)}[op]
        if why is Bad.PAST_END:
            ends = (source, sink)
            move = Move(100, 64 * 1024 - 100, 101)
        if why is Bad.SINCE:
            first = transfer(op, *ends, initiator, target.name, move)
            verdict = applied(pair, op, first, ends[1], ends[0])
            if verdict.status is not Status.OK:
                return fail(f"the legal transfer before: {verdict}")
            other.unregister()
            near.refill(4)
        verdict = untouched(pair, op, initiator, target, ends, move)
        if verdict.status.bad:
            return verdict
        tries = recover(pair, op, initiator, target, source, sink)
        if tries == 0:
            return fail("no legal transfer works after the refused one")
        if tries > 1:
            return Verdict(verdict.status, f"legal transfer after it works at try {tries}")
        return verdict

    return run


def untouched(pair: Pair, op: str, initiator: Party, target: Party, ends: tuple[Memory, Memory], move: Move) -> Verdict:
    """Does the transfer, which ought to be refused, and judges that."""
    source, sink = ends
    before = bytes(sink.expected)
    outcome = transfer(op, source, sink, initiator, target.name, move)
    sink.expected[:] = before
    time.sleep(SETTLE_SECONDS)
    told = f"reported {outcome.code}"
    for region in [*target.regions, *initiator.regions]:
        try:
            region.check()
        except Mismatch:
            deed = "overwrote" if op == "write" else "read"
            return fail(f"{deed} memory that is not registered, {told}")
    if not target.node.alive():
        return fail(f"the target died, {told}")
    if not outcome.ok:
        if pair.initiator_is_moonrail and outcome.seconds > MOONRAIL_PROMPT_SECONDS:
            return fail(f"refused only after {outcome.seconds:.1f} s")
        return Verdict(Status.REFUSED)
    if op == "write" and pair.sends_blind:
        return Verdict(Status.NOT_TOLD)
    return Verdict(Status.FALSE_SUCCESS, "nothing was moved")


def recover(pair: Pair, op: str, initiator: Party, target: Party, source: Memory, sink: Memory) -> int:
    """At which try a legal transfer works: Moonrail has one, a genuine initiator several seconds. 0: at none."""
    deadline = time.monotonic() + (0.0 if pair.initiator_is_moonrail else GENUINE_RECOVERY_SECONDS)
    tries = 0
    while True:
        tries += 1
        outcome = transfer(op, source, sink, initiator, target.name, Move(300 + tries, 400, 5000))
        if outcome.ok:
            sink.check(patience(pair, op))
            return tries
        if time.monotonic() >= deadline:
            return 0
        time.sleep(0.2)


def v1_clients_refused(pair: Pair) -> Verdict:
    """A Moonrail target told to refuse v1 clients: their legal and their bad writes fail, and memory stays."""
    release = pair.initiator_environment.release
    if not pair.target_environment.release.moonrail:
        return not_applicable("only a Moonrail target has the switch")
    if release.data_protocol != 1:
        return not_applicable("the initiator speaks v2")
    target = pair.target({"MOONRAIL_V1_CLIENTS": "refuse"})
    initiator = pair.initiator()
    source, sink = regions("write", initiator, target, 64 * 1024)
    other = target.memory("other", 64 * 1024, 3, registered=False)
    for ends in ((source, other), (source, sink)):
        verdict = untouched(pair, "write", initiator, target, ends, Move(100, 200, 4096))
        if verdict.status is Status.REFUSED:
            continue
        if verdict.status is Status.NOT_TOLD and pair.mode is Mode.P2P:
            return Verdict(Status.FALSE_SUCCESS, "a v1 write was reported done, though v1 clients are refused")
        return verdict
    return Verdict(Status.REFUSED)
