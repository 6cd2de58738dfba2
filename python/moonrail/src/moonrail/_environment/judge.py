"""What of it is wrong, and what helps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any


def judge(facts: dict[str, Any], since: dict[str, str]) -> list[dict[str, Any]]:
    """The findings, one dictionary each: check, level, what, and a fix where something is to be done."""
    return [*installation(facts), *choice(facts), *suits(facts, since), *settings(facts)]


def finding(check: str, level: str, what: str, fix: str | None = None, **more: Any) -> dict[str, Any]:
    return {"check": check, "level": level, "what": what, "fix": fix, **more}


def installation(facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is installed twice, in part, or over another."""
    found = facts["distributions"]
    genuine = sorted({one["name"] for one in found if one["name"].startswith("mooncake-transfer-engine")})
    names = {one["name"] for one in found}
    again = "pip uninstall moonrail-mooncake " + " ".join(genuine or ["mooncake-transfer-engine"])
    either = (
        f"`{again}`, then either `pip install moonrail moonrail-mooncake` (only Moonrail), or Mooncake and `moonrail` with "
        "MOONRAIL_AS_MOONCAKE=1 (mooncake.engine is Moonrail's, the rest is Mooncake's)"
    )
    if genuine and "moonrail-mooncake" in names:
        what = f"{' and '.join(genuine)} and moonrail-mooncake are installed together: both own the package mooncake"
        yield finding("python.both-installed", "problem", what, either)
    if len(genuine) > 1:
        what = f"{' and '.join(genuine)} are installed together: each overwrites files of the other"
        yield finding(
            "python.both-installed", "problem", what, f"`pip uninstall {' '.join(genuine)}`, then install one"
        )
    for one in found:
        if one["missing"]:
            shown = ", ".join(one["missing"][:3]) + (", ..." if len(one["missing"]) > 3 else "")
            what = f"{one['name']} {one['version']} is installed in part: {len(one['missing'])} of its files are gone ({shown})"
            yield finding(
                "python.half-removed",
                "problem",
                what,
                f"`pip install --force-reinstall --no-deps {one['name']}=={one['version']}`",
            )
    for one in facts["packages"]:
        if not one["owners"] and not one["is_package"]:
            what = f"{one['folder']} is left over from a package that was removed: it has no __init__.py and no owner"
            yield finding("python.half-removed", "problem", what, f"delete {one['folder']}")
        elif one["strangers"] and "moonrail-mooncake" in one["owners"]:
            what = f"{one['folder']} has files that no installed package owns: {', '.join(one['strangers'][:4])}"
            yield finding("python.half-removed", "problem", what, either)


