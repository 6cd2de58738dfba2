"""What this build, an engine or a peer can do: by name, not by version."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import _moonrail
from .errors import CapabilityError

__all__ = ["Capabilities", "Capability", "capabilities", "require"]

SAME = {"P2PHANDSHAKE": "p2p", "https": "http", "rail": "rail-1"}
"""Names that mean the same as another."""

UPGRADE = (
    "pip install --upgrade mooncake-transfer-engine, or use Moonrail: pip install moonrail moonrail-mooncake, or keep it "
    "and use moonrail.serving.TransferEngine"
)


class Capability(NamedTuple):
    """One thing that can be there or not."""

    kind: str
    """``method`` (of the drop-in), ``protocol``, ``path`` or ``metadata``."""
    name: str
    """What `require` calls it."""
    available: bool
    why_not: str | None
    """What is in the way, where it is not available."""
    fix: str | None
    """What helps then."""


class Capabilities:
    """What this build can do on this machine. Iterating gives each `Capability`."""

    def __init__(self, release: str, items: tuple[Capability, ...]) -> None:
        self.release = release
        self.items = items

    def __iter__(self) -> Iterator[Capability]:
        return iter(self.items)

    def __getitem__(self, name: str) -> Capability:
        wanted = SAME.get(name, name)
        for item in self.items:
            if item.name == wanted:
                return item
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """Whether it is there."""
        wanted = SAME.get(name, name)
        return any(item.name == wanted and item.available for item in self.items)

    def __repr__(self) -> str:
        missing = ", ".join(item.name for item in self.items if not item.available)
        return f"<Capabilities of Moonrail {self.release}{f', without {missing}' if missing else ''}>"


def capabilities() -> Capabilities:
    """What this build can do on this machine: methods of the drop-in, protocols, paths, ways of finding peers."""
    items = []
    for kind, name, missing in _moonrail.capabilities():
        why, fix = missing or (None, None)
        items.append(Capability(kind, name, missing is None, why, fix))
    return Capabilities(_moonrail.__version__, tuple(items))


def require(*names: str, of: Any = None) -> None:
    """Fails unless every one of ``names`` is there: to be called when a program starts, not when it serves.

    Args:
        names: methods such as ``batch_transfer_sync_write``, protocols (``mooncake-v2``, ``mooncake-v1``, ``rail``), paths
            (``tcp``, ``shm``, ``rdma``), ways of finding peers (``p2p``, ``http``).
        of: what is asked: nothing for this build on this machine; a `Peer`; a `moonrail.serving.TransferEngine`; or any
            engine object or class, Moonrail's or Mooncake's.

    Raises:
        CapabilityError: with what is missing, where, and what helps.
    """
    objections = [objection for name in names if (objection := _objection(name, of)) is not None]
    if objections:
        message = f"{_where(of)} lacks {'; '.join(objections)}"
        raise CapabilityError(message, code="MISSING_CAPABILITY", stage="initialize")


def _objection(name: str, of: Any) -> str | None:
    if of is None or (is_moonrails(of) and name not in _methods()):
        return _of_this_build(name)
    if hasattr(of, "serves") or hasattr(of, "provides"):
        provided = of.provides if hasattr(of, "provides") else of.serves
        if SAME.get(name, name) in provided:
            return None
        return f"{name}: {'; '.join(of.lacks) or 'it does not serve it'}; upgrade it"
    if name in _methods():
        return None if hasattr(of, name) else f"{name}: the engine has no such method; {UPGRADE}"
    return _of_genuine(name)


def _of_this_build(name: str) -> str | None:
    try:
        item = capabilities()[name]
    except KeyError:
        return f"{name}: this release knows no such capability; upgrade Moonrail, or correct the name"
    return None if item.available else f"{item.name}: {item.why_not}; {item.fix}"


def _of_genuine(name: str) -> str | None:
    """What the release of an installed Mooncake says of protocols and paths, which no attribute tells."""
    release = genuine_release()
    data_version = 1 if release is not None and release < (0, 3, 12) else 2
    provided = {"tcp", "p2p", "http", "mooncake-v1"} | ({"mooncake-v2"} if release and data_version == 2 else set())
    if SAME.get(name, name) in provided:
        return None
    if name == "mooncake-v2":
        known = "speaks data protocol v1 only" if release else "does not tell its release"
        return f"{name}: the installed Mooncake {known}; {UPGRADE}"
    return f"{name}: it cannot be told of a genuine engine"


def genuine_release() -> tuple[int, ...] | None:
    """The release of the installed Mooncake, as numbers: (0, 3, 4, 2) for 0.3.4.post2. None where none is installed."""
    import importlib.metadata

    from ._environment.judge import parse

    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name.startswith("mooncake-transfer-engine"):
            return parse(distribution.version) or None
    return None


def is_moonrails(engine: Any) -> bool:
    """Whether an engine object or class is Moonrail's drop-in."""
    kind = engine if isinstance(engine, type) else type(engine)
    return issubclass(kind, _moonrail.TransferEngine)


def _methods() -> set[str]:
    return {name for kind, name, _ in _moonrail.capabilities() if kind == "method"}


def _where(of: Any) -> str:
    if of is None or is_moonrails(of):
        return f"Moonrail {_moonrail.__version__} on this machine"
    if hasattr(of, "release"):
        return f"{getattr(of, 'name', 'the engine')} ({of.release})"
    kind = of if isinstance(of, type) else type(of)
    module = sys.modules.get(kind.__module__)
    return f"{kind.__module__}.{kind.__qualname__} ({getattr(module, '__file__', 'unknown file')})"
