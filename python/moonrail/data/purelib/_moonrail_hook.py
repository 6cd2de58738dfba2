"""Makes ``mooncake.engine`` Moonrail's, and nothing else of an installed Mooncake.

Loaded by ``moonrail_hook.pth`` at the start of every Python process of this installation in which MOONRAIL_AS_MOONCAKE is
set, and by ``python -m moonrail.run``. It imports nothing of Moonrail until ``mooncake.engine`` is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Engine:
    """Finds and loads the one module ``mooncake.engine``."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "mooncake.engine":
            return None
        return ModuleSpec(name, _Engine, origin="moonrail.mooncake")  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        from moonrail import mooncake

        module.__doc__ = mooncake.__doc__
        module.__file__ = mooncake.__file__
        vars(module).update({name: getattr(mooncake, name) for name in mooncake.__all__}, __all__=mooncake.__all__)


class _Package:
    """An empty package ``mooncake`` for where none is installed. Asked last."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "mooncake":
            return None
        return ModuleSpec(name, _Package, origin="moonrail", is_package=True)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        module.__doc__ = "The package mooncake with Moonrail's engine (MOONRAIL_AS_MOONCAKE); no Mooncake is installed."


def install() -> None:
    """Takes effect for imports from now on. The second call does nothing."""
    if _Engine not in sys.meta_path:
        sys.meta_path.insert(0, _Engine)
        sys.meta_path.append(_Package)
