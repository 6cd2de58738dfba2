"""RpcInterface: the captured bytes, both ways, and what goes wrong."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from moonrail.mooncake import ReceivedTensor, RpcInterface, create_rpc_client, create_rpc_server
from moonrail.rpc import _pack_string, _unpack_string

from .support import free_port

# `RpcInterface.send_data(address, b"hello world")` of a genuine wheel 0.3.13.post1, and the answer it got.
REQUEST = bytes.fromhex("1500000000000000344c7625140000000000000077facf9d04800c000b68656c6c6f20776f726c64")
RESPONSE = bytes.fromhex("15000000000000000700000000000000ebcf018904fa00")


class Server:
    """A running server and what it received."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.rpc = create_rpc_server()
        self.data: list[dict[str, Any]] = []
        self.tensors: list[ReceivedTensor] = []
        self.rpc.set_data_receive_callback(self.data.append)
        self.rpc.set_tensor_receive_callback(self.tensors.append)
        assert self.rpc.initialize_server(self.address)
        assert self.rpc.start_server_async()

    def socket(self) -> socket.socket:
        host, port = self.address.split(":")
        return socket.create_connection((host, int(port)), 5)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.rpc.stop_server()


@pytest.fixture
def client() -> RpcInterface:
    client = create_rpc_client()
    assert client.initialize_client(timeout_seconds=5)
    return client


def test_a_genuine_request_is_answered_as_genuinely(server: Server) -> None:
    with closing(server.socket()) as connection:
        for _ in range(2):
            connection.sendall(REQUEST)
            assert connection.recv(1000) == RESPONSE
    assert server.data == [{"source": "", "data": b"hello world"}] * 2


def test_our_request_is_the_genuine_one(client: RpcInterface) -> None:
    seen: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(1000))
                connection.sendall(RESPONSE)

        thread = threading.Thread(target=answer)
        thread.start()
        assert client.send_data(f"127.0.0.1:{listener.getsockname()[1]}", b"hello world") == 0
        thread.join()
    assert seen == [REQUEST]


@pytest.mark.parametrize("size", [0, 1, 255, 256, 1024, 1025, 65_536, 5_000_000])
def test_data_of_any_size(server: Server, client: RpcInterface, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    for form in (data, bytearray(data), memoryview(data)):
        assert client.send_data(server.address, form) == 0
    assert [item["data"] for item in server.data] == [data] * 3


@pytest.mark.parametrize("size", [0, 255, 256, 65_535, 65_536])
def test_strings_of_every_width_of_length(size: int) -> None:
    assert _unpack_string(_pack_string(b"x" * size)) == b"x" * size


def test_large_data_is_an_attachment_answered_with_ok(server: Server) -> None:
    data = b"y" * 2000
    header = bytearray(REQUEST[:20])
    body = bytes.fromhex("77facf9d04800c0000")
    header[12:16] = len(body).to_bytes(4, "little")
    header[16:20] = len(data).to_bytes(4, "little")
    with closing(server.socket()) as connection:
        connection.sendall(bytes(header) + body + data)
        answer = connection.recv(1000)
    assert answer[16:] == RESPONSE[16:] + b"ok"
    assert server.data[0]["data"] == data


def test_tensors(server: Server, client: RpcInterface) -> None:
    tensor = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert client.send_tensor(server.address, tensor) == 0
    (received,) = server.tensors
    assert (received.shape, received.dtype) == ([3, 4], "<f4")
    assert np.array_equal(np.frombuffer(received.data, received.dtype).reshape(received.shape), tensor)


def test_futures(server: Server, client: RpcInterface) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        futures = [client.send_data_async(server.address, b"data", loop) for _ in range(10)]
        return [*await asyncio.gather(*futures), await client.send_tensor_async(server.address, np.zeros(3), loop)]

    assert asyncio.run(main()) == [0] * 11
    assert len(server.data) == 10


def test_threads_share_a_client(server: Server, client: RpcInterface) -> None:
    results: list[int] = []

    def work() -> None:
        results.extend(client.send_data(server.address, b"z" * 3000) for _ in range(30))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [0] * 180
    assert len(server.data) == 180


def test_failures_are_minus_one(server: Server, client: RpcInterface) -> None:
    assert client.send_data(f"127.0.0.1:{free_port()}", b"x") == -1
    assert client.send_data("nonsense", b"x") == -1
    server.rpc.set_data_receive_callback(lambda _: 1 / 0)
    assert client.send_data(server.address, b"x") == -1
    server.rpc.set_data_receive_callback(server.data.append)
    assert client.send_data(server.address, b"x") == 0
    with pytest.raises(TypeError):
        client.send_data(server.address, 5)


def test_a_restarted_server_is_found_again(server: Server, client: RpcInterface) -> None:
    assert client.send_data(server.address, b"1") == 0
    server.rpc.stop_server()
    assert client.send_data(server.address, b"2") == -1
    assert server.rpc.start_server_async()
    assert client.send_data(server.address, b"3") == 0
    assert [item["data"] for item in server.data] == [b"1", b"3"]


def test_unknown_functions_and_hostile_bytes(server: Server, client: RpcInterface) -> None:
    with closing(server.socket()) as connection:
        connection.sendall(REQUEST.replace(bytes.fromhex("344c7625"), b"nope"))
        assert connection.recv(1000)[2] != 0, "an error"
        connection.sendall(REQUEST)
        assert connection.recv(1000) == RESPONSE, "the connection goes on"
    for hostile in (b"GET / HTTP/1.1\r\n\r\n", b"\x15" + b"\xff" * 40, REQUEST[:25], b"\x15" * 60):
        with closing(server.socket()) as connection:
            try:
                connection.sendall(hostile)
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(1000)[:1] in (b"", b"\x15")
            except OSError:
                pass  # thrown out before all was said
    assert client.send_data(server.address, b"alive") == 0


def test_serving_in_the_foreground() -> None:
    server = RpcInterface()
    assert server.initialize(f"127.0.0.1:{free_port()}", thread_count=2)
    thread = threading.Thread(target=server.start_server)
    thread.start()
    while server.start_server_async() is False and server._listener is None:
        pass
    server.stop_server()
    thread.join(5)
    assert not thread.is_alive()


def test_what_cannot_be_initialised() -> None:
    assert not RpcInterface().initialize_server("nonsense")
    assert not RpcInterface().initialize_server("127.0.0.1:1", thread_count=0)
    assert not RpcInterface().initialize_client(timeout_seconds=0)
    assert not RpcInterface().start_server_async()
