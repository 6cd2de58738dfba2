"""The typed API: peers, and transfers to and from their memory.

Times are in seconds, lengths and addresses in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, SupportsIndex

from . import _moonrail
from .errors import InvalidArgumentError, RemoteRangeError
from .memory import Held, RemoteBuffer, RemoteRange, hold

__all__ = ["Notify", "Peer", "Probe", "Transfer"]

Remote = RemoteRange | tuple[int, int]
"""A peer's memory: a range of one of its buffers, or (address, length)."""

READ = "read"
WRITE = "write"


class Notify(NamedTuple):
    """A short message that a peer left."""

    name: str
    message: str


class Probe(NamedTuple):
    """A peer's answer: it is alive."""

    round_trip: float
    """Seconds from connecting to the answer."""
    legacy: bool
    """The peer is too old to know probes; it answered a metadata request."""


class Peer:
    """Another engine, Moonrail's or Mooncake's, and what it offered when last asked.

    Made by `Engine.connect`. The methods that move bytes return when every byte is applied. They raise

    - `RemoteRangeError`, `LocalRangeError`: a range that is not registered; ``index`` says which,
    - `PeerUnreachableError`, `PeerGoneError`, `PeerTimeoutError`, `PeerProtocolError`: the peer,
    - `DeadlineError`: ``timeout`` seconds passed (default: the engine's ``call_timeout``),
    - `InvalidArgumentError`: lengths that differ,

    and after that no byte of the call moves any more. ``local`` is a `Buffer`, a `Registration`, a part of one, any object
    inside registered memory that `Engine.register` takes, or ``(address, length)``; ``remote`` is a part of one of the
    peer's buffers, or ``(address, length)``.
    """

    def __init__(self, core: _moonrail.Core, name: str) -> None:
        self._core = core
        self._name = name
        self.refresh()

    def refresh(self) -> None:
        """Asks the peer anew what it offers."""
        self._report = self._core.peer(self._name)
        names = {(addr, nbytes): name for name, addr, nbytes in self._report["names"]}
        self._buffers = tuple(
            RemoteBuffer(self._name, addr, nbytes, names.get((addr, nbytes)))
            for addr, nbytes in self._report["buffers"]
        )

    @property
    def name(self) -> str:
        """The name it was connected under."""
        return self._name

    @property
    def release(self) -> str:
        """What it runs, as text: ``Moonrail 0.1.0``, ``Mooncake 0.3.13``."""
        return str(self._report["release"])

    @property
    def epoch(self) -> int | None:
        """The number of its run, if it is a Moonrail."""
        epoch: int | None = self._report["epoch"]
        return epoch

    @property
    def path(self) -> str:
        """What carried the bytes when it was last asked: ``shm`` on this host, else ``tcp``."""
        return str(self._report["path"])

    @property
    def mapped_bytes(self) -> int:
        """Bytes of its memory that were mapped here when it was last asked: buffers that its engine allocated, on this host."""
        return int(self._report["mapped_bytes"])

    @property
    def serves(self) -> tuple[str, ...]:
        """The protocols and paths that it serves, by the names that `moonrail.require` takes."""
        return tuple(self._report["serves"])

    @property
    def lacks(self) -> tuple[str, ...]:
        """What it lacks that a newer engine has, one sentence each. Told from its descriptor's shape, not from its version."""
        return tuple(self._report["lacks"])

    @property
    def buffers(self) -> tuple[RemoteBuffer, ...]:
        """Its buffers, in the order it registered them, as of `Engine.connect` or the last `refresh`."""
        return self._buffers

    def buffer(self, name: str) -> RemoteBuffer:
        """Its buffer called ``name``; the peer is asked anew when it is not known.

        Raises:
            RemoteRangeError: it has none of that name.
        """
        found = self._find(name)
        if found is None:
            self.refresh()
            found = self._find(name)
        if found is None:
            names = sorted(buffer.name for buffer in self._buffers if buffer.name is not None)
            message = f"{self._name} has no buffer called {name!r}; its names are: {', '.join(names) or 'none'}"
            raise RemoteRangeError(
                message, code="REMOTE_NOT_REGISTERED", stage="resolve", retry="safe", peer=self._name
            )
        return found

    def _find(self, name: str) -> RemoteBuffer | None:
        return next((buffer for buffer in self._buffers if buffer.name == name), None)

    def write(
        self,
        local: Any,
        remote: Remote,
        *,
        notify: Notify | tuple[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Writes local memory to the peer. ``notify`` is delivered once it is applied."""
        self.write_batch([(local, remote)], notify=notify, timeout=timeout)

    def read(
        self,
        local: Any,
        remote: Remote,
        *,
        notify: Notify | tuple[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Reads the peer's memory into local memory. ``notify`` is delivered once it is here."""
        self.read_batch([(local, remote)], notify=notify, timeout=timeout)

    def write_batch(
        self,
        pairs: Iterable[tuple[Any, Remote]],
        *,
        notify: Notify | tuple[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Writes any number of ranges, ``(local, remote)`` each, in one call."""
        lists = self._lists(pairs, WRITE)
        self._core.transfer(self._name, True, *lists.numbers, notify, timeout)

    def read_batch(
        self,
        pairs: Iterable[tuple[Any, Remote]],
        *,
        notify: Notify | tuple[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Reads any number of ranges, ``(local, remote)`` each, in one call."""
        lists = self._lists(pairs, READ)
        self._core.transfer(self._name, False, *lists.numbers, notify, timeout)

    def transfer(
        self,
        opcode: str,
        local_addrs: Sequence[SupportsIndex] | Any,
        remote_addrs: Sequence[SupportsIndex] | Any,
        lengths: Sequence[SupportsIndex] | Any,
        *,
        notify: Notify | tuple[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Moves ranges given as three equally long lists or integer arrays of addresses and lengths.

        Args:
            opcode: ``"read"`` or ``"write"``.
        """
        self._core.transfer(self._name, _is_write(opcode), local_addrs, remote_addrs, lengths, notify, timeout)

    def submit(
        self,
        opcode: str,
        pairs: Iterable[tuple[Any, Remote]],
        *,
        notify: Notify | tuple[str, str] | None = None,
        timeout: float | None = None,
    ) -> Transfer:
        """Starts a batch of ``(local, remote)`` in the background."""
        lists = self._lists(pairs, opcode)
        batch = self._core.submit(self._name, _is_write(opcode), *lists.numbers, notify, timeout)
        return Transfer(batch, lists)

    async def write_async(
        self,
        local: Any,
        remote: Remote,
        *,
        notify: Notify | tuple[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """`write` for asyncio. Cancelling the task cancels the transfer and waits until it has stopped."""
        await self.write_batch_async([(local, remote)], notify=notify, timeout=timeout)

    async def read_async(
        self,
        local: Any,
        remote: Remote,
        *,
        notify: Notify | tuple[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """`read` for asyncio. Cancelling the task cancels the transfer and waits until it has stopped."""
        await self.read_batch_async([(local, remote)], notify=notify, timeout=timeout)

    async def write_batch_async(
        self,
        pairs: Iterable[tuple[Any, Remote]],
        *,
        notify: Notify | tuple[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """`write_batch` for asyncio. Cancelling the task cancels the transfer and waits until it has stopped."""
        await self.submit(WRITE, pairs, notify=notify, timeout=timeout)

    async def read_batch_async(
        self,
        pairs: Iterable[tuple[Any, Remote]],
        *,
        notify: Notify | tuple[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """`read_batch` for asyncio. Cancelling the task cancels the transfer and waits until it has stopped."""
        await self.submit(READ, pairs, notify=notify, timeout=timeout)

    def notify(self, name: str, message: str) -> None:
        """Leaves a notification with the peer.

        Raises:
            NotifyRejectedError: its queue is full.
        """
        self._core.notify(self._name, name, message)

    def limit(self, bytes_per_second: int | None = None, *, background: bool = False) -> None:
        """Sets what this engine's transfers with the peer may take from now on, both directions and all calls together.

        With ``background`` they give way to transfers with other peers. Without arguments there is no limit, also not
        the one of the engine (``MOONRAIL_BANDWIDTH``). Calls under way go on as they began.

        Raises:
            InvalidArgumentError: a limit of 0.
        """
        self._core.limit(self._name, bytes_per_second, background)

    def probe(self) -> Probe:
        """Asks whether the peer's process answers."""
        return Probe(*self._core.probe(self._name))

    def _lists(self, pairs: Iterable[tuple[Any, Remote]], opcode: str) -> _Lists:
        lists = _Lists()
        for index, (local, remote) in enumerate(pairs):
            held = hold(local)
            if held.readonly and opcode == READ:
                raise _bad("the local memory is read-only; it cannot be read into", index)
            if isinstance(remote, RemoteRange):
                if remote.peer != self._name:
                    raise _bad(f"the remote range is of {remote.peer}, not of {self._name}", index)
                addr, nbytes = remote.addr, remote.nbytes
            else:
                addr, nbytes = remote
            if nbytes != held.nbytes:
                raise _bad(
                    f"the local side has {held.nbytes} bytes and the remote side {nbytes}", index, "LENGTH_MISMATCH"
                )
            lists.add(local, held, addr)
        return lists

    def __repr__(self) -> str:
        return f"<moonrail.Peer {self._name}, {self.release}, {len(self._buffers)} buffers>"


class _Lists:
    """A batch as three lists, and what keeps its local memory in place."""

    __slots__ = ("kept", "lengths", "local", "remote")

    def __init__(self) -> None:
        self.local: list[int] = []
        self.remote: list[int] = []
        self.lengths: list[int] = []
        self.kept: list[object] = []

    def add(self, source: object, held: Held, remote: int) -> None:
        self.local.append(held.addr)
        self.remote.append(remote)
        self.lengths.append(held.nbytes)
        self.kept.append(source if held.pinned is None else held.pinned)

    @property
    def numbers(self) -> tuple[list[int], list[int], list[int]]:
        return self.local, self.remote, self.lengths


class Transfer:
    """A batch that runs in the background. Await it, wait for it, or cancel it.

    Dropping it does not stop the batch. Its local memory is kept until the batch has ended and this is dropped.
    """

    def __init__(self, batch: _moonrail.Batch, kept: object) -> None:
        self._batch = batch
        self._kept = kept

    def done(self) -> bool:
        """Whether it has ended, well or not. Does not wait."""
        return self._batch.done()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it has ended: True, or False after ``timeout`` seconds. Raises what the transfer raises."""
        return self._batch.wait(timeout)

    def cancel(self) -> None:
        """Asks it to stop. It ends soon, with `CancelledError` unless it was done; wait for that before using the memory."""
        self._batch.cancel()

    def __await__(self) -> Any:
        from ._asyncio import finished

        return finished(self._batch).__await__()


def _is_write(opcode: str) -> bool:
    if opcode not in (READ, WRITE):
        raise _bad(f"opcode is {opcode!r}; it takes 'read' or 'write'", None)
    return opcode == WRITE


def _bad(message: str, index: int | None, code: str = "INVALID_ARGUMENT") -> InvalidArgumentError:
    return InvalidArgumentError(message, code=code, stage="arguments", index=index)
