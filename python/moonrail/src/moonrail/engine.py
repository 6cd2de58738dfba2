"""The typed API: the engine and its memory.

Times are in seconds, lengths and addresses in bytes. Every method may be called from any thread; waits release the
interpreter and end on Ctrl-C. In a forked child every call raises `EngineClosedError` (code ``FORKED``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple

from . import _moonrail
from .errors import InvalidArgumentError, MoonrailError
from .memory import Buffer, LocalRange, Registration, hold
from .peer import Notify, Peer, Probe

__all__ = ["Engine", "EngineReport"]


def _paths(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """One path or several, as a list of texts."""
    return [os.fspath(path) for path in ([given] if isinstance(given, str | os.PathLike) else given)]


class EngineReport(NamedTuple):
    """An engine's own state."""

    name: str
    """The name peers use."""
    epoch: int
    """A random number of this run."""
    handshake: str
    """Address of the handshake port."""
    data: str
    """Address of the data port."""
    metrics: str | None
    """Where the figures are told, if they are."""
    paths: list[str]
    """What carries transfers."""
    fallbacks: list[str]
    """Differences between what was asked for and what is done, one sentence each."""
    regions: int
    """Registered regions."""
    registered_bytes: int
    huge_page_bytes: int
    """Registered bytes that the engine had the kernel put into huge pages, since the start."""
    served: int
    """Requests of peers served since the start."""
    refused: int
    """Requests of peers refused since the start."""
    bytes_in: int
    """Bytes peers wrote into this engine's memory."""
    bytes_out: int
    """Bytes peers read from this engine's memory."""


