"""``python -m moonrail`` is the command ``moonrail``."""

import sys

from ._cli import main

sys.exit(main())
