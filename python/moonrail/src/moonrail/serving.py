"""The class that serving frameworks write round an engine, over Moonrail or over Mooncake of any release.

Names and results are those of SGLang's ``MooncakeTransferEngine``. What the engine lacks is found out when the adapter is made,
and done without: a batch goes through call by call, a probe through the handshake. Every failure is logged once, with its
cause, on the logger ``moonrail.serving``, and raised or returned as the caller chose.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Literal

from . import _capabilities, _diagnosis, _moonrail
from ._diagnosis import Cause
from .errors import CapabilityError, TransferError

__all__ = ["ServingError", "TransferEngine"]

logger = logging.getLogger(__name__)

NEEDED = ("initialize", "get_rpc_port", "register_memory", "unregister_memory", "transfer_sync_write")
"""Methods without which there is nothing to build on."""

BATCHED = ("batch_register_memory", "batch_unregister_memory", "batch_transfer_sync_write")
"""Methods that are done without where the engine lacks them."""

MAX_BATCH = 1024
"""Descriptors that Mooncake from 0.3.13 on takes in one call with certainty; above about 2,050 it rejects."""

LOOK_SECONDS = 2.0
PROBE_SECONDS = 5.0

Failures = Literal["sglang", "raise", "return"]


class ServingError(TransferError, RuntimeError):
    """A call of the adapter failed. ``result`` is the number that it returns where failures are returned."""

    result: int = -1


class TransferEngine:
    """An engine as serving frameworks use it.

    Args:
        hostname: the address that peers reach this process under; with a metadata server the segment's name.
        gpu_id: picks the devices in a mapping given as ``ib_device``.
        ib_device: device names with commas between them; a JSON mapping from GPU id to such, or the path of a ``.json`` file.
        engine: the engine object to use, not initialised yet. Left out: `mooncake.engine`'s, whoever provides it; without
            one, Moonrail's.
        protocol: ``tcp``, ``rdma``, ...; left out: ``MOONCAKE_PROTOCOL``, else ``rdma`` as in SGLang.
        metadata: ``P2PHANDSHAKE``, or ``http://host:port/metadata``.
        failures: ``sglang``: register and deregister raise, everything else returns a negative number; ``raise``:
            everything raises; ``return``: everything returns a negative number.
        require: capabilities without which it must not start (`moonrail.require`).

    Raises:
        CapabilityError: the engine lacks what is needed or required.
        ServingError: it cannot be initialised.

    Any thread may call any method.
    """

    def __init__(
        self,
        hostname: str,
        gpu_id: int | None = None,
        ib_device: str | None = None,
        *,
        engine: Any = None,
        protocol: str | None = None,
        metadata: str = "P2PHANDSHAKE",
        failures: Failures = "sglang",
        require: Sequence[str] = (),
    ) -> None:
        if failures not in ("sglang", "raise", "return"):
            raise ValueError(f"failures is {failures!r}; it takes 'sglang', 'raise' or 'return'")
        made_here = engine is None
        self.engine: Any = _default_engine() if made_here else engine
        self.hostname = hostname
        self.gpu_id = gpu_id if gpu_id is not None else 0
        self.ib_device = "" if os.environ.get("MC_FORCE_TCP") == "1" else _diagnosis.devices(ib_device, self.gpu_id)
        self._metadata = metadata
        self._failures = failures
        self._moonrails = _capabilities.is_moonrails(self.engine)
        # Moonrail's engine logs its failures itself, unless it is told that somebody else does.
        self._logs = made_here or not self._moonrails
        if made_here and self._moonrails:
            self.engine._log_failures(False)
        _capabilities.require(*NEEDED, of=self.engine)
        self._initialize(protocol or os.environ.get("MOONCAKE_PROTOCOL") or "rdma")
        self.session_id = self._session()
        self.release, self.provides, self.lacks = self._capabilities()
        _capabilities.require(*require, of=self)
        self._max_batch = MAX_BATCH if not self._moonrails and self._lanes else None
        if self.lacks:
            logger.warning("%s (%s): %s", self.session_id, self.release, "; ".join(self.lacks))

    # What is known of the engine.

    def _initialize(self, protocol: str) -> None:
        code = self.engine.initialize(self.hostname, self._metadata, protocol, self.ib_device or "")
        if code != 0:
            cause = self._cause("initialize", int(code), ())
            raise self._error(
                f"the engine cannot be initialised at {self.hostname!r} (ret={code}): {cause.text}", int(code), cause
            )

    def _session(self) -> str:
        if self._metadata != "P2PHANDSHAKE":
            return self.hostname
        return _diagnosis.session_id(self.hostname, int(self.engine.get_rpc_port()))

    def _capabilities(self) -> tuple[str, frozenset[str], tuple[str, ...]]:
        """The engine's release, what it provides, and what it lacks, from its methods and its own descriptor."""
        methods = frozenset(item.name for item in _capabilities.capabilities() if item.kind == "method")
        provides = {name for name in methods if hasattr(self.engine, name)}
        lacks = []
        absent = [name for name in BATCHED if name not in provides]
        if absent:
            lacks.append(f"no {', '.join(absent)}: batches are done call by call, which takes a connection each")
        if "send_probe" not in provides:
            lacks.append("no send_probe: peers are asked through the handshake")
        if self._moonrails:
            provides |= {item.name for item in _capabilities.capabilities() if item.available}
            self._lanes = False
            return f"Moonrail {_moonrail.__version__}", frozenset(provides), tuple(lacks)
        try:
            own = self._look(self.session_id)
        except Exception as error:
            lacks.append(f"its own descriptor cannot be read: {error}")
            self._lanes = True
            return "Mooncake", frozenset(provides), tuple(lacks)
        self._lanes = "0.3.13" in own["release"]
        if own["data_version"] < 2:
            lacks.append(
                "data protocol v1: a write that the peer refuses or drops is reported as success; upgrade Mooncake to 0.3.12"
            )
        return own["release"], frozenset(provides | set(own["serves"])), tuple(lacks)

    def _look(self, peer: str) -> dict[str, Any]:
        return _moonrail.look(peer, self._metadata, os.environ.get("MC_METADATA_CLUSTER_ID") or None, LOOK_SECONDS)

    # Memory.

    def register(self, ptr: int, length: int) -> int | None:
        """Makes memory reachable for peers. Returns None."""
        code, cause = self._call("register_memory", ptr, length)
        return self._memory("registration", code, cause)

    def deregister(self, ptr: int) -> int | None:
        """Takes memory back. Returns None."""
        code, cause = self._call("unregister_memory", ptr)
        return self._memory("deregistration", code, cause)

    def _memory(self, what: str, code: int, cause: Cause | None) -> int | None:
        if cause is None:
            return None if self._failures != "return" else 0
        return self._failed(
            f"Mooncake memory {what} failed (ret={code})", code, cause, raises=self._failures != "return"
        )

    def batch_register(self, ptrs: Sequence[int], lengths: Sequence[int]) -> int:
        """Registers many regions, all or none. Returns 0 or a negative number."""
        what = f"registering {len(ptrs)} regions"
        if len(ptrs) != len(lengths):
            return self._failed(what, -1, _diagnosis.unequal(addresses=len(ptrs), lengths=len(lengths)))
        if "batch_register_memory" in self.provides:
            code, cause = self._call("batch_register_memory", ptrs, lengths)
            return self._done(what, code, cause)
        for index, (ptr, length) in enumerate(zip(ptrs, lengths, strict=True)):
            code, cause = self._call("register_memory", int(ptr), int(length))
            if cause is not None:
                for earlier in list(ptrs)[:index]:
                    self._call("unregister_memory", int(earlier))
                return self._failed(
                    f"{what}: region {index} (the {index} before it were taken back)", code, cause.at(index)
                )
        return 0

    def batch_deregister(self, ptrs: Sequence[int]) -> int:
        """Takes many regions back; goes on after a failure. Returns 0 or the first failure's number."""
        what = f"deregistering {len(ptrs)} regions"
        if "batch_unregister_memory" in self.provides:
            code, cause = self._call("batch_unregister_memory", ptrs)
            return self._done(what, code, cause)
        first: tuple[int, int, Cause] | None = None
        for index, ptr in enumerate(ptrs):
            code, cause = self._call("unregister_memory", int(ptr))
            if cause is not None and first is None:
                first = index, code, cause
        if first is None:
            return 0
        return self._failed(f"{what}: region {first[0]}", first[1], first[2].at(first[0]))

    # Transfers.

    def transfer_sync(self, session_id: str, buffer: int, peer_buffer_address: int, length: int) -> int:
        """Writes one range to a peer. Returns 0 once it is there, or a negative number."""
        moved = [(buffer, peer_buffer_address, length)]
        code, cause = self._call(
            "transfer_sync_write", session_id, buffer, peer_buffer_address, length, peer=session_id, moved=moved
        )
        return self._done(f"writing {length} bytes to {session_id}", code, cause)

    def batch_transfer_sync(
        self,
        session_id: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
    ) -> int:
        """Writes many ranges to a peer. Returns 0 once all are there, or a negative number."""
        count = len(buffers)
        what = f"writing {count} ranges to {session_id}"
        if not count == len(peer_buffer_addresses) == len(lengths):
            told = _diagnosis.unequal(buffers=count, addresses=len(peer_buffer_addresses), lengths=len(lengths))
            return self._failed(what, -1, told)
        if "batch_transfer_sync_write" not in self.provides:
            return self._one_by_one(what, session_id, zip(buffers, peer_buffer_addresses, lengths, strict=True))
        step = self._max_batch or count or 1
        for start in range(0, count or 1, step):
            part = slice(start, start + step)
            lists = (
                (buffers, peer_buffer_addresses, lengths)
                if step >= count
                else (buffers[part], peer_buffer_addresses[part], lengths[part])
            )
            code, cause = self._call(
                "batch_transfer_sync_write", session_id, *lists, peer=session_id, moved=zip(*lists, strict=True)
            )
            if cause is not None:
                before = f" (the {start} before were moved)" if start else ""
                return self._failed(what + before, code, cause.shifted(start))
        return 0

    def _one_by_one(self, what: str, session_id: str, ranges: Iterable[tuple[int, int, int]]) -> int:
        for index, (buffer, address, length) in enumerate(ranges):
            if length == 0:
                continue
            moved = [(buffer, address, length)]
            code, cause = self._call(
                "transfer_sync_write", session_id, int(buffer), int(address), int(length), peer=session_id, moved=moved
            )
            if cause is not None:
                return self._failed(
                    f"{what}, one by one: range {index} (the {index} before it were moved)", code, cause.at(index)
                )
        return 0

    # Peers.

    def get_session_id(self) -> str:
        """What peers call this engine."""
        return self.session_id

    def send_probe(self, peer_session_id: str) -> int:
        """Asks whether a peer is alive. Returns 0, -101 (its name), -102 (not reached) or -200 (unknown).

        A dead peer is an answer, not a failure: it is neither logged nor raised.
        """
        if "send_probe" in self.provides:
            code = int(self.engine.send_probe(peer_session_id))
            if code == 0 or self._moonrails:
                return code
            # Mooncake's engine calls peers dead that are too old for its probe.
        return _diagnosis.probe(peer_session_id, self._metadata, PROBE_SECONDS)

    def get_engine(self) -> Any:
        """The engine's opaque handle, for libraries that share it.

        Raises:
            CapabilityError: the engine has none to give.
        """
        if "get_engine" not in self.provides:
            _capabilities.require("get_engine", of=self.engine)
        return self.engine.get_engine()

    def get_ib_device(self) -> str | None:
        """The devices given to the engine."""
        return self.ib_device

    # How calls end.

    def _call(
        self, method: str, *arguments: Any, peer: str | None = None, moved: Iterable[tuple[int, int, int]] = ()
    ) -> tuple[int, Cause | None]:
        """Calls the engine: its number, and the cause where that tells of a failure."""
        call: Callable[..., Any] = getattr(self.engine, method)
        try:
            code = int(call(*arguments))
        except Exception as error:
            text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no text'}"
            return -1, Cause("INVALID_ARGUMENT", text, stage="arguments", peer=peer)
        if code == 0:
            return 0, None
        return code if code < 0 else -1, self._cause(method, code, moved, peer)

    def _cause(self, method: str, code: int, moved: Iterable[tuple[int, int, int]], peer: str | None = None) -> Cause:
        if self._moonrails:
            told = self.engine.last_error()
            return Cause(
                told.code or "SYSTEM",
                str(told),
                told.stage or "transfer",
                told.retry or "unsafe",
                told.peer,
                told.index,
            )
        if peer is None:
            return _diagnosis.of_number(method, code)
        return _diagnosis.of_transfer(self._look, peer, moved)

    def _done(self, what: str, code: int, cause: Cause | None) -> int:
        return 0 if cause is None else self._failed(what, code, cause)

    def _failed(self, what: str, code: int, cause: Cause, *, raises: bool = False) -> int:
        """The one place where a failure is logged, and raised or returned."""
        text = f"{what}: {cause.text}"
        if self._logs:
            logger.error("%s (%s): %s failed with %d: %s", self.session_id, self.release, what, code, cause.told)
        if raises or self._failures == "raise":
            raise self._error(text, code, cause)
        return code

    @staticmethod
    def _error(text: str, code: int, cause: Cause) -> ServingError:
        error = ServingError(
            text, code=cause.code, stage=cause.stage, retry=cause.retry, peer=cause.peer, index=cause.index
        )
        error.result = code
        return error


def _default_engine() -> Any:
    """`mooncake.engine`'s, else Moonrail's. An engine that is there and cannot be imported is an error."""
    try:
        module = import_module("mooncake.engine")
    except ModuleNotFoundError as error:
        if error.name not in ("mooncake", "mooncake.engine"):
            raise
        module = import_module("moonrail.mooncake")
    except ImportError as error:
        message = (
            f"mooncake.engine cannot be imported: {error}; `moonrail doctor` says what is wrong with the installation"
        )
        raise CapabilityError(message, code="MISSING_CAPABILITY", stage="initialize") from error
    return module.TransferEngine()
