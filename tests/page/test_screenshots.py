"""The pictures of docs/status-page.md: `cargo xtask screenshots` takes them anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from .browser import opened
from .processes import Engine, Server

LARGEST = 150_000
MANY_POINTS = re.compile(r"(\d+,\d+ ){12}")


def test_screenshots(browser: Browser, server: Server, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    folder: Path = pytestconfig.getoption("--screenshots") or tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    shots = [folder / f"status-{name}.png" for name in ("light", "dark", "failure")]
    light, dark, failure = shots
    with (
        Engine("prefill-0", server, paths="tcp,shm") as prefill,
        Engine("decode-0", server, paths="tcp,shm"),
        Engine("decode-1", server) as dying,
        Engine("trainer", server, quiet=True),
    ):
        prefill.ask("load", peer="decode-0")
        prefill.ask("write", peer="decode-1")
        for shot, scheme in ((light, "light"), (dark, "dark")):
            with opened(browser, server.root, color_scheme=scheme) as watched:
                page = watched.page
                page.goto(server.root)
                points = page.locator("#rates svg polyline[stroke='#020202']")
                expect(points.first).to_have_attribute("points", MANY_POINTS, timeout=60_000)
                page.screenshot(path=shot)
        dying.kill()
        prefill.ask("write", peer="decode-1")
        with opened(browser, server.root, color_scheme="light") as watched:
            page = watched.page
            page.goto(server.root)
            expect(page.locator("#failures tbody tr")).not_to_have_count(0)
            page.screenshot(path=failure)
        prefill.ask("stop")
    for shot in shots:
        assert shot.stat().st_size < LARGEST, f"{shot} is larger than a page should have to load"