class Engine:
    """A transfer engine of this process. A context manager: it is closed at the end.

    Args:
        name: P2P: the host (optionally ``host:port``) that peers reach this process under; the engine listens there
            only. With a metadata server: the segment's name.
        metadata: ``P2PHANDSHAKE``, or ``http://host:port/metadata``.
        protocol: ``tcp``. ``rdma`` is carried out over TCP with a warning, unless ``strict``.
        strict: an error instead of any fallback.
        listen: IP address to listen on instead of the one that ``name`` says.
        ports: first and last port to choose from where none is given (15000, 17000).
        connect_timeout: connecting to a peer's port (5 s).
        handshake_timeout: a peer's answer to a handshake (5 s).
        progress_timeout: longest time without a byte moved in a transfer (5 s).
        call_timeout: a whole transfer, to which 1 ns a byte is added (none: only progress counts).
        unregister_timeout: how long unregistering waits for transfers that use the memory (5 s).
        lanes_per_peer: connections to one peer at most, 1 to 16 (4).
        paths: ways of moving bytes that may be used and are offered to peers: ``tcp``, or ``tcp,shm`` (both).
        huge_pages: have the kernel put large registered regions into huge pages, in the background (yes).
        cluster_id: several clusters may share one metadata server under ids of their own.
        refuse_v1: refuse peers that cannot be told of a refused write (Mooncake up to 0.3.11).
        key_file: file with the shared key that peers have to prove, and are proven; read again when it changes.
        key: the shared key itself; prefer a file.
        checksum: ask peers for checksums over what travels to and from them over TCP (no).
        tls_cert: file with this engine's certificate chain in PEM; with it both ports speak TLS 1.3, and take nothing else.
        tls_key: file with the certificate's private key.
        tls_ca: file or files with the authorities that peers' certificates must come from.
        tls_pins: file with the SHA-256 of the public keys that peers may have, one a line.
        tls_name: the name to expect in every peer's certificate, instead of its host.
        allow: what is allowed without key and TLS: ``mooncake``, ``same-host``, ``clear``, ``anonymous``.
        metrics: keep figures and tell them over HTTP at ``HOST:PORT`` (port 0: any; a port alone: on 127.0.0.1).

    What is not given comes from the environment (``MC_*``, ``MOONRAIL_*``), else it is the default.

    Raises:
        StartError: the address, port, name or protocol cannot be had.
        InvalidArgumentError: a value out of its range, also in the environment.
    """

    def __init__(
        self,
        name: str,
        metadata: str = "P2PHANDSHAKE",
        *,
        protocol: str | None = None,
        strict: bool | None = None,
        listen: str | None = None,
        ports: tuple[int, int] | None = None,
        connect_timeout: float | None = None,
        handshake_timeout: float | None = None,
        progress_timeout: float | None = None,
        call_timeout: float | None = None,
        unregister_timeout: float | None = None,
        lanes_per_peer: int | None = None,
        paths: str | None = None,
        huge_pages: bool | None = None,
        cluster_id: str | None = None,
        refuse_v1: bool | None = None,
        key_file: str | os.PathLike[str] | None = None,
        key: str | None = None,
        checksum: bool | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        tls_ca: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
        tls_pins: str | os.PathLike[str] | None = None,
        tls_name: str | None = None,
        allow: Iterable[str] | None = None,
        metrics: str | None = None,
    ) -> None:
        options: _moonrail.Options = {
            "protocol": protocol,
            "strict": strict,
            "listen": listen,
            "ports": ports,
            "connect_timeout": connect_timeout,
            "handshake_timeout": handshake_timeout,
            "progress_timeout": progress_timeout,
            "call_timeout": call_timeout,
            "unregister_timeout": unregister_timeout,
            "lanes_per_peer": lanes_per_peer,
            "paths": paths,
            "huge_pages": huge_pages,
            "cluster_id": cluster_id,
            "refuse_v1": refuse_v1,
            "key_file": None if key_file is None else os.fspath(key_file),
            "key": key,
            "checksum": checksum,
            "tls_cert": None if tls_cert is None else os.fspath(tls_cert),
            "tls_key": None if tls_key is None else os.fspath(tls_key),
            "tls_ca": None if tls_ca is None else _paths(tls_ca),
            "tls_pins": None if tls_pins is None else os.fspath(tls_pins),
            "tls_name": tls_name,
            "allow": None if allow is None else ",".join([allow] if isinstance(allow, str) else allow),
            "metrics": metrics,
        }
        self._core = _moonrail.Core(name, metadata, options)
        self._lock = threading.Lock()
        self._registrations: dict[int, Registration] = {}

    @property
    def name(self) -> str:
        """What peers call this engine: ``host:port`` in P2P mode, the segment's name otherwise."""
        return self._core.name

    @property
    def port(self) -> int:
        """The handshake port."""
        return self._core.rpc_port

    @property
    def epoch(self) -> int:
        """A random number of this run; peers tell a restart by it."""
        return self._core.epoch

    @property
    def metrics_address(self) -> str | None:
        """``HOST:PORT`` where the figures are told, if they are: ``/metrics`` and ``/report``."""
        return self.report().metrics

    def register(
        self, source: Any, *, name: str | None = None, readonly: bool = False, guarded: bool = False
    ) -> Registration:
        """Makes memory reachable for peers, and usable as the local side of transfers.

        Args:
            source: a NumPy array, a tensor with ``data_ptr()``, any writable bytes-like object, or
                ``(address, length)``. It is kept alive and in place until unregistered; of an address the caller
                must see to that.
            name: what peers find it under (`Peer.buffer`).
            readonly: peers may read it and not write; needed for memory that is read-only itself.
            guarded: only peers with a token (`token`) get at it.

        Raises:
            RegistrationError: it overlaps a registered region.
            InvalidArgumentError: it is empty, not contiguous, or read-only without ``readonly``.
        """
        held = hold(source)
        if held.readonly and not readonly:
            message = f"the memory of this {type(source).__name__} is read-only; register it with readonly=True"
            raise InvalidArgumentError(message, code="INVALID_ARGUMENT", stage="register")
        self._core.register(held.addr, held.nbytes, name, readonly, guarded)
        registration = Registration(self, source, held, name, readonly)
        with self._lock:
            self._registrations[held.addr] = registration
        return registration

    def allocate(
        self,
        nbytes: int,
        *,
        name: str | None = None,
        huge_pages: bool = False,
        readonly: bool = False,
        guarded: bool = False,
    ) -> Buffer:
        """Allocates zeroed, registered memory, whole pages of it.

        Peers of this host map it: transfers between two such buffers are plain copies, several times as fast as any
        others (docs/same-host.md). It is shared memory, so a forked child shares it too.

        Args:
            name: what peers find it under (`Peer.buffer`).
            huge_pages: of 2 MiB pages, if they are to be had; `Buffer.huge_pages` says which. All of the memory is taken
                at once then, which takes about 3 ms for each MiB.
            readonly: peers may read it and not write.
            guarded: only peers with a token (`token`) get at it.

        Raises:
            ResourceLimitError: there is not so much.
        """
        buffer = Buffer(self._core, nbytes, name, huge_pages, readonly, guarded)
        assert isinstance(buffer, Buffer)
        buffer.name = name
        return buffer

    def token(
        self,
        memory: Registration | Buffer | LocalRange,
        *,
        read: bool = True,
        write: bool = False,
        valid_for: float | None = None,
    ) -> str:
        """Makes a token for a region of this engine that is ``guarded``: a secret for the peer that is to use it (`present`).

        Args:
            memory: the region, or a part of it; the token is for the whole.
            read: it allows to read.
            write: it allows to write.
            valid_for: for how long, in seconds; else as long as the memory is registered.

        Raises:
            InvalidArgumentError: the memory needs no token, or the token would allow nothing.
        """
        return self._core.token(memory.addr, read, write, valid_for)

    def present(self, token: str) -> None:
        """Uses a token that a peer has made, from now on. It says itself which peer it is for.

        Raises:
            InvalidArgumentError: it is no token. (Whether it is a good one only its maker knows.)
        """
        self._core.present(token)

    def connect(self, peer: str) -> Peer:
        """Asks the peer called ``peer`` (``host:port``; with a metadata server its segment name) what it offers.

        Raises:
            PeerUnreachableError, PeerTimeoutError, PeerProtocolError.
        """
        return Peer(self._core, peer)

    def probe(self, peer: str) -> Probe:
        """Asks whether the process of ``peer`` answers.

        Raises:
            PeerUnreachableError, PeerTimeoutError, PeerProtocolError.
        """
        return Probe(*self._core.probe(peer))

    def notifies(self) -> list[Notify]:
        """The notifications that peers left since the last call, in order of arrival. Does not wait."""
        return [Notify(*item) for item in self._core.take_notifies()]

    def report(self) -> EngineReport:
        """The engine's own state."""
        return EngineReport(**self._core.report())

    def close(self) -> None:
        """Unregisters everything, closes the ports and refuses further calls. The second call does nothing.

        Buffers that were allocated stay readable as long as they are referenced.

        Raises:
            EngineClosedError: FORKED, in a forked child.
            RegistrationError: REGION_BUSY when a transfer did not let go of registered memory in time. The engine is
                closed all the same, and that memory is kept alive until the process ends.
        """
        with self._lock:
            registrations = list(self._registrations.values())
        busy: MoonrailError | None = None
        for registration in registrations:
            try:
                self._unregister(registration)
            except MoonrailError as error:
                busy = error
        self._core.shutdown()
        if busy is not None:
            raise busy

    def _unregister(self, registration: Registration) -> None:
        with self._lock:
            if self._registrations.get(registration.addr) is not registration:
                return  # another thread is at it
            del self._registrations[registration.addr]
        try:
            self._core.unregister(registration.addr)
        except BaseException:
            # Whatever it was (REGION_BUSY, Ctrl-C in the wait), a transfer may still be using the memory.
            _STILL_IN_USE.append(registration)
            registration._engine = None
            raise
        registration._release()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<moonrail.Engine {self.name}>"


_STILL_IN_USE: list[Registration] = []
"""Memory that a transfer may still touch although it is unregistered; freeing it would be worse than keeping it."""
