"""Port scanners, browsers, TLS hellos, noise and idlers on every port: dropped, and nobody else notices."""

from __future__ import annotations

import random
import socket
import struct
import time
from contextlib import ExitStack, closing

import pytest

from . import raw_client
from .fixtures import Pair
from .nodes import Node, Region
from .support import transfer

MIB = 1 << 20
PATIENCE_S = 8.0
"""The engine's own deadline for a request is 5 s."""

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + bytes(157)


def frame(body: bytes) -> bytes:
    return struct.pack("<Q", len(body)) + body


PROBES = {
    "HTTP GET": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP POST": b"POST /metadata HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 1000,
    "TLS hello": TLS_HELLO,
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "random": random.Random(1).randbytes(8192),
    "zeros": bytes(8192),
    "ones": b"\xff" * 8192,
    "one byte": b"\x00",
    "half a header": bytes(4),
    "huge frame": struct.pack("<Q", 1 << 62) + b"\x01{}",
    "frame one byte too long": struct.pack("<Q", (1 << 20) + 1) + b"\x01" + b" " * 1000,
    "wrong json": frame(b"\x0112"),
    "no json": frame(b"\x02}{"),
    "wrong json type in a notify": frame(b'\x02{"notify_msg":[{}]}'),
    "wrong json type in a connection": frame(b'\x00{"qp_num":["x"]}'),
    "array for a connection": frame(b"\x00[]"),
    "deep json": frame(b"\x01" + b"[" * 100_000),
    "untyped deep json": frame(b"{" + b'"a":{' * 50_000),
    "unknown handshake type": frame(b"\xf0{}\n"),
    "huge read": raw_client.header(1 << 60, 4096, raw_client.READ | raw_client.V2),
    "huge write": raw_client.header(1 << 60, 4096, raw_client.WRITE | raw_client.V2),
    "wrapping read": raw_client.header(4096, (1 << 64) - 1, raw_client.READ | raw_client.V2),
    "old write to nowhere": raw_client.header(4096, 4096, raw_client.WRITE) + bytes(4096),
    "old read from nowhere": raw_client.header(4096, 4096, raw_client.READ),
}


def all_ports(target: Node) -> list[tuple[str, int]]:
    listeners = sorted(target.listeners())
    assert listeners
    return listeners


def still_healthy(pair: Pair, local: Region, remote: Region, seed: int) -> None:
    local.fill(seed)
    outcome = transfer(pair.initiator, "transfer_sync_write", pair.target.name, local.base, remote.base, local.size)
    assert outcome.ok and outcome.seconds < 1, outcome
    assert remote.digest() == local.digest()
    probe = pair.initiator.call("send_probe", pair.target.name)
    assert probe.value == 0 and probe.seconds < 1


@pytest.mark.parametrize("name", PROBES)
def test_one_probe_on_every_port(pair: Pair, name: str) -> None:
    target = pair.target
    local, remote = pair.initiator.registered(MIB, seed=1), target.registered(MIB)
    still_healthy(pair, local, remote, 2)
    for address in all_ports(target):
        with closing(socket.create_connection(address, 5)) as scanner:
            try:
                scanner.sendall(PROBES[name])
                scanner.shutdown(socket.SHUT_WR)
                scanner.settimeout(PATIENCE_S)
                while scanner.recv(65536):
                    pass
            except TimeoutError:
                pytest.fail(f"{address} did not drop it")
            except OSError:
                pass  # reset is as good as closed
    assert target.alive()
    still_healthy(pair, local, remote, 3)
    assert pair.target.call("get_notifies").value == []


def test_a_flood_of_probes_leaves_nothing_behind(pair: Pair) -> None:
    target = pair.target
    local, remote = pair.initiator.registered(MIB, seed=1), target.registered(MIB)
    still_healthy(pair, local, remote, 2)
    ports = all_ports(target)
    before = target.usage()
    for round_number in range(10):
        for data in PROBES.values():
            for address in ports:
                with closing(socket.create_connection(address, 5)) as scanner:
                    try:
                        scanner.sendall(data)
                    except ConnectionError:
                        pass
        if round_number % 5 == 4:
            still_healthy(pair, local, remote, round_number)
    time.sleep(0.5)
    after = target.usage()
    assert after.rss_kib - before.rss_kib < 8 << 10
    assert after.files <= before.files + 2
    assert after.threads <= before.threads + 1
    assert len(target.log()) < 2 * 10 * len(PROBES) * len(ports)


