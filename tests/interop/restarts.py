"""Cases of a target that dies and comes back."""

from __future__ import annotations

from collections.abc import Callable

from tests.interop.lasting import LastingTarget, PortsHeld
from tests.interop.pair import Memory, Move, Pair, Party, transfer
from tests.interop.refusals import MOONRAIL_PROMPT_SECONDS, recover, untouched
from tests.interop.transfers import MIB, applied, regions
from tests.interop.verdict import OK, Status, Verdict, fail, not_applicable


def restart(same_ports: bool) -> Callable[[Pair], Verdict]:
    """The target is killed and comes back under its name: clear failure between, healing after, old addresses dead.

    In P2P mode a name is a port, so the ports are given. With a new data port the initiator must notice that what it
    knows of the target is stale; with the same ones it must notice that the old addresses are.
    """

    def run(pair: Pair) -> Verdict:
        if same_ports and pair.mode.uses_server:
            return not_applicable("with a metadata server the data port is a new one")
        with LastingTarget(pair, same_ports=same_ports) as lasting:
            try:
                return come_back(pair, lasting)
            except PortsHeld as error:
                return fail(str(error))

    return run


def come_back(pair: Pair, lasting: LastingTarget) -> Verdict:
    """Kills the target, starts the next one, and judges how the initiator takes it."""
    target = lasting.start()
    initiator = pair.initiator()
    source, sink = regions("write", initiator, target, MIB)
    move = Move(10, 20, 100_000)
    outcome = transfer("write", source, sink, initiator, target.name, move)
    verdict = applied(pair, "write", outcome, sink, source)
    if verdict.status is not Status.OK:
        return fail(f"before the restart: {verdict}")
    target.node.kill()
    outcome = transfer("write", source, sink, initiator, target.name, move)
    if outcome.ok:
        return Verdict(Status.FALSE_SUCCESS, "the target was dead")
    if pair.initiator_is_moonrail and outcome.seconds > MOONRAIL_PROMPT_SECONDS:
        return fail(f"failure against a dead target took {outcome.seconds:.1f} s")
    notes = []
    if must_free_name(pair):
        notes.append("genuine server and target: the dead target's keys had to be deleted by hand")
    old_address = sink.address
    target = lasting.restart()
    sink = target.memory("buffer", MIB, 5)
    healed = recover(pair, "write", initiator, target, source, sink)
    if healed == 0:
        if pair.initiator_is_moonrail:
            return fail("the initiator does not find the restarted target")
        notes.append("a new initiator was needed: a genuine one keeps a descriptor for ever")
        initiator = pair.initiator()
        source = initiator.memory("buffer", MIB, 1)
        if recover(pair, "write", initiator, target, source, sink) == 0:
            return fail("no initiator, not even a new one, can write to the restarted target")
    elif healed > 1:
        notes.append("not at the first try")
    verdict = at_old_address(pair, initiator, target, source, old_address)
    if verdict.status.bad:
        return Verdict(verdict.status, f"at an address from before the restart: {verdict.note}")
    if verdict.status is Status.NOT_TOLD:
        notes.append("old address: refused, not told (v1)")
    return Verdict(Status.OK, "; ".join(notes))


def at_old_address(pair: Pair, initiator: Party, target: Party, source: Memory, address: int) -> Verdict:
    """A write to where the target that died had its memory."""
    sink = target.regions[0]
    if sink.address - MIB < address < sink.address + sink.length:
        return OK  # The new target's memory lies there by chance, so there is nothing to refuse.
    ghost = Memory(target, "ghost", address, 0, bytearray(MIB))
    return untouched(pair, "write", initiator, target, (source, ghost), Move(10, 20, 4096))


def must_free_name(pair: Pair) -> bool:
    """Deletes a killed target's keys where nobody else does: a genuine target on the genuine server."""
    if pair.server is None or pair.server.frees_dead_names or pair.target_environment.release.moonrail:
        return False
    for key in pair.metadata_keys():
        pair.server.delete(key)
    return pair.mode.uses_server
