"""An initiator and a target that can reach each other, with memory whose right contents are known at any time.

Owns the starting, naming and ending of both, and the checks of bytes at either side. Must not know which cases there
are nor what result each calls for.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType

from tests.interop.environments import Environment
from tests.interop.node import pattern
from tests.interop.processes import MetadataServer, Node, NodeFailed, Outcome

# Less than a node may take for a call. Old releases open a connection for each request of a batch: 2,000 took 10 s
# when the machine was busy.
GENUINE_TRANSFER_TIMEOUT = "30"
LATE_BYTES_SECONDS = 5.0


class Mode(Enum):
    """How peers find each other."""

    P2P = "p2p"
    HTTP = "http"
    HTTP_GENUINE = "http-genuine"

    @property
    def uses_server(self) -> bool:
        """Whether a metadata server takes part."""
        return self is not Mode.P2P


class Mismatch(Exception):
    """Memory does not hold what it should; the text says where."""


@dataclass
class Memory:
    """A region of one party and what it should hold."""

    party: Party
    name: str
    address: int
    seed: int
    expected: bytearray

    @property
    def length(self) -> int:
        """Bytes between the guards."""
        return len(self.expected)

    def register(self) -> None:
        """Registers the whole region."""
        code = self.party.node.call("register", address=self.address, length=self.length)
        if code != 0:
            raise NodeFailed(f"{self.party.label} cannot register memory: {code}")

    def unregister(self) -> None:
        """Takes the region back."""
        code = self.party.node.call("unregister", address=self.address)
        if code != 0:
            raise NodeFailed(f"{self.party.label} cannot unregister memory: {code}")

    def refill(self, seed: int) -> None:
        """Writes other bytes into the region, from its own side."""
        self.party.node.call("fill", name=self.name, seed=seed)
        self.seed = seed
        self.expected[:] = pattern(seed, self.length)

    def as_expected(self) -> bool:
        """Whether the region's hash is the one it should have; damaged guards are a `Mismatch` at once."""
        seen = self.party.node.call("inspect", name=self.name)
        if not seen["guards"]:
            raise Mismatch(f"bytes outside the {self.name} region of the {self.party.label} were changed")
        return bool(seen["digest"] == hashlib.sha256(self.expected).hexdigest())

    def check(self, patience: float = 0.0) -> None:
        """Raises `Mismatch` unless the region holds what it should, at the latest after `patience` seconds."""
        deadline = time.monotonic() + patience
        while not self.as_expected():
            if time.monotonic() >= deadline:
                raise Mismatch(self._difference())
            time.sleep(0.05)

    def _difference(self) -> str:
        """What is wrong, as far as the numbers of changed bytes tell."""
        where = f"the {self.name} region of the {self.party.label}"
        seen, first = self.party.node.call("changed_from", name=self.name, seed=self.seed)
        due = sum(map(operator.ne, self.expected, pattern(self.seed, self.length)))
        if due == seen:
            return f"{where} holds wrong bytes"
        return f"{seen:,} bytes of {where} were changed, from offset {first:,}, where {due:,} should be"


@dataclass
class Party:
    """One side of a pair: a node whose engine runs."""

    label: str
    node: Node
    name: str
    """What peers call it."""
    port: int
    """Its handshake port."""
    regions: list[Memory] = field(default_factory=list)

    def memory(self, name: str, length: int, seed: int, *, registered: bool = True) -> Memory:
        """Makes a region that holds the bytes of `seed`."""
        address = self.node.call("allocate", name=name, length=length, seed=seed)
        region = Memory(self, name, address, seed, bytearray(pattern(seed, length)))
        if registered:
            region.register()
        self.regions.append(region)
        return region

    def check(self) -> None:
        """Raises `Mismatch` unless every region holds what it should."""
        for region in self.regions:
            region.check()


@dataclass(frozen=True)
class Move:
    """One descriptor: offsets into the initiator's and the target's region."""

    local: int
    remote: int
    length: int