def choice(facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Which mooncake wins, and whether it can be imported."""
    found, engine = facts["packages"], facts["engine"]
    if len(found) > 1:
        hidden = ", ".join(one["folder"] for one in found[1:])
        what = f"mooncake is imported from {found[0]['folder']} and hides {hidden}"
        yield finding(
            "python.shadowed",
            "warning",
            what,
            "uninstall one, or take its folder off PYTHONPATH (or out of the working folder)",
        )
    if "error" not in engine:
        who = "Moonrail" if engine["moonrail"] else "Mooncake"
        from_ = (
            f"{engine['distribution']} {engine['version']}" if engine["distribution"] else "no installed distribution"
        )
        yield finding("python.engine", "ok", f"mooncake.engine is {who}'s, from {from_} ({engine['file']})")
        release = parse(engine["version"] or "") if not engine["moonrail"] else (9,)
        if (0,) < release < (0, 3, 12):
            what = (
                f"Mooncake {engine['version']} speaks data protocol v1: a write that a peer refuses or drops is reported as success, "
                "and as a target it lets memory be overwritten that is not registered"
            )
            yield finding(
                "python.data-protocol",
                "warning",
                what,
                "upgrade to mooncake-transfer-engine 0.3.12 or later, or use Moonrail",
            )
        return
    users = ", ".join(one["title"] for one in facts["frameworks"])
    if not found and "No module named 'mooncake" in engine["error"]:
        what = f"no mooncake.engine is installed for {facts['python']['executable']}" + (
            f", and {users} cannot start without" if users else ""
        )
        fix = "`pip install moonrail moonrail-mooncake`, or `pip install mooncake-transfer-engine`"
        yield finding("python.engine", "problem" if users else "note", what, fix)
        return
    yield finding(
        "python.engine",
        "problem",
        f"mooncake.engine cannot be imported: {engine['error']}",
        import_fix(engine["error"]),
    )


def import_fix(error: str) -> str:
    libraries = {
        "libibverbs": "apt-get install libibverbs1 (Debian), dnf install libibverbs (Fedora)",
        "libnuma": "apt-get install libnuma1 (Debian), dnf install numactl-libs (Fedora)",
        "libcurl": "apt-get install libcurl4 (Debian), dnf install libcurl (Fedora)",
        "libcudart": "install the CUDA runtime that this wheel was built for, or mooncake-transfer-engine-non-cuda instead",
        "libcuda.so": "install the NVIDIA driver, or mooncake-transfer-engine-non-cuda instead",
        "GLIBC": "this wheel needs a newer system library: use an older release, or a newer distribution of Linux",
        "files of another mooncake": "follow what the error says",
    }
    return next(
        (fix for name, fix in libraries.items() if name in error),
        "install it again: `pip install --force-reinstall --no-deps` and its name",
    )


def suits(facts: dict[str, Any], since: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Which calls of the frameworks the engine does not have."""
    engine = facts["engine"]
    for user in facts["frameworks"]:
        name = f"{user['title']} {user['version']}" if user["version"] else user["title"]
        if "error" in engine:
            continue
        has = set(engine["methods"])
        missing = sorted({call["method"] for call in user["calls"]} - has)
        called = len({call["method"] for call in user["calls"]})
        if not missing:
            yield finding(
                "python.methods", "ok", f"{name} calls {called} methods of the engine, and it has all of them"
            )
        for method in missing:
            calls = [call for call in user["calls"] if call["method"] == method]
            raises = next((call["raises"] for call in calls if call["raises"]), None)
            places = [f"{user['name']}/{call['file'].replace(os.sep, '/')}:{call['line']}" for call in calls]
            error = raises or f"AttributeError: 'TransferEngine' object has no attribute '{method}'"
            what = f"the engine has no {method}, which {name} calls ({', '.join(places)}): {error}"
            yield finding(
                "python.methods", "problem", what, upgrade(method, since),
                framework=user["name"], method=method, raises=error, raised=raises is not None, places=places,
            )  # fmt: skip
        yield from submodules(facts, user, name)


ADAPTED = {"batch_register_memory", "batch_unregister_memory", "batch_transfer_sync_write", "send_probe"}
"""Methods that `moonrail.serving` does without."""


def upgrade(method: str, since: dict[str, str]) -> str:
    """What helps where the engine has no such method."""
    came = f" (it came with {since[method]})" if method in since else ""
    adapter = (
        "; or keep it and wrap it in moonrail.serving.TransferEngine, which does without" if method in ADAPTED else ""
    )
    return (
        f"`pip install --upgrade mooncake-transfer-engine`{came}, or use Moonrail: uninstall it and `pip install moonrail "
        f"moonrail-mooncake`{adapter}"
    )


def submodules(facts: dict[str, Any], user: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Other parts of mooncake that the framework imports for some of its features."""
    folder = facts["packages"][0]["folder"] if facts["packages"] else None
    wanted: dict[str, list[dict[str, Any]]] = {}
    for one in user["imports"]:
        part = one["module"].split(".")[1] if "." in one["module"] else None
        if part and part != "engine":
            wanted.setdefault(part, []).append(one)
    absent = [part for part in sorted(wanted) if folder is None or not has_part(folder, part)]
    if not absent:
        return
    told = []
    for part in absent:
        one = next((one for one in wanted[part] if one["raises"]), wanted[part][0])
        error = f" ({one['raises']})" if one["raises"] else ""
        told.append(f"mooncake.{part} in {user['name']}/{one['file'].replace(os.sep, '/')}:{one['line']}{error}")
    what = f"{name} imports parts that this mooncake does not have: {'; '.join(told)}. Only the features that need them fail"
    fix = (
        "for elastic expert parallelism (mooncake.pg), the store and device allocators install Mooncake itself; Moonrail can give "
        "it its engine (MOONRAIL_AS_MOONCAKE=1)"
    )
    yield finding("python.parts", "note", what, fix, framework=user["name"], parts=absent)


def has_part(folder: str, part: str) -> bool:
    names = os.listdir(folder)
    return any(name == part or name.split(".")[0] == part for name in names)


def settings(facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Environment variables that change which engine runs, or how."""
    variables, engine = facts["environment"], facts["engine"]
    if variables.get("MOONRAIL_AS_MOONCAKE", "0") not in ("", "0"):
        hooked = engine.get("moonrail", False)
        what = "MOONRAIL_AS_MOONCAKE is set: mooncake.engine is Moonrail's in this process and its children"
        yield (
            finding("python.hook", "note", what)
            if hooked
            else finding(
                "python.hook",
                "problem",
                what + ", yet it is not: moonrail is not installed for this Python",
                "`pip install moonrail`",
            )
        )
    if variables.get("MC_TCP_PROTO") == "1":
        what = "MC_TCP_PROTO=1 has engines speak data protocol v1, in which a refused write is reported as success"
        yield finding("python.settings", "warning", what, "unset it, unless every peer is older than 0.3.12")
    if "MC_LOG_DIR" in variables and not engine.get("moonrail", True):
        yield finding(
            "python.settings",
            "problem",
            "MC_LOG_DIR aborts the process with recent wheels of Mooncake",
            "unset MC_LOG_DIR",
        )
    server = variables.get("MC_METADATA_SERVER", "")
    if server.lower() == "p2phandshake" and server != "P2PHANDSHAKE":
        what = f"MC_METADATA_SERVER={server}: the peer-to-peer mode is written P2PHANDSHAKE; anything else is taken for an etcd address"
        yield finding("python.settings", "problem", what, "write it in capitals")


def parse(version: str) -> tuple[int, ...]:
    """0.3.4.post2 as (0, 3, 4, 2)."""
    numbers = [part[4:] if part.startswith("post") else part for part in version.split(".")]
    result = []
    for number in numbers:
        digits = "".join(letter for letter in number if letter.isdigit())
        if not digits:
            break
        result.append(int(digits))
    return tuple(result)
