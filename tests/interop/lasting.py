"""A target that is killed and comes back under the name it had.

With a metadata server a name is a name. In P2P mode it is a host and port: Moonrail is told which ports to use; a
genuine engine cannot have the same handshake port again for a minute (it binds without SO_REUSEADDR, and its end of
each handshake stays in TIME_WAIT), so a relay stands in front of it, as a service address does in a cluster.
"""

from __future__ import annotations

from types import TracebackType

from tests.interop.pair import Mode, Pair, Party
from tests.interop.processes import NodeFailed, Relay, free_ports

# Engines choose at random between the two ports they are left.
ATTEMPTS = 14


class PortsHeld(Exception):
    """The system does not yet give the old ports to the next engine."""


class LastingTarget:
    """Starts targets, one after another, under one name."""

    def __init__(self, pair: Pair, *, same_ports: bool) -> None:
        self._pair = pair
        self._same_ports = same_ports
        genuine = pair.target_environment.release.genuine
        self._relay = Relay() if pair.mode is Mode.P2P and genuine else None
        self._first = free_ports(4)
        self._given: list[int] = []
        self._party: Party | None = None

    def __enter__(self) -> LastingTarget:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._relay:
            self._relay.close()

    def start(self) -> Party:
        """The first target."""
        if self._pair.mode is Mode.P2P:
            # Of four free ports the middle two, so that each has a neighbour to spare.
            self._given = [self._first + 1, self._first + 2]
        return self._became(self._pair.target(ports(self._given)))

    def restart(self) -> Party:
        """Another one in place of the first, which is dead."""
        before = self._party
        assert before is not None
        if self._pair.mode.uses_server:
            return self._became(self._pair.target())
        if self._relay is None:
            # The handshake port must be the old one; the data port the old one, or its other neighbour.
            given = self._given if self._same_ports else self._with_neighbour(before.port)
            return self._became(self._attempt(given, handshake=before.port))
        if not self._same_ports:
            return self._became(self._pair.target())
        data = next(port for port in self._given if port != before.port)
        given = self._with_neighbour(data)
        return self._became(self._attempt(given, handshake=next(port for port in given if port != data)))

    def _attempt(self, given: list[int], handshake: int) -> Party:
        """Starts targets until one has taken the given ports the right way round."""
        seen = ""
        for _ in range(ATTEMPTS):
            try:
                party = self._pair.target(ports(given))
            except NodeFailed as error:
                seen = str(error)
                continue
            if party.port == handshake:
                return party
            seen = f"handshake on port {party.port}"
            party.node.kill()
        raise PortsHeld(f"no target with its handshake on port {handshake} in {ATTEMPTS} starts: {seen}")

    def _with_neighbour(self, port: int) -> list[int]:
        """The port and the unused one next to it."""
        return [port - 1, port] if port - 1 == self._first else [port, port + 1]

    def _became(self, party: Party) -> Party:
        if self._relay:
            self._relay.destination = party.port
            party.name = f"127.0.0.1:{self._relay.port}"
        self._party = party
        return party


def ports(given: list[int]) -> dict[str, str]:
    """Variables that leave an engine these neighbouring ports to choose from; none if none are given."""
    if not given:
        return {}
    ends = {"MIN": str(given[0]), "MAX": str(given[-1])}
    # Releases up to 0.3.10 know the misspelt names only.
    return {f"MC_{end}_{word}_PORT": port for end, port in ends.items() for word in ("RPC", "PRC")}
