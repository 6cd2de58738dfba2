"""The package ``mooncake`` as Moonrail provides it: only ``mooncake.engine``.

It refuses to be imported when files of another distribution lie in its folder, because nobody could tell then
whose engine is in use.
"""

import os as _os
import sys as _sys
import warnings as _warnings

_OWN = {"__init__.py", "engine.py", "py.typed", "__pycache__"}


def _check_folder(folder: str) -> None:
    foreign = sorted(set(_os.listdir(folder)) - _OWN)
    if foreign:
        shown = ", ".join(foreign[:4]) + (", ..." if len(foreign) > 4 else "")
        raise ImportError(
            f"{folder} holds files of another mooncake distribution beside moonrail-mooncake's: {shown}. "
            "Uninstall both and install one of them again: "
            "`pip uninstall moonrail-mooncake mooncake-transfer-engine`, then either "
            "`pip install moonrail-mooncake` (only Moonrail), or Mooncake and `moonrail`, with "
            "MOONRAIL_AS_MOONCAKE=1 in the environment (mooncake.engine is Moonrail's, the rest is Mooncake's)."
        )


def _warn_of_shadowed(folder: str) -> None:
    """Another mooncake further down the path was meant by nobody or by mistake."""
    for entry in _sys.path:
        other = _os.path.join(entry or _os.curdir, "mooncake")
        if _os.path.isfile(_os.path.join(other, "__init__.py")) and not _os.path.samefile(other, folder):
            _warnings.warn(
                f"mooncake is imported from {folder} (moonrail-mooncake) and hides the one in {other}; "
                "uninstall one of them, or set MOONRAIL_AS_MOONCAKE=1 and uninstall moonrail-mooncake",
                RuntimeWarning,
                stacklevel=3,
            )
            return


_check_folder(_os.path.dirname(_os.path.abspath(__file__)))
_warn_of_shadowed(_os.path.dirname(_os.path.abspath(__file__)))
