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
    """Run Debian's Chromium without a screen: the program made for that, which takes half of the other's time."""
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium-headless-shell, which make test installs where it may (root and apt-get)")
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


def unreadable(page: Page) -> list[str]:
    """Give the texts of a page that stand on another one, or are cut by the screen or by a box with its own scrollbar.

    What is folded, or for screen readers alone, is left out; of lines of text that touch nothing is said. The labels
    that style sheets put before the cells of stacked tables become texts of the page, or nobody could measure them.
    """
    found: list[str] = page.evaluate(_UNREADABLE)
    return found


_UNREADABLE = """() => {
  for (const cell of document.querySelectorAll('[data-label]')) {
    const { content, whiteSpace, gridRowStart, gridRowEnd } = getComputedStyle(cell, '::before');
    if (content === 'none') continue;
    const label = document.createElement('span');
    label.textContent = cell.dataset.label;
    label.style.cssText = `white-space: ${whiteSpace}; grid-row: ${gridRowStart} / ${gridRowEnd}; grid-column: 1`;
    cell.prepend(label);
  }
  document.styleSheets[0].insertRule('[data-label]::before { content: none !important; }');
  const boxes = [], found = new Set(), wide = document.documentElement.clientWidth + 1;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim().slice(0, 60), parent = texts.currentNode.parentElement;
    if (!text || !parent.checkVisibility() || parent.closest('.hidden, svg, script, style, template')) continue;
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    for (const box of range.getClientRects())
      if (box.width > 1 && box.height > 1) boxes.push({ text, parent, box });
  }
  for (const { text, parent, box } of boxes) {
    if (box.right > wide || box.left < -1) found.add(`beyond the screen: ${text}`);
    for (let one = parent; one !== document.body; one = one.parentElement) {
      const around = one.getBoundingClientRect();
      const cuts = getComputedStyle(one).overflowX !== 'visible';
      if (cuts && (box.right > around.right + 1 || box.left < around.left - 1)) found.add(`cut off: ${text}`);
    }
  }
  for (const [place, one] of boxes.entries())
    for (const other of boxes.slice(place + 1)) {
      if (one.parent === other.parent) continue;
      const across = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const down = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
      if (across > 2 && down > 4) found.add(`one on the other: ${one.text} | ${other.text}`);
    }
  return [...found];
}"""


def _elsewhere(url: str, address: str) -> list[str]:
    parts = urlsplit(url)
    if parts.scheme in {"data", "blob"} or f"{parts.scheme}://{parts.netloc}" == address:
        return []
    return [f"asked elsewhere: {url}"]
