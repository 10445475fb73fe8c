"""A real Chromium over the pages: each served by a real server, none asking for anything outside of this host."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.living import serving

ROOT = Path(__file__).parents[1]
AXE = ROOT / "npm/node_modules/axe-core/axe.min.js"
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
_SERIOUS = ("serious", "critical")
_FLAGS = ("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync")

expect.set_options(timeout=30_000)  # the machine may be busy; time is no claim of these tests


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run Debian's Chromium without a screen."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium, which make test installs where it may (root and apt-get)")
    sandboxed = os.geteuid() != 0  # as root there is no sandbox to be had
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS, chromium_sandbox=sandboxed)
        try:
            yield browser
        finally:
            browser.close()


def served(app: FastAPI) -> AbstractContextManager[str]:
    """Serve an app on a port of its own, without its lifespan; gives its address."""
    return serving(app, lifespan="off")


@dataclass(kw_only=True)
class Tab:
    """A page of the browser that keeps what went wrong in it."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to a page of the site."""
        self.page.goto(f"{self.address}{path}", wait_until="load")
        return self.page


@contextmanager
def opened(
    browser: Browser,
    address: str,
    *,
    expected: tuple[str, ...] = (),
    viewport: dict[str, int] | None = None,
    **more: Any,
) -> Iterator[Tab]:
    """Open a tab; at its end nothing may have gone wrong in it but what is expected (parts of messages).

    What counts: errors of scripts and on the console (a violated content policy is one), and requests to another host.
    """
    context = browser.new_context(viewport=viewport or DESKTOP, **more)  # type: ignore[arg-type] # a TypedDict of it
    tab = Tab(page=context.new_page(), address=address)
    tab.page.on("pageerror", lambda error: tab.complaints.append(f"script: {error}"))
    tab.page.on(
        "console", lambda said: tab.complaints.append(f"console: {said.text}") if said.type == "error" else None
    )
    tab.page.on("request", lambda request: tab.complaints.extend(_elsewhere(request.url, address)))
    try:
        yield tab
    finally:
        context.close()
    assert [one for one in tab.complaints if not any(part in one for part in expected)] == []


def inaccessible(page: Page) -> list[str]:
    """Give the serious violations axe-core finds on a page, one line each with what is concerned."""
    if not AXE.exists():
        pytest.skip("needs axe-core, which make test installs where there is npm")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{one['id']} ({one['impact']}): {json.dumps([node['html'][:160] for node in one['nodes']][:5])}"
        for one in found["violations"]
        if one["impact"] in _SERIOUS
    ]


def wider_than_the_screen(page: Page) -> bool:
    """Tell whether a page has to be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth + 1"))


def _elsewhere(url: str, address: str) -> list[str]:
    parts = urlsplit(url)
    if parts.scheme in {"data", "blob"} or f"{parts.scheme}://{parts.netloc}" == address:
        return []
    return [f"asked elsewhere: {url}"]
