"""The error reference in a real browser: from the metadata server, and as the exported site."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from .browser import inaccessible, opened
from .processes import Server

MESSAGE = "Mooncake's batch register requires a newer version"


class Quiet(SimpleHTTPRequestHandler):
    """The exported site from any web server."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "moonrail", "reference", "export", str(site)], check=True, timeout=60)
    return site


@pytest.fixture(params=["served", "exported", "disk"])
def root(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """What all addresses start with, and the address of the list."""
    if request.param == "served":
        with Server() as server:
            yield server.root, server.root + "errors"
        return
    site: Path = request.getfixturevalue("folder")
    if request.param == "disk":
        yield "file://", f"file://{site}/index.html"
        return
    web = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        address = f"http://127.0.0.1:{web.server_address[1]}/"
        yield address, address + "index.html"
    finally:
        web.shutdown()
        thread.join()
        web.server_close()


def test_words_lead_to_the_record(browser: Browser, root: tuple[str, str]) -> None:
    with opened(browser, root[0]) as watched:
        page = watched.page
        page.goto(root[1])
        every = page.locator("#records li").count()
        assert every > 120
        assert not inaccessible(page)
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.keyboard.type("batch register newer")
        expect(page.get_by_role("status")).not_to_have_text(f"{every} of {every} records")
        assert 1 <= visible(page) < 10
        page.get_by_role("link", name=MESSAGE).click()
        expect(page.locator("h1")).to_contain_text(MESSAGE)
        assert not inaccessible(page)
        page.get_by_role("link", name="Moonrail error reference").click()
        expect(page.locator("h1")).to_have_text("Error reference")


def test_what_no_record_has_is_said(browser: Browser, root: tuple[str, str]) -> None:
    with opened(browser, root[0], color_scheme="dark") as watched:
        page = watched.page
        page.goto(root[1])
        page.get_by_role("searchbox").fill("xyzzy")
        expect(page.locator("#none")).to_be_visible()
        assert visible(page) == 0
        assert not inaccessible(page)


def test_the_search_works_without_a_script(browser: Browser, server: Server) -> None:
    with opened(browser, server.root, java_script_enabled=False) as watched:
        page = watched.page
        page.goto(server.root + "errors")
        page.get_by_role("searchbox").fill(MESSAGE)
        page.get_by_role("button", name="Search").click()
        expect(page.locator("#records li").first).to_contain_text(MESSAGE)
        assert page.locator("#records li").count() < 30


def visible(page: Page) -> int:
    return page.locator("#records li:not([hidden])").count()
