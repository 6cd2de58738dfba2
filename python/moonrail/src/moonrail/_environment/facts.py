"""What is installed, and what importing it gives."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from typing import Any

from .calls import FRAMEWORKS, framework

IMPORT_SECONDS = 60
ENGINES = ("mooncake-transfer-engine", "mooncake-transfer-engine-non-cuda", "moonrail", "moonrail-mooncake")


def gather(methods: set[str]) -> dict[str, Any]:
    """What there is."""
    found = distributions()
    return {
        "python": {"executable": sys.executable, "version": sys.version.split()[0], "prefix": sys.prefix},
        "distributions": found,
        "packages": packages(found),
        "engine": engine(found),
        "frameworks": [users for name in FRAMEWORKS for users in framework(name, methods)],
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(("MC_", "MOONRAIL_", "MOONCAKE_")) and not secret(name)
        },
    }


def secret(name: str) -> bool:
    return any(word in name for word in ("KEY", "PASSWORD", "SECRET", "TOKEN"))


def distributions() -> list[dict[str, Any]]:
    """The installed distributions that bring an engine, the effective one of each name first."""
    found = []
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name not in ENGINES and not name.startswith("mooncake-transfer-engine"):
            continue
        files = [str(distribution.locate_file(file)) for file in distribution.files or []]
        found.append(
            {
                "name": name,
                "version": distribution.version,
                "location": str(distribution.locate_file("")),
                "files": [path for path in files if f"{os.sep}mooncake{os.sep}" in path],
                "missing": [path for path in files if not path.endswith(".pyc") and not os.path.exists(path)],
                "has_record": distribution.files is not None,
            }
        )
    return found


def packages(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every folder `mooncake` on the path, in the order in which they win."""
    result = []
    seen: set[str] = set()
    owned = {os.path.realpath(path) for distribution in found for path in distribution["files"]}
    for entry in sys.path:
        folder = os.path.realpath(os.path.join(entry or os.getcwd(), "mooncake"))
        if folder in seen or not os.path.isdir(folder):
            continue
        seen.add(folder)
        names = sorted(name for name in os.listdir(folder) if name != "__pycache__")
        owners = [
            one["name"] for one in found if any(os.path.realpath(p).startswith(folder + os.sep) for p in one["files"])
        ]
        result.append(
            {
                "folder": folder,
                "on_path": entry,
                "is_package": "__init__.py" in names,
                "engine": next(
                    (n for n in names if n == "engine.py" or (n.startswith("engine.") and n.endswith(".so"))), None
                ),
                "owners": sorted(set(owners)),
                "strangers": [n for n in names if owners and not covers(owned, os.path.join(folder, n))],
            }
        )
    return result


def covers(owned: set[str], path: str) -> bool:
    return path in owned or any(one.startswith(path + os.sep) for one in owned)


CHILD = """
import json
import mooncake.engine as module
kind = module.TransferEngine
print("\\n@" + json.dumps({
    "file": getattr(module, "__file__", None),
    "moonrail": kind.__module__.split(".")[0] == "moonrail",
    "methods": sorted(name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))),
    "names": sorted(name for name in dir(module) if not name.startswith("_")),
}))
"""


def engine(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What `import mooncake.engine` gives, found out in a process of its own: it may crash."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=IMPORT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"importing it was not done after {IMPORT_SECONDS} s"}
    line = next((line[1:] for line in done.stdout.splitlines() if line.startswith("@")), None)
    if done.returncode == 0 and line is not None:
        result: dict[str, Any] = json.loads(line)
        path = os.path.realpath(result["file"] or "")
        owner = next((one for one in found if path in {os.path.realpath(file) for file in one["files"]}), None)
        if owner is None and result["moonrail"]:
            owner = next((one for one in found if one["name"] == "moonrail"), None)
        result["distribution"] = owner["name"] if owner else None
        result["version"] = owner["version"] if owner else None
        return result
    if done.returncode < 0:
        return {"error": f"importing it ends the process with signal {-done.returncode}"}
    last = [line for line in done.stderr.strip().splitlines() if line.strip()]
    return {"error": last[-1] if last else f"the import exits with {done.returncode}"}
