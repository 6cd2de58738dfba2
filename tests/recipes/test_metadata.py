"""Metadata servers that are absent, unknown, mute or failing, and names that a metadata server keeps."""

from __future__ import annotations

import json
import socket
from contextlib import closing

import pytest

from .http_directory import http_directory
from .nodes import Node, Nodes
from .sockets import free_port
from .support import failed, transfer

LOOPBACK = {"MC_TCP_BIND_ADDRESS": "127.0.0.1"}


@pytest.mark.parametrize(
    ("server", "needle"),
    [
        ("etcd://127.0.0.1:1", "etcd"),
        ("etcd://127.0.0.1:1;127.0.0.1:2", "etcd"),
        ("redis://127.0.0.1:1", "redis"),
        ("p2phandshake", "P2PHANDSHAKE"),
        ("P2pHandshake", "P2PHANDSHAKE"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("ftp://127.0.0.1:1", "ftp"),
        ("://", "://"),
        ("http://", "http"),
        ("", ["empty", "metadata"]),
        ("http://127.0.0.1:1/metadata", "127.0.0.1:1"),
        ("https://127.0.0.1:1/metadata", "127.0.0.1:1"),
        ("http://no-such-host.invalid/metadata", "no-such-host.invalid"),
    ],
)
def test_servers_that_cannot_be_used(nodes: Nodes, server: str, needle: str) -> None:
    node = nodes.spawn(env=LOOPBACK)
    outcome = node.initialize(metadata=server)
    assert outcome.value == -1
    failed(node, outcome, needle, within=5)
    assert not node.listeners()
    assert node.call("initialize", "127.0.0.1", "P2PHANDSHAKE", "tcp", "").ok, "the object is usable afterwards"


@pytest.mark.parametrize(("kind", "needle"), [("etcd", "etcd"), ("redis", "redis"), ("http", "127.0.0.1:1")])
def test_the_kind_may_be_given_apart(nodes: Nodes, kind: str, needle: str) -> None:
    node = nodes.spawn(env=LOOPBACK)
    node.create()
    failed(node, node.call("initialize_ext", "127.0.0.1", "127.0.0.1:1", "tcp", "", kind), needle, within=5)
    assert node.call("initialize_ext", "127.0.0.1", "P2PHANDSHAKE", "tcp", "", kind).ok


def test_a_server_that_never_answers(nodes: Nodes) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        node = nodes.spawn(env=LOOPBACK)
        failed(node, node.initialize(metadata=f"http://{address}/metadata"), address, within=8)


def named(nodes: Nodes, name: str, url: str) -> Node:
    node = nodes.spawn(env=LOOPBACK)
    outcome = node.initialize(name, url)
    assert outcome.ok, f"{outcome}\n{node.log_tail()}"
    return node


def test_a_name_kept_by_a_server_is_only_a_text(nodes: Nodes) -> None:
    with http_directory() as directory:
        target = named(nodes, "prefill-7:12345", directory.url)
        initiator = named(nodes, "decode:12345", directory.url)
        meta = json.loads(directory.keys["mooncake/rpc_meta/prefill-7:12345"])
        assert meta == {"ip_or_host_name": "127.0.0.1", "rpc_port": target.port()}
        assert {address for address, _ in target.listeners()} == {"127.0.0.1"}
        local, remote = initiator.registered(100_000, seed=1), target.registered(100_000)
        published = json.loads(directory.keys["mooncake/ram/prefill-7:12345"])
        assert [(buffer["addr"], buffer["length"]) for buffer in published["buffers"]] == [(remote.base, 100_000)]
        for form in ("transfer_sync_write", "batch_transfer_sync_read", "batch_transfer_async_write"):
            assert transfer(initiator, form, "prefill-7:12345", local.base, remote.base, 100_000).ok
            assert remote.digest() == local.digest()
        assert initiator.call("send_probe", "prefill-7:12345").value == 0
        failed(
            initiator,
            transfer(initiator, "transfer_sync_write", "nobody:1", local.base, remote.base, 8),
            "nobody:1",
        )
        assert target.call("unregister_memory", remote.base).ok
        assert json.loads(directory.keys["mooncake/ram/prefill-7:12345"])["buffers"] == []
        target.destroy()
        initiator.destroy()
        assert directory.keys == {}


def test_a_name_that_a_living_engine_holds(nodes: Nodes) -> None:
    with http_directory() as directory:
        named(nodes, "a:1", directory.url)
        before = dict(directory.keys)
        second = nodes.spawn(env=LOOPBACK)
        failed(second, second.initialize("a:1", directory.url), "a:1", within=5)
        assert directory.keys == before, "the owner's records are not touched"


def test_a_name_left_by_a_crash_is_taken_over(nodes: Nodes) -> None:
    with http_directory() as directory:
        first = named(nodes, "a:1", directory.url)
        old = first.registered(4096)
        first.kill()
        second = named(nodes, "a:1", directory.url)
        initiator = named(nodes, "b:1", directory.url)
        assert json.loads(directory.keys["mooncake/ram/a:1"])["buffers"] == [], "nothing of the old entry is kept"
        local = initiator.registered(4096, seed=1)
        remote = second.registered(4096)
        assert transfer(initiator, "transfer_sync_write", "a:1", local.base, remote.base, 4096).ok
        if not remote.base <= old.base < remote.end:
            failed(initiator, transfer(initiator, "transfer_sync_write", "a:1", local.base, old.base, 64), "a:1")


def test_a_server_that_refuses_a_registration(nodes: Nodes) -> None:
    """-200, and the region is not registered here either."""
    with http_directory() as directory:
        node = named(nodes, "a:1", directory.url)
        region = node.region(4096)
        directory.refuse_put = "ram/"
        outcome = node.call("register_memory", region.base, 4096)
        assert outcome.value == -200
        failed(node, outcome, directory.url.split("/")[2], within=5)
        assert node.call("batch_register_memory", [region.base], [4096]).value == -200
        assert node.call("unregister_memory", region.base).value == -3
        directory.refuse_put = None
        assert node.call("register_memory", region.base, 4096).ok


def test_the_server_goes_away(nodes: Nodes) -> None:
    """Peers that know each other go on; what needs the server fails in bounded time."""
    with http_directory() as directory:
        target, initiator = named(nodes, "t:1", directory.url), named(nodes, "i:1", directory.url)
        local, remote = initiator.registered(4096, seed=1), target.registered(4096)
        assert transfer(initiator, "transfer_sync_write", "t:1", local.base, remote.base, 4096).ok
    assert transfer(initiator, "transfer_sync_write", "t:1", local.base, remote.base, 64).ok
    failed(
        initiator,
        transfer(initiator, "transfer_sync_write", "other:1", local.base, remote.base, 64),
        "other:1",
        within=5,
    )
    assert initiator.call("register_memory", initiator.region(4096).base, 4096).value == -200
    assert initiator.destroy() < 5


def test_a_stale_local_name_and_port_are_free_again(nodes: Nodes) -> None:
    """An engine that was dropped gives its port back at once."""
    address = f"127.0.0.1:{free_port()}"
    node = nodes.spawn()
    for _ in range(5):
        assert node.initialize(address).ok
        assert node.destroy() < 0.5