def test_old_and_new_clients_after_the_scan(pair: Pair) -> None:
    """Both data protocols, several requests on a kept connection, by hand."""
    target = pair.target
    remote = target.registered(MIB)
    for address in all_ports(target):
        for data in PROBES.values():
            with closing(socket.create_connection(address, 5)) as scanner:
                try:
                    scanner.sendall(data)
                except ConnectionError:
                    pass
    for version in (1, 2):
        with closing(raw_client.data_connection(target.port())) as client:
            for n in range(5):
                data = random.Random(n + 10 * version).randbytes(100_000)
                assert raw_client.write(client, remote.at(n * 100_000), data, version) in (0, None)
                assert raw_client.read(client, remote.at(n * 100_000), 100_000, version) == data
                assert remote.read(n * 100_000, 100) == data[:100]


@pytest.mark.parametrize("start", [b"", b"\x00", bytes(8), bytes(23), struct.pack("<Q", 1000) + b"\x01{"])
def test_idlers_delay_nobody(pair: Pair, start: bytes) -> None:
    """Hundreds of connections that say nothing, or stop in the middle of something."""
    target = pair.target
    local, remote = pair.initiator.registered(MIB, seed=1), target.registered(MIB)
    with ExitStack() as stack:
        for address in all_ports(target):
            for _ in range(150):
                idler = stack.enter_context(closing(socket.create_connection(address, 5)))
                if start:
                    idler.sendall(start)
        for seed in range(3):
            still_healthy(pair, local, remote, seed)
        newcomer_reads = raw_client.metadata(target.port())
        assert newcomer_reads["buffers"]
    time.sleep(0.3)
    still_healthy(pair, local, remote, 9)


def test_an_idler_on_the_handshake_port_is_sent_away(pair: Pair) -> None:
    with closing(socket.create_connection(("127.0.0.1", pair.target.port()), 5)) as idler:
        idler.sendall(bytes(3))
        idler.settimeout(PATIENCE_S)
        start = time.monotonic()
        try:
            assert idler.recv(1) == b""
        except ConnectionError:
            pass
        assert time.monotonic() - start < PATIENCE_S


@pytest.mark.parametrize("version", [1, 2])
def test_a_refused_client_is_dropped_and_the_memory_untouched(pair: Pair, version: int) -> None:
    target = pair.target
    region, stranger = target.registered(8192, seed=1), target.region(8192, seed=2)
    before = region.digest(), stranger.digest()
    for address in (stranger.base, region.end - 100, 0):
        with closing(raw_client.data_connection(target.port())) as client:
            client.settimeout(PATIENCE_S)
            try:
                code = raw_client.write(client, address, bytes(4096), version)
                assert code != 0, "a refused write is never answered with success"
                assert client.recv(1) == b""
            except (ConnectionError, EOFError):
                pass
    assert (region.digest(), stranger.digest()) == before
    with closing(raw_client.data_connection(target.port())) as client:
        assert raw_client.read(client, region.base, 8192, version) == region.read(0, 8192)


def test_a_client_that_reads_nothing_costs_nothing(pair: Pair) -> None:
    """Many large reads asked for on one connection and never taken: queued as requests, not as bytes."""
    target = pair.target
    size = 64 * MIB
    remote, small = target.registered(size, seed=1), target.registered(MIB)
    local = pair.initiator.registered(MIB, seed=2)
    before = target.usage()
    with closing(raw_client.data_connection(target.port())) as client:
        client.settimeout(2)
        try:
            client.sendall(raw_client.header(size, remote.base, raw_client.READ | raw_client.V2) * 1_000)
        except (TimeoutError, ConnectionError):
            pass
        time.sleep(0.3)
        assert target.usage().rss_kib - before.rss_kib < 16 << 10
        still_healthy(pair, local, small, 3)
    gone = target.call("unregister_memory", remote.base)
    assert gone.ok and gone.seconds < 5, "a client that reads nothing cannot keep a region either"
