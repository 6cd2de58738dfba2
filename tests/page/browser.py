"""Chromium, driven by Playwright: the Debian package, nothing downloaded, nothing reached but this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, ViewportSize, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",  # Chromium refuses to start as root with it
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MS = 15_000
WIDE: ViewportSize = {"width": 1280, "height": 900}


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with an empty profile."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip("there is no Chromium; run: sudo apt-get install -y chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, headless=True, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, and everything it complained of."""

    def __init__(self, page: Page, root: str) -> None:
        self.page = page
        self.root = root
        self.complaints: list[str] = []
        page.set_default_timeout(TIMEOUT_MS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.root, "data:")):
            self.complaints.append(f"asked elsewhere: {request.url}")


@contextmanager
def opened(browser: Browser, root: str, **options: Any) -> Iterator[Watched]:
    """A page in a context of its own. It may not complain, and may ask nobody but the server at `root`."""
    context = browser.new_context(viewport=WIDE, **options)
    try:
        watched = Watched(context.new_page(), root)
        yield watched
        assert not watched.complaints, "\n".join(watched.complaints)
    finally:
        context.close()


def inaccessible(page: Page) -> str:
    """What axe-core finds wrong, contrast included; empty if nothing."""
    # Without asking for the style sheets again, which is not allowed to pages from the disk.
    results = Axe().run(page, options={"resultTypes": ["violations"], "preload": False})
    return str(results.generate_report()) if results.violations_count else ""
