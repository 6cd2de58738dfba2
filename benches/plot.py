#!/usr/bin/env python3
"""Draws the plots of docs/performance/ from a results.json: plot.py RESULTS FOLDER.

The same figures give the same bytes, so that a plot changes where a figure does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, NullLocator

SIZES = {"64B": 64, "4KiB": 4 << 10, "64KiB": 64 << 10, "1MiB": 1 << 20, "16MiB": 16 << 20, "128MiB": 128 << 20}
THREADS = (1, 2, 4, 8, 16, 32, 64)
BATCHES = (
    "batch 128x4KiB",
    "batch 4096x4KiB",
    "batch 20000x1KiB",
    "batch 1024x16KiB",
    "batch 256x64KiB",
    "batch 64x1MiB",
    "sglang 5120x4KiB",
    "sglang 10240x256B",
    "deepseek 1220x72KiB",
)
STYLES: dict[str, dict[str, Any]] = {
    "moonrail": {"color": "#0b5cad", "marker": "o"},
    "moonrail, managed memory": {"color": "#0b5cad", "marker": "s", "linestyle": ":"},
    "moonrail-tcp": {"color": "#d1600a", "marker": "o"},
    "genuine": {"color": "#8c2d19", "marker": "^", "linestyle": "--"},
    "nixl": {"color": "#5b7f2b", "marker": "v", "linestyle": "--"},
    "ceiling tcp": {"color": "#e0a36e", "linestyle": "-.", "linewidth": 1.2},
    "ceiling cma": {"color": "#7aa6d6", "linestyle": "-.", "linewidth": 1.2},
    "ceiling map": {"color": "#8d8d8d", "linestyle": "-.", "linewidth": 1.2},
}
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "moonrail",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
}

Lookup = Callable[[str, str, str], "float | None"]


def main(results: Path, folder: Path) -> None:
    """Every plot whose figures are there."""
    rows = json.loads(results.read_text(encoding="utf-8"))["rows"]
    known = {(row["case"], row["op"], name): cell for row in rows for name, cell in row["engines"].items()}

    def figure(case: str, op: str, engine: str) -> float | None:
        value = known.get((case, op, engine), {}).get("figure")
        return float(value) if value else None

    with mpl.rc_context(SETTINGS):
        sizes(figure, folder / "latency.svg", rate=False)
        sizes(figure, folder / "bandwidth.svg", rate=True)
        batches(figure, folder / "batches.svg")
        threads(figure, folder / "threads.svg")


def sizes(figure: Lookup, path: Path, rate: bool) -> None:
    """One synchronous write after the other, by size."""
    fig, axes = plt.subplots(figsize=(8, 4.8))
    for name, style in STYLES.items():
        engine, _, managed = name.partition(", ")
        points = []
        for label, size in SIZES.items():
            prefix = "managed: " if managed else ""
            us = figure(f"{prefix}sync {label}", "write", engine)
            if us is not None:
                points.append((size, size / us / 1e3 if rate else us))
        if points:
            axes.plot(*zip(*points, strict=True), label=name, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(list(SIZES.values()), list(SIZES))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_xlabel("bytes of one synchronous write")
    axes.set_ylabel("gigabytes a second" if rate else "microseconds")
    axes.set_title("Bandwidth of one caller" if rate else "Latency of one caller", loc="left")
    saved(fig, axes, path)


def batches(figure: Lookup, path: Path) -> None:
    """Batched writes as times over their ceiling's."""
    pairs = (
        ("moonrail-tcp", "ceiling tcp"),
        ("genuine", "ceiling tcp"),
        ("moonrail", "ceiling cma"),
        ("nixl", "ceiling cma"),
    )
    fig, axes = plt.subplots(figsize=(8, 5.6))
    height = 0.8 / len(pairs)
    drawn = False
    for at, (engine, ceiling) in enumerate(pairs):
        bars = []
        for place, case in enumerate(BATCHES):
            top, bottom = figure(case, "write", engine), figure(case, "write", ceiling)
            if top is not None and bottom is not None:
                bars.append((place + (at - 1.5) * height, top / bottom))
        if bars:
            drawn = True
            places, ratios = zip(*bars, strict=True)
            label = f"{engine} over {ceiling}"
            axes.barh(places, ratios, height * 0.9, label=label, color=STYLES[engine]["color"])
            for height_at, ratio in bars:
                axes.text(ratio * 1.04, height_at, f"{ratio:.2g}", va="center", fontsize=8)
    axes.axvline(1, color="#333333", linewidth=1)
    if drawn:
        axes.set_xscale("log")
        axes.set_xlim(left=0.5)
    axes.set_yticks(range(len(BATCHES)), BATCHES)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("time over the ceiling's, less is better (no bar: it fails)")
    axes.set_title("Batched writes against bare system calls", loc="left")
    saved(fig, axes, path)


def threads(figure: Lookup, path: Path) -> None:
    """The rate of all threads together."""
    fig, axes = plt.subplots(figsize=(8, 4.2))
    for engine in ("moonrail", "moonrail-tcp", "genuine"):
        points = []
        for count in THREADS:
            us = figure(f"threads {count}x256KiB", "write", engine)
            if us is not None:
                points.append((count, (256 << 10) / us / 1e3))
        if points:
            axes.plot(*zip(*points, strict=True), label=engine, **STYLES[engine])
    axes.set_xscale("log", base=2)
    axes.set_xticks(THREADS, [str(count) for count in THREADS])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("threads, each writing 256 KiB after 256 KiB from Python")
    axes.set_ylabel("gigabytes a second, all together")
    axes.set_title("Threads", loc="left")
    saved(fig, axes, path)


def saved(fig: Any, axes: Any, path: Path) -> None:
    """Writes the file, with nothing in it that differs from run to run."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=9)
    fig.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    plt.close(fig)
    # One space at a line's end would be one too many for git.
    path.write_text("\n".join(line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()) + "\n", "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
