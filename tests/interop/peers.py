"""Cases of what peers tell each other beside bytes: notifications, liveness, buffers; and of how they are found."""

from __future__ import annotations

import hashlib
import time

from tests.interop.pair import LATE_BYTES_SECONDS, Memory, Mode, Move, Pair, batch, transfer
from tests.interop.processes import free_ports
from tests.interop.refusals import SETTLE_SECONDS
from tests.interop.transfers import MIB, applied, patience, regions
from tests.interop.verdict import OK, Status, Verdict, fail, not_applicable

SLAB_LENGTH = 2 << 30
NOTES = [("plain", "sent with no bytes"), ("größe ✓", 'quotes " and\nlines'), ("long", "x" * 65_536)]


def notify(pair: Pair) -> Verdict:
    """Notifications arrive once each, in order, whole, and after the bytes they follow."""
    release = pair.target_environment.release
    if pair.mode.uses_server and not release.notified_with_server:
        return not_applicable(f"{release.name} has no handshake port when there is a metadata server")
    target = pair.target()
    initiator = pair.initiator()
    source, sink = regions("write", initiator, target, MIB)
    lengths = [0, 70_000, 0]
    for (name, message), length in zip(NOTES, lengths, strict=True):
        outcome = initiator.node.timed(
            "transfer_with_notify",
            peer=target.name,
            local=source.address,
            remote=sink.address,
            length=length,
            name=name,
            message=message,
        )
        if not outcome.ok:
            return fail(f"write of {length} bytes with a notification returned {outcome.code}")
    sink.expected[: lengths[1]] = source.expected[: lengths[1]]
    seen: list[tuple[str, str]] = []
    deadline = time.monotonic() + LATE_BYTES_SECONDS
    while len(seen) < len(NOTES) and time.monotonic() < deadline:
        seen += [(name, message) for name, message in target.node.call("notifies")]
        time.sleep(0.02)
    sink.check()
    time.sleep(SETTLE_SECONDS)
    seen += [(name, message) for name, message in target.node.call("notifies")]
    if seen != NOTES:
        brief = [(name, len(message)) for name, message in seen]
        return fail(f"{len(NOTES)} notifications sent, these came: {brief}")
    return OK


def probe(pair: Pair) -> Verdict:
    """A live peer is alive, a dead one is not."""
    if not pair.initiator_environment.release.has_send_probe:
        return not_applicable("no send_probe in this release")
    release = pair.target_environment.release
    if pair.mode.uses_server and not release.notified_with_server:
        return not_applicable(f"{release.name} has no handshake port when there is a metadata server")
    if not pair.initiator_is_moonrail and not release.answers_probe:
        return not_applicable("the target knows no probe, and a genuine initiator has no other way")
    target = pair.target()
    initiator = pair.initiator()
    outcome = initiator.node.timed("probe", peer=target.name)
    if not outcome.ok:
        return fail(f"probe of a live peer returned {outcome.code}")
    target.node.kill()
    outcome = initiator.node.timed("probe", peer=target.name)
    if outcome.ok:
        return Verdict(Status.FALSE_SUCCESS, "a dead peer probes as alive")
    unknown = f"127.0.0.1:{free_ports(1)}" if pair.mode is Mode.P2P else "nobody"
    if initiator.node.timed("probe", peer=unknown).ok:
        return Verdict(Status.FALSE_SUCCESS, "a peer that never was probes as alive")
    return OK


def first_buffer(pair: Pair) -> Verdict:
    """The initiator reads the target's first buffer out of its descriptor."""
    target = pair.target()
    first = target.memory("first", 4096, 1).address
    target.memory("second", 4096, 2)
    initiator = pair.initiator()
    seen = initiator.node.call("first_buffer", peer=target.name)
    if pair.target_environment.release.slab_at_start:
        managed_address = target.node.call("managed", length=4096)
        found = seen <= managed_address < seen + SLAB_LENGTH
        return OK if found else fail(f"managed memory is at {managed_address:#x}, the initiator sees {seen:#x}")
    return OK if seen == first else fail(f"first buffer is at {first:#x}, the initiator sees {seen:#x}")


def many_buffers(pair: Pair) -> Verdict:
    """A target with 1,000 separate buffers, each written to in one batch."""
    count, length, stride = 1000, 512, 600
    target = pair.target()
    far = target.memory("buffers", count * stride, 2, registered=False)
    addresses = [far.address + index * stride for index in range(count)]
    code = target.node.call("register_batch", addresses=addresses, lengths=[length] * count)
    if code != 0:
        return fail(f"registering {count} buffers returned {code}")
    initiator = pair.initiator()
    near = initiator.memory("buffer", count * length, 1)
    plan = [Move(index * length, index * stride, length) for index in range(count)]
    outcome = batch("write", near, far, initiator, target.name, plan)
    return applied(pair, "write", outcome, far, near)


def managed(pair: Pair) -> Verdict:
    """Memory that the target's engine allocated, written and read back by the initiator."""
    length = 100_000
    target = pair.target()
    address = target.node.call("managed", length=length)
    if address == 0:
        return fail("the target cannot allocate managed memory")
    target.node.call("managed_write", address=address, seed=9, length=length)
    initiator = pair.initiator()
    near = initiator.memory("buffer", length, 1)
    far = Memory(target, "managed", address, 9, bytearray(length))
    outcome = transfer("write", near, far, initiator, target.name, Move(0, 0, length))
    if not outcome.ok:
        return fail(f"write returned {outcome.code}")
    deadline = time.monotonic() + patience(pair, "write")
    sent = hashlib.sha256(near.expected).hexdigest()
    while target.node.call("managed_digest", address=address, length=length) != sent:
        if time.monotonic() >= deadline:
            return Verdict(Status.FALSE_SUCCESS, "the managed memory does not hold what was written")
        time.sleep(0.05)
    near.refill(7)
    outcome = transfer("read", far, near, initiator, target.name, Move(0, 0, length))
    if not outcome.ok:
        return fail(f"read returned {outcome.code}")
    near.check()
    return OK


def withdraw(pair: Pair) -> Verdict:
    """A target that ends in order leaves no key behind on the metadata server."""
    if pair.server is None or not pair.mode.uses_server:
        return not_applicable("no metadata server")
    target = pair.target()
    target.memory("buffer", 4096, 1)
    missing = [key for key in pair.metadata_keys() if pair.server.get(key) is None]
    if missing:
        return fail(f"not published: {', '.join(missing)}")
    status = target.node.close()
    if status != 0:
        return fail(f"the target exited with {status}")
    left = [key for key in pair.metadata_keys() if pair.server.get(key) is not None]
    return fail(f"left behind: {', '.join(left)}") if left else OK


def over_ipv6(pair: Pair) -> Verdict:
    """Both ways over ::1."""
    for environment in (pair.initiator_environment, pair.target_environment):
        if not environment.release.ipv6:
            return not_applicable(f"{environment.release.name} has no working IPv6")
    target = pair.target(ipv6=True)
    initiator = pair.initiator(ipv6=True)
    near = initiator.memory("buffer", MIB, 1)
    far = target.memory("buffer", MIB, 2)
    for op, source, sink in (("write", near, far), ("read", far, near)):
        if op == "read":
            near.refill(3)
        outcome = transfer(op, source, sink, initiator, target.name, Move(10, 20, 500_000))
        verdict = applied(pair, op, outcome, sink, source)
        if verdict.status is not Status.OK:
            return verdict
    return OK
