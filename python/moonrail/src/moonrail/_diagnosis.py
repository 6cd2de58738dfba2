"""Why a call of an engine failed that only gave a number: for `moonrail.serving`. Nothing here is on the way of a call that works."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from . import _moonrail
from .errors import MoonrailError

NUMBERS = {
    -3: ("ADDRESS_NOT_REGISTERED", "no region starts at this address"),
    -4: ("REGION_BUSY", "transfers still use the memory: do not free it"),
    -7: ("ADDRESS_OVERLAPPED", "it overlaps a registered region"),
    -101: ("NAME_RESOLUTION", "the name does not resolve"),
    -102: ("PEER_UNREACHABLE", "the peer cannot be reached"),
    -200: ("METADATA", "the metadata server does not take it"),
}
"""What Mooncake's numbers mean."""


@dataclass(frozen=True)
class Cause:
    """Why a call failed, in the words of Moonrail's error codes."""

    code: str
    text: str
    stage: str = "transfer"
    retry: str = "after-fix"
    peer: str | None = None
    index: int | None = None

    @property
    def told(self) -> str:
        """The text with the code, which the engine's own texts have already."""
        hint = f"[moonrail explain {self.code}]"
        return self.text if hint in self.text else f"{self.code}: {self.text} {hint}"

    def at(self, index: int) -> Cause:
        """The same, of one entry of a batch."""
        return replace(self, index=index)

    def shifted(self, start: int) -> Cause:
        """The same, of the part of a batch that begins at ``start``."""
        return self if self.index is None else replace(self, index=self.index + start)


def unequal(**lengths: int) -> Cause:
    """Lists that do not fit together."""
    shown = ", ".join(f"{count} {name}" for name, count in lengths.items())
    return Cause("LENGTH_MISMATCH", f"the lists differ in length: {shown}", stage="arguments")


def of_number(method: str, code: int) -> Cause:
    """The cause that a number of Mooncake's stands for."""
    stage = "initialize" if method == "initialize" else "register"
    if code in NUMBERS:
        name, text = NUMBERS[code]
        return Cause(name, text, stage)
    if stage == "initialize":
        return Cause("SYSTEM", "the engine does not say why; its log is on standard error", stage)
    return Cause("INVALID_ARGUMENT", "the engine takes no such region (is its length 0?)", stage)


def of_transfer(look: Callable[[str], dict[str, Any]], peer: str, moved: Iterable[tuple[int, int, int]]) -> Cause:
    """Asks the peer, since the engine does not say: is it there, and has it registered what was to be written?"""
    try:
        seen = look(peer)
    except MoonrailError as error:
        return Cause(error.code, str(error), error.stage, error.retry, peer)
    if seen["data_failure"]:
        return Cause(
            "PEER_UNREACHABLE",
            f"the peer's data port cannot be reached: {seen['data_failure']}",
            "connect",
            "safe",
            peer,
        )
    index = first_outside(seen["buffers"], moved)
    if index is not None:
        text = (
            f"range {index} does not lie inside one of the {len(seen['buffers'])} buffers that the peer ({seen['release']}) has "
            "registered: after a restart its addresses differ"
        )
        return Cause("REMOTE_NOT_REGISTERED", text, "arguments", "after-fix", peer, index)
    text = (
        f"the peer ({seen['release']}) is there and has registered the memory; the engine does not say what failed (its log is on "
        "standard error). A genuine engine keeps a peer's first descriptor: if the peer was restarted, restart this process"
    )
    return Cause("SYSTEM", text, "transfer", "unsafe", peer)


def first_outside(buffers: Iterable[tuple[int, int]], moved: Iterable[tuple[int, int, int]]) -> int | None:
    """The first range that no buffer holds."""
    from bisect import bisect_right

    ranges = sorted((addr, addr + length) for addr, length in buffers)
    starts = [start for start, _ in ranges]
    for index, (_, address, length) in enumerate(moved):
        slot = bisect_right(starts, int(address)) - 1
        if int(length) and (slot < 0 or int(address) + int(length) > ranges[slot][1]):
            return index
    return None


def probe(peer: str, metadata: str, timeout: float) -> int:
    """0 if the peer answers, else Mooncake's number for why not."""
    try:
        _moonrail.probe(peer, metadata, os.environ.get("MC_METADATA_CLUSTER_ID") or None, timeout)
    except MoonrailError as error:
        return {"NAME_RESOLUTION": -101, "BAD_PEER_NAME": -200, "METADATA": -200}.get(error.code, -102)
    return 0


def session_id(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets; a port that stands in ``host`` is replaced."""
    if host.startswith("["):
        return f"{host.partition(']')[0]}]:{port}"
    if host.count(":") > 1:
        return f"[{host}]:{port}"
    return f"{host.partition(':')[0]}:{port}"


def devices(text: str | None, gpu_id: int) -> str | None:
    """The RDMA devices for a GPU: ``text`` is their names, or a JSON mapping from GPU id to names, or the path of one."""
    if text is None or not text.strip():
        return None
    text = text.strip()
    if text.endswith(".json"):
        with open(text, encoding="utf-8") as file:
            text = file.read().strip()
    elif not text.startswith("{"):
        return text
    mapping = json.loads(text)
    if not isinstance(mapping, dict) or not all(isinstance(names, str) for names in mapping.values()):
        raise ValueError("the device mapping is not an object of GPU ids and device names")
    if str(gpu_id) not in mapping:
        raise ValueError(f"no devices are given for GPU {gpu_id}; there are some for {', '.join(mapping)}")
    return str(mapping[str(gpu_id)]).strip()
