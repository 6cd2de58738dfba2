"""Host names, ports and address families: what is asked for is used, or refused with its name."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, closing

import pytest

from .fixtures import Pair
from .nodes import Node, Nodes, Region
from .sockets import free_port, has_ipv6, listening_sockets
from .support import FORMS, failed, notify, opcode, transfer

needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 loopback here")
DEFAULT_HANDSHAKE_PORT = 12_001


def all_forms_work(initiator: Node, peer: str, local: Region, remote: Region) -> None:
    for seed, form in enumerate(FORMS, start=30):
        local.fill(seed)
        remote.fill(seed + 100)
        outcome = transfer(initiator, form, peer, local.base, remote.base, local.size)
        assert outcome.ok, f"{form} to {peer}: {outcome}\n{initiator.log_tail()}"
        assert local.digest() == remote.digest()


@needs_ipv6
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_ipv6_on_both_ends(nodes: Nodes, host: str) -> None:
    initiator, target = nodes.start(host), nodes.start(host)
    local, remote = initiator.registered(300_000), target.registered(300_000)
    peer = f"[::1]:{target.port()}"
    all_forms_work(initiator, peer, local, remote)
    assert initiator.call("send_probe", peer).value == 0
    told = initiator.call("transfer_sync", peer, local.base, remote.base, 64, opcode("Write"), notify("n", "m"))
    assert told.ok
    assert target.call("get_notifies").value == [{"name": "n", "msg": "m"}]
    assert initiator.call("get_first_buffer_address", peer).value == remote.base


@needs_ipv6
@pytest.mark.parametrize("hosts", [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
def test_the_families_of_the_two_ends_need_not_agree(nodes: Nodes, hosts: tuple[str, str]) -> None:
    initiator, target = nodes.start(hosts[0]), nodes.start(hosts[1])
    local, remote = initiator.registered(300_000), target.registered(300_000)
    all_forms_work(initiator, target.name, local, remote)


@needs_ipv6
def test_ipv6_with_a_port(nodes: Nodes) -> None:
    port = free_port("::1")
    target = nodes.spawn()
    target.host = "::1"
    assert target.initialize(f"[::1]:{port}").ok
    assert target.port() == port
    initiator = nodes.start()
    local, remote = initiator.registered(4096, seed=1), target.registered(4096)
    assert transfer(initiator, "transfer_sync_write", f"[::1]:{port}", local.base, remote.base, 4096).ok


def test_localhost_and_its_address_are_one_peer(nodes: Nodes) -> None:
    initiator, target = nodes.start("localhost"), nodes.start("127.0.0.1")
    local, remote = initiator.registered(300_000), target.registered(300_000)
    for peer in (f"127.0.0.1:{target.port()}", f"localhost:{target.port()}"):
        all_forms_work(initiator, peer, local, remote)


def test_a_target_known_by_its_host_name(nodes: Nodes) -> None:
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        pytest.skip("this machine does not resolve its own name")
    target, initiator = nodes.start(name), nodes.start()
    local, remote = initiator.registered(300_000), target.registered(300_000)
    all_forms_work(initiator, f"{name}:{target.port()}", local, remote)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "no such host", "256.256.256.256", "-", "a..b"])
def test_a_local_name_that_does_not_resolve(nodes: Nodes, host: str) -> None:
    node = nodes.spawn()
    outcome = node.initialize(host)
    assert outcome.value == -1
    failed(node, outcome, host, within=8)
    assert not node.listeners()


def test_an_address_of_another_machine(nodes: Nodes) -> None:
    node = nodes.spawn()
    outcome = node.initialize("192.0.2.77")
    assert outcome.value == -1
    failed(node, outcome, "192.0.2.77")


def test_a_port_that_is_free_is_served(nodes: Nodes) -> None:
    initiator = nodes.start()
    local = initiator.registered(4096, seed=1)
    for host in ("127.0.0.1", "localhost"):
        port = free_port()
        target = nodes.start(f"{host}:{port}")
        assert target.port() == port
        assert port in {number for _, number in target.listeners()}
        remote = target.registered(4096)
        assert transfer(initiator, "transfer_sync_write", f"{host}:{port}", local.base, remote.base, 4096).ok
        assert remote.digest() == local.digest()


def test_a_port_that_is_taken_is_refused(nodes: Nodes) -> None:
    node = nodes.spawn()
    with closing(socket.socket()) as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        outcome = node.initialize(f"127.0.0.1:{port}")
        assert outcome.value == -1
        failed(node, outcome, str(port))
        assert not node.listeners(), "nothing is left listening after a refusal"
    assert node.call("initialize", f"127.0.0.1:{port}", "P2PHANDSHAKE", "tcp", "").ok
    assert node.port() == port


def test_a_port_of_another_engine_is_refused(nodes: Nodes) -> None:
    first = nodes.start()
    second = nodes.spawn()
    failed(second, second.initialize(first.name), str(first.port()))
    assert first.call("send_probe", first.name).value == 0


@pytest.mark.parametrize("text", ["70000", "65536", "abc", "-1", "1e3", "12001x"])
def test_a_local_port_that_is_none(nodes: Nodes, text: str) -> None:
    node = nodes.spawn()
    outcome = node.initialize(f"127.0.0.1:{text}")
    assert outcome.value == -1
    failed(node, outcome, text)
    assert not node.listeners()


@pytest.mark.parametrize(
    "text", ["70000", "65536", "77537", "99999999999999999999", "abc", "-1", "0x50", "12001x", "0"]
)
def test_a_peer_port_that_is_none(pair: Pair, text: str) -> None:
    """Named, and nothing is dialled: neither the default port nor the number cut to 16 bits."""
    node = pair.initiator
    local = node.registered(4096)
    peer = f"127.0.0.1:{text}"
    with ExitStack() as stack:
        listeners = []
        for port in {DEFAULT_HANDSHAKE_PORT, *([int(text) % 65_536] if text.isdigit() else [])} - {0}:
            listener = stack.enter_context(closing(socket.socket()))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            listener.listen()
            listener.setblocking(False)
            listeners.append(listener)
        for form in ("transfer_sync_write", "batch_transfer_sync_read"):
            failed(node, transfer(node, form, peer, local.base, local.base, 64), text, within=0.5)
        failed(node, node.call("send_probe", peer), text, within=0.5)
        assert node.call("get_first_buffer_address", peer).value == 0
        time.sleep(0.05)
        for listener in listeners:
            with pytest.raises(BlockingIOError):
                listener.accept()


@pytest.mark.parametrize("peer", ["no-such-host.invalid:17000", "256.1.1.1:17000", "no such host:17000"])
def test_a_peer_name_that_does_not_resolve(pair: Pair, peer: str) -> None:
    node = pair.initiator
    local = node.registered(4096)
    host = peer.rsplit(":", 1)[0]
    failed(
        node,
        transfer(node, "transfer_sync_write", peer, local.base, local.base, 64, limit=30),
        host,
        within=8,
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", pytest.param("::1", marks=needs_ipv6)])
def test_it_listens_only_where_it_was_told(nodes: Nodes, host: str) -> None:
    node = nodes.start(host)
    listeners = node.listeners()
    assert listeners, "an engine listens somewhere"
    assert {address for address, _ in listeners} == {host}
    assert node.port() in {port for _, port in listeners}
    assert len(listeners) <= 2
    assert not set(listening_sockets(nodes.spawn().pid)), "and a process without an engine nowhere"


def test_localhost_stays_on_this_machine(nodes: Nodes) -> None:
    node = nodes.start("localhost")
    assert {address for address, _ in node.listeners()} <= {"127.0.0.1", "::1"}


def test_the_wildcard_is_served_when_asked_for(nodes: Nodes) -> None:
    node = nodes.start("0.0.0.0")
    assert {address for address, _ in node.listeners()} == {"0.0.0.0"}
    initiator = nodes.start()
    local, remote = initiator.registered(300_000), node.registered(300_000)
    all_forms_work(initiator, f"127.0.0.1:{node.port()}", local, remote)


def test_twenty_four_processes_at_the_same_moment(nodes: Nodes) -> None:
    started = nodes.start_many(24, fresh=True)
    ports = [node.port() for node in started]
    assert len(set(ports)) == 24
    sockets = [socket for node in started for socket in node.listeners()]
    assert len(set(sockets)) == len(sockets), "no two of them share a listener"
    first, last = started[0], started[-1]
    local = first.registered(4096, seed=1)
    for node in started[1:]:
        remote = node.registered(4096)
        assert transfer(first, "transfer_sync_write", node.name, local.base, remote.base, 4096).ok
        assert remote.digest() == local.digest()
    assert last.call("send_probe", first.name).value == 0


def test_engines_of_one_process_have_ports_of_their_own(nodes: Nodes) -> None:
    node = nodes.spawn()
    for n in range(8):
        assert node.initialize(engine=f"e{n}").ok
    names = [node.name_of(f"e{n}") for n in range(8)]
    assert len(set(names)) == 8
    source = node.registered(4096, seed=1, engine="e0")
    for n in range(1, 8):
        destination = node.registered(4096, engine=f"e{n}")
        outcome = node.call("transfer_sync_write", names[n], source.base, destination.base, 4096, engine="e0")
        assert outcome.ok and destination.digest() == source.digest()
