"""Memory that the processes of one machine share: one of them owns it, all map it.

Every rank calls `SharedSegment.create`, the ranks exchange the blobs that it returns by whatever means they have, and
each calls `complete` with all of them. The blobs are understood by Moonrail only: all ranks must use it.
"""

from __future__ import annotations

import mmap as _mmap
import os
import struct
import weakref
from collections.abc import Sequence

from . import _moonrail

__all__ = ["SharedSegment"]

_FOLDER = "/dev/shm"
_MAGIC = b"SSCM"
_VERSION = 1
_LAYOUT = struct.Struct("<4sIIIIQ48s64s20x")
"""Magic, version, world size, rank, owner, bytes, file of the owner, name; 160 bytes."""


class SharedSegment:
    """One rank's part in a shared segment. Errors are RuntimeError."""

    _name: bytes
    _bytes: int
    _world: int
    _rank: int
    _owner: int
    _file: str
    _map: _mmap.mmap | None
    _pinned: _moonrail.Pinned | None

    def __init__(self) -> None:
        raise TypeError("SharedSegment has no constructor; use SharedSegment.create")

    @staticmethod
    def supported(mmap: bool = True, host_register: bool = False) -> bool:
        """Whether `create` can do it: memory of the host, not registered with a device."""
        return bool(mmap) and not host_register and os.path.isdir(_FOLDER)

    @staticmethod
    def create(
        name: str,
        size: int,
        world_size: int,
        rank_id: int,
        owner_rank: int = 0,
        device_id: int = 0,
        mmap: bool = True,
        host_register: bool = False,
    ) -> tuple[SharedSegment, bytes]:
        """This rank's segment of ``size`` bytes, and the blob to hand to every rank. The owner makes the memory."""
        if not SharedSegment.supported(mmap, host_register):
            raise RuntimeError("only memory of the host can be shared: mmap=True, host_register=False")
        if size <= 0:
            raise RuntimeError(f"size is {size}; it takes 1 byte or more")
        if not (0 <= rank_id < world_size and 0 <= owner_rank < world_size):
            raise RuntimeError(f"rank {rank_id} and owner {owner_rank} must be within 0..{world_size}")
        label = name.encode()
        if len(label) > 64:
            raise RuntimeError(f"the name has {len(label)} bytes; it takes 64 at most")
        self = object.__new__(SharedSegment)
        self._name, self._bytes, self._world = label, size, world_size
        self._rank, self._owner = rank_id, owner_rank
        self._map, self._pinned = None, None
        self._file = ""
        if rank_id == owner_rank:
            self._file = _make_file(size)
            weakref.finalize(self, _remove, self._file, os.getpid())
        blob = _LAYOUT.pack(_MAGIC, _VERSION, world_size, rank_id, owner_rank, size, self._file.encode(), label)
        return self, blob

    def complete(self, blobs: Sequence[bytes]) -> None:
        """Maps the owner's memory. ``blobs`` holds that of every rank, in any order."""
        if self._map is not None:
            raise RuntimeError("the segment is complete already")
        if len(blobs) != self._world:
            raise RuntimeError(f"{self._world} ranks share the segment, and there are {len(blobs)} blobs")
        files: dict[int, str] = {}
        for blob in blobs:
            rank, file = self._check(bytes(blob))
            if rank in files:
                raise RuntimeError(f"rank {rank} is there twice")
            files[rank] = file
        self._map = _map_file(files[self._owner], self._bytes)
        self._pinned = _moonrail.Pinned(self._map)

    def _check(self, blob: bytes) -> tuple[int, str]:
        if len(blob) != _LAYOUT.size or not blob.startswith(_MAGIC):
            raise RuntimeError("a blob is not one of SharedSegment.create")
        _, version, world, rank, owner, size, file, name = _LAYOUT.unpack(blob)
        if version != _VERSION:
            raise RuntimeError(f"a blob has version {version}; this is version {_VERSION}")
        mine = (self._world, self._owner, self._bytes, self._name)
        if (world, owner, size, name.rstrip(b"\0")) != mine or rank >= self._world:
            raise RuntimeError(f"the blob of rank {rank} is of another segment")
        return rank, file.rstrip(b"\0").decode("ascii", "replace")

    def ready(self) -> bool:
        """Whether the memory is mapped here."""
        return self._map is not None

    def base_addr(self) -> int:
        """The address of the memory in this process."""
        if self._pinned is None:
            raise RuntimeError("the segment is not complete: call complete() with the blobs of all ranks")
        return self._pinned.addr

    def device_addr(self) -> int:
        """0: the memory is not registered with a device."""
        return 0

    def size(self) -> int:
        """Bytes."""
        return self._bytes


def _make_file(size: int) -> str:
    file = f"mcss_{os.getpid()}_{os.urandom(8).hex()}"
    path = os.path.join(_FOLDER, file)
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            # Taken now, or the first touch of a page that is not there ends the process.
            os.posix_fallocate(fd, 0, size)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
    except (OSError, OverflowError) as error:
        raise RuntimeError(f"cannot make shared memory of {size} bytes: {error}") from error
    return file


def _map_file(file: str, size: int) -> _mmap.mmap:
    # The name comes from another process: it must stay within the folder.
    if not file.startswith("mcss_") or not file.replace("_", "").isalnum():
        raise RuntimeError("the owner's blob names no shared memory")
    try:
        fd = os.open(os.path.join(_FOLDER, file), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if os.fstat(fd).st_size != size:
                raise RuntimeError("the owner's shared memory has another size")
            return _mmap.mmap(fd, size)
        finally:
            os.close(fd)
    except OSError as error:
        raise RuntimeError(f"cannot map the owner's shared memory: {error}") from error


def _remove(file: str, owner: int) -> None:
    if os.getpid() == owner:
        try:
            os.unlink(os.path.join(_FOLDER, file))
        except OSError:
            pass