class Pair:
    """What a case works with. Ends all of its processes when it is left."""

    _numbers = itertools.count(1)

    def __init__(
        self, initiator: Environment, target: Environment, mode: Mode, server: MetadataServer | None, logs: Path
    ) -> None:
        self.initiator_environment = initiator
        self.target_environment = target
        self.mode = mode
        self.server = server
        self.logs = logs
        self.nodes: list[Node] = []
        self._forced_v1 = False
        self._names = f"interop-{next(self._numbers)}"

    def __enter__(self) -> Pair:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.kill()

    @property
    def initiator_is_moonrail(self) -> bool:
        """Whether Moonrail starts the transfers."""
        return self.initiator_environment.release.moonrail

    @property
    def data_protocol(self) -> int:
        """The data protocol that the two use: the highest they have in common, unless v1 was forced."""
        releases = (self.initiator_environment.release, self.target_environment.release)
        return 1 if self._forced_v1 else min(release.data_protocol for release in releases)

    @property
    def sends_blind(self) -> bool:
        """Whether the initiator has no way to know that a write was applied: a genuine one that speaks v1."""
        return self.data_protocol == 1 and not self.initiator_is_moonrail

    def initiator(self, variables: dict[str, str] | None = None, *, ipv6: bool = False) -> Party:
        """Starts an initiator."""
        self._forced_v1 = (variables or {}).get("MC_TCP_PROTO") == "1"
        return self._start("initiator", self.initiator_environment, variables or {}, ipv6)

    def target(self, variables: dict[str, str] | None = None, *, ipv6: bool = False) -> Party:
        """Starts a target. With a metadata server every target of one pair has the same name."""
        return self._start("target", self.target_environment, variables or {}, ipv6)

    def metadata_keys(self) -> list[str]:
        """The keys of the target on a metadata server."""
        return [f"mooncake/{space}/{self._names}-target" for space in ("rpc_meta", "ram")]

    def _start(self, label: str, environment: Environment, variables: dict[str, str], ipv6: bool) -> Party:
        host = "::1" if ipv6 else "127.0.0.1"
        settings = {"MC_TCP_BIND_ADDRESS": host, **variables}
        if environment.release.genuine:
            settings["MC_TRANSFER_TIMEOUT"] = GENUINE_TRANSFER_TIMEOUT
            if ipv6:
                settings["MC_USE_IPV6"] = "1"
        node = Node(label, environment, settings, self.logs / f"{label}.log")
        self.nodes.append(node)
        name = host
        if self.mode.uses_server:
            # An initiator may be started anew while the one before still runs; a target is restarted by its name.
            name = f"{self._names}-{label}" + (f"-{len(self.nodes)}" if label == "initiator" else "")
        metadata = self.server.url if self.server and self.mode.uses_server else "P2PHANDSHAKE"
        started = node.call("initialize", host=name, metadata=metadata, protocol="tcp")
        if started["code"] != 0:
            node.kill()  # A half-made engine may hold ports.
            raise NodeFailed(f"{label} cannot initialize: {started['code']}")
        if self.mode is Mode.P2P:
            name = f"[{host}]:{started['port']}" if ipv6 else f"{host}:{started['port']}"
        return Party(label, node, name, started["port"])


def transfer(op: str, source: Memory, sink: Memory, initiator: Party, peer: str, move: Move) -> Outcome:
    """One transfer; when it reports success, the sink is from then on expected to hold the bytes."""
    local, remote = (source, sink) if op == "write" else (sink, source)
    outcome = initiator.node.timed(
        "transfer",
        op=op,
        peer=peer,
        local=local.address + move.local,
        remote=remote.address + move.remote,
        length=move.length,
    )
    if outcome.ok:
        expect(op, source, sink, [move])
    return outcome


def batch(
    op: str, source: Memory, sink: Memory, initiator: Party, peer: str, moves: list[Move], *, wait: str = "batch"
) -> Outcome:
    """One batch, by the node's `batch` or `batch_async`; expectations as with `transfer`."""
    local, remote = (source, sink) if op == "write" else (sink, source)
    outcome = initiator.node.timed(
        wait,
        op=op,
        peer=peer,
        local=[local.address + move.local for move in moves],
        remote=[remote.address + move.remote for move in moves],
        lengths=[move.length for move in moves],
    )
    if outcome.ok:
        expect(op, source, sink, moves)
    return outcome


def expect(op: str, source: Memory, sink: Memory, moves: list[Move]) -> None:
    """Notes in the sink what the moves bring there."""
    for move in moves:
        come, go = (move.local, move.remote) if op == "write" else (move.remote, move.local)
        sink.expected[go : go + move.length] = source.expected[come : come + move.length]
