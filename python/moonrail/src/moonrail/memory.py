"""Local and remote memory of the typed API: registrations, allocated buffers, and ranges of both.

Lengths, offsets and addresses are in bytes.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _moonrail
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Buffer", "LocalRange", "Registration", "RemoteBuffer", "RemoteRange"]


class _Range:
    """``nbytes`` bytes at ``addr``."""

    __slots__ = ("addr", "nbytes")

    def __init__(self, addr: int, nbytes: int) -> None:
        self.addr = addr
        self.nbytes = nbytes

    def __len__(self) -> int:
        return self.nbytes

    def _part(self, key: slice) -> tuple[int, int]:
        start, stop = part(key, self.nbytes)
        return self.addr + start, stop - start


class LocalRange(_Range):
    """Part of registered memory of this process. It keeps its owner alive."""

    __slots__ = ("_owner",)

    def __init__(self, addr: int, nbytes: int, owner: object) -> None:
        super().__init__(addr, nbytes)
        self._owner = owner

    def __getitem__(self, key: slice) -> LocalRange:
        """A part, in bytes. IndexError when it does not lie inside (nothing is cut off silently)."""
        return LocalRange(*self._part(key), self._owner)

    def __repr__(self) -> str:
        return f"<moonrail.LocalRange {self.nbytes} bytes at {self.addr:#x}>"


class Registration(_Range):
    """Memory that peers may reach, and that can be the local side of transfers, until it is closed.

    Made by `Engine.register`. It keeps the object whose memory it is alive and in place. A context manager.
    """

    __slots__ = ("_engine", "_pinned", "_source", "name", "readonly")

    def __init__(self, engine: Engine, source: object, held: Held, name: str | None, readonly: bool) -> None:
        super().__init__(held.addr, held.nbytes)
        self.name = name
        self.readonly = readonly
        self._engine: Engine | None = engine
        self._source: object = source
        self._pinned = held.pinned

    @property
    def active(self) -> bool:
        """Whether it is still registered."""
        return self._engine is not None

    def close(self) -> None:
        """Unregisters: once this returns no peer can touch the memory any more. The second call does nothing.

        Raises:
            RegistrationError: REGION_BUSY when a transfer did not let go of the memory within the engine's
                ``unregister_timeout`` (5 s); the object is kept alive then, until the process ends.
        """
        if self._engine is not None:
            self._engine._unregister(self)

    def _release(self) -> None:
        self._engine = None
        self._source = None
        if self._pinned is not None:
            self._pinned.release()
            self._pinned = None

    def __getitem__(self, key: slice) -> LocalRange:
        """A part, in bytes. IndexError when it does not lie inside."""
        return LocalRange(*self._part(key), self)

    def __enter__(self) -> Registration:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "" if self.active else " (closed)"
        return f"<moonrail.Registration {self.name or ''} {self.nbytes} bytes at {self.addr:#x}{state}>"


class Buffer(_moonrail.Memory):
    """Zeroed, registered memory that the engine allocated.

    Made by `Engine.allocate`. It has the buffer protocol: ``memoryview(buffer)``, ``numpy.frombuffer(buffer, dtype)``;
    views keep it alive. Slices are ranges for transfers. A context manager: it is freed at the end.

    ``huge_pages`` is the kind of huge pages that it is made of, "hugetlb" (set aside by the administrator) or
    "transparent", or None; ``why_no_huge_pages`` says why, if they were asked for and there are none.
    """

    __slots__ = ("name",)

    name: str | None

    @property
    def view(self) -> memoryview:
        """A writable view of the bytes. Release it before the buffer is freed."""
        return memoryview(self)

    def close(self) -> None:
        """Unregisters and frees. The second call does nothing. No view can be taken of it any more.

        Raises:
            BufferError: views of it exist; it stays as it is.
            RegistrationError: REGION_BUSY, as in `Registration.close`; the buffer stays allocated.
        """
        self.free()

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, key: slice) -> LocalRange:
        """A part, in bytes. IndexError when it does not lie inside."""
        start, stop = part(key, self.nbytes)
        return LocalRange(self.addr + start, stop - start, self)

    def __enter__(self) -> Buffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " (freed)" if self.freed else ""
        return f"<moonrail.Buffer {self.name or ''} {self.nbytes} bytes at {self.addr:#x}{state}>"


class RemoteRange(_Range):
    """Part of a peer's memory."""

    __slots__ = ("peer",)

    def __init__(self, peer: str, addr: int, nbytes: int) -> None:
        super().__init__(addr, nbytes)
        self.peer = peer

    def __getitem__(self, key: slice) -> RemoteRange:
        """A part, in bytes. IndexError when it does not lie inside (nothing is cut off silently)."""
        return RemoteRange(self.peer, *self._part(key))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemoteRange):
            return NotImplemented
        return (self.peer, self.addr, self.nbytes) == (other.peer, other.addr, other.nbytes)

    def __hash__(self) -> int:
        return hash((self.peer, self.addr, self.nbytes))

    def __repr__(self) -> str:
        return f"<moonrail.{type(self).__name__} {self.nbytes} bytes at {self.addr:#x} of {self.peer}>"


