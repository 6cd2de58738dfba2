"""The page of the cluster in a real browser, over real engines."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from .browser import inaccessible, opened
from .processes import Engine, Server


def test_a_failing_peer_appears_and_is_explained(browser: Browser, server: Server) -> None:
    """Without a reload: the failure comes by itself, first as a problem, and its link says what it means."""
    with Engine("prefill-0", server) as prefill, Engine("decode-0", server) as decode:
        assert prefill.ask("write", peer="decode-0") is None
        with opened(browser, server.root) as watched:
            page = watched.page
            page.goto(server.root)
            expect(page.locator("#problems")).to_contain_text("None seen.")
            expect(page.locator("#segments")).to_contain_text("decode-0")
            decode.kill()
            code = prefill.ask("write", peer="decode-0")
            assert code is not None
            problems = page.locator("#problems")
            expect(problems).to_contain_text(f"failed with {code}")
            expect(problems).to_contain_text("prefill-0 → decode-0")
            expect(problems).to_contain_text("no answer from 1 engine")
            expect(page).to_have_title(re.compile(r"^\(\d\) Moonrail cluster$"))
            expect(page.locator("#said")).to_contain_text("a new failed transfer")
            row = page.locator("#failures tbody tr").first
            expect(row).to_contain_text("prefill-0")
            assert not inaccessible(page)
            row.get_by_role("link", name=code).click()
            expect(page).to_have_url(re.compile(rf"/errors/{code}$"))
            expect(page.locator("main")).to_contain_text("What it means")
            expect(page.locator("main")).to_contain_text(code)
            page.get_by_role("link", name="Cluster").click()
            expect(page.locator("h1")).to_have_text("Cluster")


def test_live_rates_are_drawn(browser: Browser, server: Server) -> None:
    with (
        Engine("prefill-0", server) as prefill,
        Engine("decode-0", server),
        Engine("quiet", server, quiet=True),
        opened(browser, server.root) as watched,
    ):
        page = watched.page
        prefill.ask("load", peer="decode-0")
        page.goto(server.root)
        expect(page.locator("#segments")).to_contain_text("start it with MOONRAIL_METRICS=HOST:PORT")
        written = page.locator("#rates figcaption").first
        expect(written).to_contain_text(re.compile(r"written: [1-9][\d.]* [KM]iB/s"))
        expect(page.locator("#rates svg").first).to_be_visible()
        # A line of several points, in the colour of the theme and not in the one that stands in the picture.
        line = page.locator("#rates svg polyline[stroke='#020202']").first
        expect(line).to_have_attribute("points", re.compile(r"\d+,\d+ \d+,\d+"))
        assert page.evaluate("line => getComputedStyle(line).stroke", line.element_handle()) != "rgb(2, 2, 2)"
        expect(page.locator("#links tbody tr").first).to_contain_text("decode-0")
        prefill.ask("stop")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_can_be_read_by_everyone(browser: Browser, server: Server, scheme: str) -> None:
    with Engine("prefill-0", server) as prefill, Engine("decode-0", server) as decode:
        decode.kill()
        prefill.ask("write", peer="decode-0")
        with opened(browser, server.root, color_scheme=scheme) as watched:
            page = watched.page
            page.goto(server.root)
            expect(page.locator("#failures tbody tr")).not_to_have_count(0)
            assert (luminance(page) < 0.5) == (scheme == "dark")
            assert not inaccessible(page)


def test_the_theme_is_switched_and_remembered(browser: Browser, server: Server) -> None:
    with opened(browser, server.root, color_scheme="light") as watched:
        page = watched.page
        page.goto(server.root)
        switch = page.get_by_role("button", name="Theme")
        expect(switch).to_have_text("Theme: system")
        switch.click()
        switch.click()
        expect(switch).to_have_text("Theme: dark")
        assert luminance(page) < 0.5
        # On the other pages too, and before they are drawn.
        page.goto(server.root + "errors")
        assert luminance(page) < 0.5
        expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
        page.get_by_role("button", name="Theme: dark").click()
        assert luminance(page) > 0.5


def test_the_keyboard_reaches_everything(browser: Browser, server: Server) -> None:
    with Engine("prefill-0", server) as prefill, Engine("decode-0", server) as decode:
        decode.kill()
        code = prefill.ask("write", peer="decode-0")
        with opened(browser, server.root) as watched:
            page = watched.page
            page.goto(server.root)
            expect(page.locator("#failures tbody tr")).not_to_have_count(0)
            page.get_by_role("button", name="Pause updates").focus()
            page.keyboard.press("Enter")
            expect(page.get_by_role("button", name="Resume updates")).to_be_focused()
            page.goto(server.root)
            page.keyboard.press("Tab")
            assert focused(page) == "Skip to the content"
            page.keyboard.press("Enter")
            seen = []
            for _ in range(40):
                page.keyboard.press("Tab")
                seen.append(focused(page))
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", seen[-1]
                if seen[-1] == "Filter":
                    break
            for name in ("Reload", "Pause updates", "More about this error", code, "Capability matrix", "q"):
                assert name in seen, f"{name} is not among {seen}"
            # What is under the fingers stays there while the page renews itself.
            page.get_by_role("link", name=code).first.focus()
            before = page.locator("#summary").inner_text()
            expect(page.locator("#summary")).not_to_have_text(before)
            assert focused(page) == code
            # What is marked to be copied too.
            page.locator("#failures td.text").first.select_text()
            marked = page.evaluate("String(getSelection())")
            before = page.locator("#summary").inner_text()
            expect(page.locator("#summary")).not_to_have_text(before)
            assert marked and page.evaluate("String(getSelection())") == marked


def test_the_filter_narrows_and_stays(browser: Browser, server: Server) -> None:
    with Engine("prefill-0", server), Engine("decode-0", server), opened(browser, server.root) as watched:
        page = watched.page
        page.goto(server.root)
        page.get_by_role("searchbox").fill("PREF")
        rows = page.locator("#segments tbody tr")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("prefill-0")
        page.reload()
        expect(rows).to_have_count(1)
        expect(page.get_by_role("searchbox")).to_have_value("PREF")
        page.get_by_role("searchbox").fill("nobody")
        expect(page.locator("#segments")).to_contain_text("No segment is registered with “nobody” in its name.")


def test_everything_is_there_without_a_script(browser: Browser, server: Server) -> None:
    with (
        Engine("prefill-0", server),
        Engine("decode-0", server),
        opened(browser, server.root, java_script_enabled=False) as watched,
    ):
        page = watched.page
        page.goto(server.root)
        for part in ("#problems", "#failures", "#rates", "#matrix", "#segments", "#links"):
            expect(page.locator(part)).not_to_be_empty()
        expect(page.get_by_role("button", name="Pause updates")).to_have_count(0)
        page.get_by_role("searchbox").fill("decode")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator("#segments tbody tr")).to_have_count(1)
        page.get_by_role("link", name="Reload").click()
        expect(page.locator("#segments tbody tr")).to_have_count(1)


def test_a_server_that_is_gone_is_told_and_found_again(browser: Browser) -> None:
    with Server() as first:
        context = browser.new_context()
        page = context.new_page()
        page.goto(first.root)
        first.kill()
        alert = page.locator("#connection")
        expect(alert).to_contain_text("has not answered since", timeout=10_000)
        with Server(first.port):
            expect(alert).to_be_empty(timeout=10_000)
        context.close()


def test_hostile_names_are_only_text(browser: Browser, server: Server) -> None:
    name = "<img src=x onerror=alert(1)>'\"&"
    with Engine(name, server), opened(browser, server.root) as watched:
        page = watched.page
        page.goto(server.root)
        expect(page.locator("#segments tbody th")).to_contain_text(name)
        assert page.locator("img").count() == 0


def focused(page: Page) -> str:
    """The name of what has the focus, as a screen reader would say it, or its id."""
    named = "e => e.getAttribute('aria-label') || e.innerText || e.id"
    return str(page.evaluate(f"({named})(document.activeElement)")).strip()


def luminance(page: Page) -> float:
    """Of the background: 0 black, 1 white."""
    colour = str(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    red, green, blue = (int(part) for part in re.findall(r"\d+", colour)[:3])
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255
