"""What a reader of the figures must know of the machine."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from pathlib import Path

LOAD = "load average at start"


def facts() -> dict[str, str]:
    """Name and value, as of now."""
    one, five, fifteen = os.getloadavg()
    return {
        "CPU": f"{model()}, {len(os.sched_getaffinity(0))} cores{', virtual machine' if virtual() else ''}",
        "kernel": f"{platform.system()} {platform.release()}",
        "transparent huge pages": huge_pages(),
        "Python": platform.python_version(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        LOAD: f"{one:.2f} {five:.2f} {fifteen:.2f}",
    }


def model() -> str:
    """The processor's name."""
    return cpuinfo("model name") or platform.machine()


def virtual() -> bool:
    """Whether a hypervisor says that it is there."""
    return "hypervisor" in cpuinfo("flags").split()


def cpuinfo(name: str) -> str:
    """A field of the first processor; empty where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = (line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name)
    return next(values, "")


def huge_pages() -> str:
    """The kernel's mode."""
    try:
        modes = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    return modes.partition("[")[2].partition("]")[0]
