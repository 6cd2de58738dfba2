"""Fixtures shared by the folders whose tests drive whole processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from .nodes import Node, Nodes, Pool
from .reference import unexplained

__all__ = ["Pair", "nodes", "pair", "pool"]


@dataclass(frozen=True)
class Pair:
    """An initiator and a target, engines running on 127.0.0.1."""

    initiator: Node
    target: Node


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    kept = Pool(tmp_path_factory.mktemp("nodes"))
    yield kept
    kept.close()
    lines = unexplained(kept.directory)
    assert not lines, "failures without a record in the error reference: " + "\n".join(lines)


@pytest.fixture
def nodes(pool: Pool) -> Iterator[Nodes]:
    started = Nodes(pool)
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def pair(nodes: Nodes) -> Pair:
    return Pair(*nodes.start_many(2))
