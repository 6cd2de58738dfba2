"""``mooncake.engine`` is ``moonrail.mooncake``."""

from typing import TYPE_CHECKING

from moonrail import mooncake as _drop_in
from moonrail.mooncake import __all__ as __all__
from moonrail.mooncake import __dir__ as __dir__

if TYPE_CHECKING:
    from moonrail.mooncake import *  # noqa: F403


def __getattr__(name: str) -> object:
    # Some of its names are loaded when they are asked for, so none is copied here.
    return getattr(_drop_in, name)
