"""``mooncake.engine`` is ``moonrail.mooncake``."""

from moonrail.mooncake import *  # noqa: F403
from moonrail.mooncake import __all__ as __all__
