"""Fixtures of this folder."""

from .fixtures import nodes, pair, pool

__all__ = ["nodes", "pair", "pool"]