class RemoteBuffer(RemoteRange):
    """A buffer that a peer registered, with its name if it has one."""

    __slots__ = ("name",)

    def __init__(self, peer: str, addr: int, nbytes: int, name: str | None) -> None:
        super().__init__(peer, addr, nbytes)
        self.name = name


class Held:
    """The address of an object's memory, and what keeps it there."""

    __slots__ = ("addr", "nbytes", "pinned", "readonly")

    def __init__(self, addr: int, nbytes: int, readonly: bool, pinned: _moonrail.Pinned | None) -> None:
        self.addr = addr
        self.nbytes = nbytes
        self.readonly = readonly
        self.pinned = pinned


def hold(source: Any) -> Held:
    """Where the memory of ``source`` is.

    Ranges, registrations, buffers; ``(address, length)``; tensors with ``data_ptr()``; bytes-like objects; objects with
    NumPy's array interface. The memory must be contiguous.
    """
    if isinstance(source, (_Range, _moonrail.Memory)):
        return Held(source.addr, source.nbytes, False, None)
    if isinstance(source, tuple):
        if len(source) != 2:
            raise _invalid(f"memory as a tuple is (address, length), not {len(source)} items")
        addr, nbytes = source
        return Held(addr, nbytes, False, None)
    if callable(getattr(source, "data_ptr", None)):
        if not source.is_contiguous():
            raise _invalid("the tensor is not contiguous; transfer its parts or a contiguous copy")
        return Held(source.data_ptr(), source.numel() * source.element_size(), False, None)
    try:
        pinned = _moonrail.Pinned(source)
    except (BufferError, TypeError, ValueError) as error:
        interface = getattr(source, "__array_interface__", None)
        if interface is None:
            raise _invalid(f"{type(source).__name__} has no contiguous memory that can be used: {error}") from None
        return _hold_array(source, interface)
    return Held(pinned.addr, pinned.nbytes, pinned.readonly, pinned)


def _hold_array(source: Any, interface: dict[str, Any]) -> Held:
    """An array whose item type the buffer protocol has no name for."""
    data = interface.get("data")
    if interface.get("strides") is not None or not isinstance(data, tuple):
        raise _invalid("the array is not contiguous; transfer its parts or a contiguous copy")
    return Held(data[0], source.nbytes, bool(data[1]), None)


def part(key: slice, nbytes: int) -> tuple[int, int]:
    """Start and stop of a slice that must lie inside."""
    if not isinstance(key, slice):
        raise TypeError(f"a range is cut with a slice of bytes, not {type(key).__name__}")
    if key.step not in (None, 1):
        raise ValueError("a range has no step")
    start = 0 if key.start is None else key.start.__index__()
    stop = nbytes if key.stop is None else key.stop.__index__()
    start += nbytes if start < 0 else 0
    stop += nbytes if stop < 0 else 0
    if not 0 <= start <= stop <= nbytes:
        raise IndexError(f"[{key.start}:{key.stop}] does not lie inside {nbytes} bytes")
    return start, stop


def _invalid(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, code="INVALID_ARGUMENT", stage="arguments")
