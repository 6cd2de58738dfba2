"""Fixtures of this folder."""

from ..recipes.fixtures import nodes, pair, pool

__all__ = ["nodes", "pair", "pool"]
