"""What the tests say about calls: arguments, transfers in each of their forms, and what a failure must look like."""

from __future__ import annotations

from collections.abc import Sequence

from .driver import Json
from .nodes import LIMIT_S, Node, Outcome

# Arguments that are more than a number


def steps(start: int, step: int, count: int) -> Json:
    """`count` numbers from `start`, `step` apart (all equal for 0)."""
    return {"range": [start, step, count]}


def shuffled(seed: int, start: int, step: int, count: int) -> Json:
    return {"shuffled": [seed, start, step, count]}


def opcode(name: str) -> Json:
    return {"opcode": name}


def notify(name: str, message: str) -> Json:
    return {"notify": [name, message]}


# What a failure must look like


def failed(
    node: Node, outcome: Outcome, *needles: str | Sequence[str], within: float = 1.0, engine: str = "main"
) -> str:
    """Asserts a clean error: negative, in time, the process alive, an explanation that names what it is about.

    A needle that is a sequence stands for several ways to write the same thing.
    """
    assert outcome.raised is None, f"raised {outcome.raised}: {outcome.text}"
    assert isinstance(outcome.value, int) and outcome.value < 0, f"a failure must be negative, got {outcome.value!r}"
    return explained(node, outcome, *needles, within=within, engine=engine)


def no_id(node: Node, outcome: Outcome, *needles: str | Sequence[str], within: float = 1.0) -> str:
    """The same for the calls that return an identifier or an address: failure is 0."""
    assert outcome.raised is None, f"raised {outcome.raised}: {outcome.text}"
    assert outcome.value == 0, f"a failed submission gives 0, got {outcome.value!r}"
    return explained(node, outcome, *needles, within=within)


def explained(node: Node, outcome: Outcome, *needles: str | Sequence[str], within: float, engine: str = "main") -> str:
    assert outcome.seconds < within, f"took {outcome.seconds:.2f} s, allowed {within} s"
    text = node.explanation(engine)
    for needle in needles:
        ways = [needle] if isinstance(needle, str) else needle
        assert any(way.lower() in text.lower() for way in ways), f"none of {ways} in the explanation: {text!r}"
    return text


def number(value: int) -> list[str]:
    """The ways to write an address or a length in a message."""
    return [str(value), f"{value:#x}", f"{value:#018x}", f"{value:_}", f"{value:,}"]


# Transfers in each of their forms

WRITES = (
    "transfer_sync_write",
    "batch_transfer_sync_write",
    "batch_transfer_async_write",
    "transfer_submit_write",
)
READS = ("transfer_sync_read", "batch_transfer_sync_read", "batch_transfer_async_read")
FORMS = WRITES + READS


def transfer(node: Node, form: str, peer: str, local: int, remote: int, size: int, limit: float = LIMIT_S) -> Outcome:
    """One range by the method named; what comes back is 0 or negative whichever it is.

    For the asynchronous ones: the result of waiting, or -1 with the submission's own time if it was refused.
    """
    if form in ("transfer_sync_write", "transfer_sync_read"):
        return node.call(form, peer, local, remote, size, limit=limit)
    if form in ("batch_transfer_sync_write", "batch_transfer_sync_read"):
        return node.call(form, peer, [local], [remote], [size], limit=limit)
    if form == "transfer_submit_write":
        submitted = node.call(form, peer, local, remote, size, limit=limit)
    else:
        submitted = node.call(form, peer, [local], [remote], [size], limit=limit)
    if submitted.raised is not None:
        return submitted
    if submitted.value == 0:
        return Outcome(-1, None, "", submitted.seconds, {})
    if form == "transfer_submit_write":
        polled = node.ask("poll", wait=limit + 5, id=submitted.value, limit=limit)
        value = 0 if polled["value"] == 1 else polled["value"] or -99
        return Outcome(value, None, "", submitted.seconds + polled["seconds"], {})
    waited = node.call("get_batch_transfer_status", [submitted.value], limit=limit)
    return Outcome(waited.value, waited.raised, waited.text, submitted.seconds + waited.seconds, {})
