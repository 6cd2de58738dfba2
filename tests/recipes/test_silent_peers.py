"""Peers that are there and say nothing, or stop in the middle: bounded waits, and nothing lands after the failure."""

from __future__ import annotations

import hashlib
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from .driver import pattern
from .fixtures import Pair
from .nodes import Node, Nodes, Region
from .support import FORMS, failed, steps, transfer

KIB = 1 << 10
MIB = 1 << 20
OVER_TCP = {"MOONRAIL_PATHS": "tcp"}
"""For targets that are stopped: by the same-host path they are written to without their help."""


@contextmanager
def listener(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A port whose connections are given to `answer`, each on a thread; its name as a peer."""
    taken: list[socket.socket] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    taken.append(connection)
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for connection in taken:
                connection.close()


def mute(connection: socket.socket) -> None:
    """Takes it and says nothing."""


def trickling(connection: socket.socket) -> None:
    """Begins an answer and never comes to its end."""
    with suppress(OSError):
        connection.sendall(struct.pack("<Q", 1000))
        while True:
            connection.sendall(b" ")
            time.sleep(0.1)


def babbling(connection: socket.socket) -> None:
    """Answers what is no answer."""
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)


def closing_at_once(connection: socket.socket) -> None:
    connection.close()


@pytest.mark.parametrize("answer", [mute, trickling])
def test_a_mute_peer(nodes: Nodes, answer: Callable[[socket.socket], None]) -> None:
    """Every call ends within the 5 s of the default, whatever the others do meanwhile."""
    node, target = nodes.start_many(2)
    local, remote = node.registered(MIB, seed=1), target.registered(MIB)
    with listener(answer) as peer:
        arguments = (peer, local.base, local.base, KIB)
        tokens = [node.start(form, *arguments) for form in ("transfer_sync_write", "transfer_sync_read")]
        lists = (peer, [local.base], [local.base], [KIB])
        tokens += [node.start(form, *lists) for form in ("batch_transfer_sync_write", "batch_transfer_sync_read")]
        tokens += [node.start(method, peer) for method in ("send_probe", "get_first_buffer_address")]
        submitted = [node.call(f"batch_transfer_async_{way}", *lists).value for way in ("write", "read")]
        submitted.append(node.call("transfer_submit_write", *arguments).value)
        assert transfer(node, "transfer_sync_write", target.name, local.base, remote.base, MIB).seconds < 1
        outcomes = [node.finish(token, 10) for token in tokens]
        assert outcomes.pop().value == 0, "no address"
        for outcome in outcomes:
            assert outcome.raised is None and isinstance(outcome.value, int) and outcome.value < 0
            assert outcome.seconds < 6
        assert all(submitted), "what is silent is found out in the background"
        assert all(node.ask("poll", id=batch, limit=6)["value"] < 0 for batch in submitted)
    assert transfer(node, "transfer_sync_write", target.name, local.base, remote.base, MIB).ok


@pytest.mark.parametrize("answer", [babbling, closing_at_once])
@pytest.mark.parametrize("form", FORMS)
def test_a_peer_that_is_none(pair: Pair, form: str, answer: Callable[[socket.socket], None]) -> None:
    node = pair.initiator
    local = node.registered(KIB, seed=1)
    with listener(answer) as peer:
        failed(node, transfer(node, form, peer, local.base, local.base, KIB), peer, within=2)


def memory_of_stopped(region: Region) -> bytes:
    """What stands there now, without the help of its process."""
    with Path(f"/proc/{region.node.pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(region.base)
        read = bytearray()
        while len(read) < region.size:
            read += memory.read(region.size - len(read))
    return bytes(read)


@contextmanager
def stopped(node: Node) -> Iterator[None]:
    node.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("form", "size"),
    [
        ("transfer_sync_write", 4 * KIB),
        ("transfer_sync_write", 64 * MIB),
        ("batch_transfer_async_write", 64 * MIB),
        ("transfer_submit_write", 4 * KIB),
    ],
)
def test_nothing_lands_after_the_failure_of_a_write(nodes: Nodes, form: str, size: int) -> None:
    """The target stops before or amid the write and goes on after the failure: what its socket holds is dropped."""
    node = nodes.start(env={"MC_TCP_PROGRESS_TIMEOUT_SEC": "1", "MC_TRANSFER_TIMEOUT": "5"})
    target = nodes.start(env=OVER_TCP)
    peer = target.name
    local, remote = node.registered(size, seed=1), target.registered(size, seed=2)
    assert transfer(node, form, peer, local.base, remote.base, size).ok
    for delay in (None, 0.002):
        local.fill(3 if delay is None else 4)
        token = None
        if delay is not None:
            method = "transfer_sync_write"
            token = node.start(method, peer, local.base, remote.base, size)
            time.sleep(delay)
        with stopped(target):
            if token is None:
                failed(node, transfer(node, form, peer, local.base, remote.base, size), peer, within=4)
            elif node.finish(token, 6).ok:
                continue
            then = memory_of_stopped(remote)
        time.sleep(0.3)
        assert remote.digest() == hashlib.sha256(then).hexdigest()
        assert transfer(node, form, peer, local.base, remote.base, size).ok
        assert remote.digest() == local.digest()


@pytest.mark.parametrize("form", ["transfer_sync_read", "batch_transfer_sync_read"])
def test_nothing_lands_after_the_failure_of_a_read(nodes: Nodes, form: str) -> None:
    node = nodes.start(env={"MC_TCP_PROGRESS_TIMEOUT_SEC": "1"})
    target = nodes.start(env=OVER_TCP)
    size = 32 * MIB
    local, remote = node.registered(size, seed=1), target.registered(size, seed=2)
    assert transfer(node, "transfer_sync_write", target.name, local.base, remote.base, 64).ok
    remote.fill(3)
    lists = (local.base, remote.base, size)
    token = node.start(form, target.name, *([[part] for part in lists] if form.startswith("batch") else lists))
    time.sleep(0.002)
    with stopped(target):
        outcome = node.finish(token, 6)
        local.fill(5)
    time.sleep(0.3)
    if not outcome.ok:
        assert local.digest() == hashlib.sha256(pattern(5, size)).hexdigest()


@pytest.mark.parametrize(
    "form",
    [
        "batch_transfer_sync_write",
        "batch_transfer_sync_read",
        "batch_transfer_async_write",
        "batch_transfer_async_read",
    ],
)
def test_python_threads_run_while_a_stopped_peer_is_waited_for(nodes: Nodes, form: str) -> None:
    node = nodes.start(env={"MC_TCP_PROGRESS_TIMEOUT_SEC": "1"})
    target = nodes.start(env=OVER_TCP)
    size = 64 * MIB
    local, remote = node.registered(size, seed=1), target.registered(size, seed=2)
    peer = target.name
    assert transfer(node, "transfer_sync_write", peer, local.base, remote.base, 64).ok
    with stopped(target):
        lists = [steps(local.base, 0, 4), steps(remote.base, 0, 4), steps(size, 0, 4)]
        if "async" in form:
            batch = node.call(form, peer, *lists).value
            answer = node.ask("count_during", method="get_batch_transfer_status", args=[[batch]])
        else:
            answer = node.ask("count_during", method=form, args=[peer, *lists])
    assert answer["value"] < 0 and answer["seconds"] < 4
    # With the interpreter held it would stand still; how fast it runs is the machine's.
    assert answer["busy_rate"] > 0.1 * answer["idle_rate"], answer
