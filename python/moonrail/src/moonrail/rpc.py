"""Messages between processes over TCP, in the framing of coro_rpc: ``RpcInterface``.

A request is a header, a body with one string, and an attachment; large data travels as attachment. Bytes sent by
`RpcInterface.send_data` are understood by Mooncake's RpcInterface and the other way round; tensors between Moonrails.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from . import _moonrail

__all__ = [
    "ReceivedData",
    "ReceivedTensor",
    "RpcInterface",
    "create_rpc_client",
    "create_rpc_server",
]

_MAGIC = 0x15
_REQUEST = struct.Struct("<BBBBIIII")
"""Magic, version, serialisation, message type, sequence, function, body bytes, attachment bytes."""
_RESPONSE = struct.Struct("<BBBBIII")
"""Magic, version, error, message type, sequence, body bytes, attachment bytes."""

_SEND_DATA = int.from_bytes(bytes.fromhex("344c7625"), "little")
_SEND_TENSOR = int.from_bytes(b"MRtn", "little")
_FUNCTION_NOT_REGISTERED = 8
_HANDLER_FAILED = 7

_STRING_HASH = bytes.fromhex("77facf9d")
_STRING_TYPE = bytes.fromhex("800c00")
_VOID_REPLY = bytes.fromhex("ebcf018904fa00")

_INLINE = 1024
"""Data longer than this travels as attachment."""
_LARGEST = 1 << 31
_STEP = 1 << 20


class ReceivedData:
    """Data as a receiver may keep it."""

    def __init__(self, source: str = "", data: bytes = b"") -> None:
        self.source = source
        self.data = data

    def get_bytes(self) -> bytes:
        """The bytes."""
        return self.data


class ReceivedTensor:
    """A received tensor: its bytes, its shape, and the name of its item type (NumPy's ``str``, for example ``<f4``)."""

    def __init__(self, source: str, data: bytes, shape: list[int], dtype: str) -> None:
        self.source = source
        self.data = data
        self.shape = shape
        self.dtype = dtype


class RpcInterface:
    """A client, a server, or both. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[str, list[socket.socket]] = {}
        self._pool_size = 100
        self._timeout = 30.0
        self._address = ""
        self._workers = threading.BoundedSemaphore(8)
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._stopped = threading.Event()
        self._on_data: Callable[[dict[str, Any]], object] | None = None
        self._on_tensor: Callable[[ReceivedTensor], object] | None = None

    def initialize(
        self, listen_address: str = "", thread_count: int = 0, timeout_seconds: int = 30, pool_size: int = 100
    ) -> bool:
        """Prepares a client, and with a ``listen_address`` (``host:port``) a server, to be started then."""
        if not self.initialize_client(pool_size, timeout_seconds):
            return False
        return not listen_address or self.initialize_server(listen_address, thread_count or 8, timeout_seconds)

    def initialize_client(self, pool_size: int = 100, timeout_seconds: int = 30) -> bool:
        """Prepares a client that keeps up to ``pool_size`` idle connections a target."""
        if pool_size < 0 or timeout_seconds <= 0:
            return False
        self._pool_size, self._timeout = pool_size, float(timeout_seconds)
        return True

    def initialize_server(self, listen_address: str, thread_count: int = 8, timeout_seconds: int = 30) -> bool:
        """Prepares a server on ``host:port`` that runs up to ``thread_count`` callbacks at once."""
        if thread_count <= 0 or timeout_seconds <= 0 or _parse(listen_address) is None:
            return False
        self._address, self._timeout = listen_address, float(timeout_seconds)
        self._workers = threading.BoundedSemaphore(thread_count)
        return True

    def start_server_async(self) -> bool:
        """Serves in the background. False when the address cannot be had or the server runs already."""
        address = _parse(self._address)
        with self._lock:
            if address is None or self._listener is not None:
                return False
            try:
                family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
                listener = socket.create_server(address, family=family)
            except OSError as error:
                _complain(f"cannot listen on {self._address}: {error}")
                return False
            self._listener = listener
            self._stopped.clear()
        threading.Thread(target=self._accept, args=(listener,), name="moonrail-rpc", daemon=True).start()
        return True

    def start_server(self) -> bool:
        """Serves until `stop_server` is called from another thread."""
        if not self.start_server_async():
            return False
        while not self._stopped.wait(0.2):  # so that Ctrl-C ends the wait
            pass
        return True

    def stop_server(self) -> None:
        """Stops serving and closes every connection."""
        with self._lock:
            listener, self._listener = self._listener, None
            sockets = list(self._open)
        if listener is not None:
            _shut(listener)
        for connection in sockets:
            _shut(connection)
        self._stopped.set()

    def set_data_receive_callback(self, callback: Callable[[dict[str, Any]], object]) -> None:
        """Calls ``callback({"source": "", "data": bytes})`` for each message, in a thread of the server."""
        self._on_data = callback

    def set_tensor_receive_callback(self, callback: Callable[[ReceivedTensor], object]) -> None:
        """Calls ``callback(ReceivedTensor)`` for each tensor, in a thread of the server."""
        self._on_tensor = callback

    def send_data(self, target: str, data: Any) -> int:
        """Sends bytes-like data to ``host:port``. 0 once the receiver's callback has returned, else -1."""
        with memoryview(data) as view:
            payload = view.tobytes()
        if len(payload) > _INLINE:
            return self._call(target, _SEND_DATA, b"", payload)
        return self._call(target, _SEND_DATA, payload, b"")

    def send_tensor(self, target: str, tensor: Any) -> int:
        """Sends a CPU tensor or array. 0 once the receiver's callback has returned, else -1."""
        array = tensor.numpy() if callable(getattr(tensor, "numpy", None)) else tensor
        about = json.dumps({"shape": [int(n) for n in array.shape], "dtype": array.dtype.str})
        return self._call(target, _SEND_TENSOR, about.encode(), array.tobytes())

    def send_data_async(self, target: str, data: Any, loop: Any) -> Any:
        """`send_data` as a future of ``loop``."""
        return loop.run_in_executor(None, self.send_data, target, data)

    def send_tensor_async(self, target: str, tensor: Any, loop: Any) -> Any:
        """`send_tensor` as a future of ``loop``."""
        return loop.run_in_executor(None, self.send_tensor, target, tensor)

    # The client

    def _call(self, target: str, function: int, text: bytes, attachment: bytes) -> int:
        body = _pack_string(text)
        header = _REQUEST.pack(_MAGIC, 0, 0, 0, 0, function, len(body), len(attachment))
        connection, fresh = self._take(target)
        while connection is not None:
            try:
                connection.sendall(header + body)
                connection.sendall(attachment)
                magic, _, failed, _, _, length, attached = _RESPONSE.unpack(_read(connection, _RESPONSE.size))
                if magic != _MAGIC:
                    raise ValueError("the answer is not coro_rpc")
                _read(connection, _checked(length) + _checked(attached))
            except (OSError, EOFError, ValueError) as error:
                _shut(connection)
                # An idle connection may have been closed by the server before anything was sent on it.
                if not fresh and isinstance(error, (EOFError, ConnectionError)):
                    connection, fresh = self._connect(target), True
                    continue
                _complain(f"sending to {target}: {error}")
                return -1
            self._give_back(target, connection)
            return -1 if failed else 0
        return -1

    def _take(self, target: str) -> tuple[socket.socket | None, bool]:
        with self._lock:
            idle = self._idle.get(target)
            if idle:
                return idle.pop(), False
        return self._connect(target), True

    def _connect(self, target: str) -> socket.socket | None:
        address = _parse(target)
        if address is None:
            _complain(f"{target!r} is not host:port")
            return None
        try:
            connection = socket.create_connection(address, self._timeout)
        except OSError as error:
            _complain(f"cannot connect to {target}: {error}")
            return None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _give_back(self, target: str, connection: socket.socket) -> None:
        with self._lock:
            idle = self._idle.setdefault(target, [])
            if len(idle) < self._pool_size:
                idle.append(connection)
                return
        _shut(connection)

    # The server

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if self._listener is not listener:
                    _shut(connection)
                    return
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while self._serve_one(connection):
                pass
        except (OSError, EOFError, ValueError):
            pass  # that connection only
        finally:
            with self._lock:
                self._open.discard(connection)
            _shut(connection)

    def _serve_one(self, connection: socket.socket) -> bool:
        connection.settimeout(None)
        start = connection.recv(1)
        if not start:
            return False
        if start[0] != _MAGIC:
            raise ValueError("not coro_rpc")
        connection.settimeout(self._timeout)
        header = start + _read(connection, _REQUEST.size - 1)
        _, _, _, _, sequence, function, length, attached = _REQUEST.unpack(header)
        body = _read(connection, _checked(length))
        attachment = _read(connection, _checked(attached))
        with self._workers:
            failed = self._handle(function, body, attachment)
        reply = b"" if failed else _VOID_REPLY
        extra = b"ok" if attachment and not failed else b""
        answer = _RESPONSE.pack(_MAGIC, 0, failed, 0, sequence, len(reply), len(extra))
        connection.sendall(answer + reply + extra)
        return True

    def _handle(self, function: int, body: bytes, attachment: bytes) -> int:
        try:
            if function == _SEND_DATA:
                data = attachment or _unpack_string(body)
                if self._on_data is not None:
                    self._on_data({"source": "", "data": data})
            elif function == _SEND_TENSOR:
                about = json.loads(_unpack_string(body))
                if self._on_tensor is not None:
                    self._on_tensor(ReceivedTensor("", attachment, about["shape"], about["dtype"]))
            else:
                return _FUNCTION_NOT_REGISTERED
        except Exception as error:  # a callback's failure is the sender's to know
            _complain(f"a receive callback failed: {type(error).__name__}: {error}")
            return _HANDLER_FAILED
        return 0


def create_rpc_client(local_rank: int = 0, world_size: int = 1) -> RpcInterface:
    """An `RpcInterface`; the arguments are those of launchers and change nothing."""
    return RpcInterface()


def create_rpc_server(local_rank: int = 0, world_size: int = 1) -> RpcInterface:
    """An `RpcInterface`; the arguments are those of launchers and change nothing."""
    return RpcInterface()


def _pack_string(text: bytes) -> bytes:
    """One string view in struct_pack: type hash, flags with the width of the length, type text, length, bytes."""
    for code, width in enumerate((1, 2, 4, 8)):
        if len(text) < 1 << (8 * width):
            length = len(text).to_bytes(width, "little")
            return _STRING_HASH + bytes([0x04 | code << 3]) + _STRING_TYPE + length + text
    raise ValueError("the text is too long")


def _unpack_string(body: bytes) -> bytes:
    if body[:4] != _STRING_HASH or len(body) < 5:
        raise ValueError("the body is not one string")
    flags, at = body[4], 5
    if flags & 0x04:
        at = body.index(b"\0", at) + 1
    width = 1 << (flags >> 3 & 3)
    size = int.from_bytes(body[at : at + width], "little")
    text = body[at + width : at + width + size]
    if len(text) != size:
        raise ValueError("the string is cut short")
    return text


def _read(connection: socket.socket, size: int) -> bytes:
    """Exactly ``size`` bytes; memory grows with what has come, not with what was announced."""
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(min(size - len(data), _STEP))
        if not chunk:
            raise EOFError("the connection was closed")
        data += chunk
    return bytes(data)


def _checked(size: int) -> int:
    if size > _LARGEST:
        raise ValueError(f"{size} bytes are too many")
    return size


def _parse(address: str) -> tuple[str, int] | None:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        return None
    return host.strip("[]"), int(port)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()


def _complain(message: str) -> None:
    _moonrail.log_warning(f"RpcInterface: {message}")
