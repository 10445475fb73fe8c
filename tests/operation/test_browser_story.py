"""The story in a real browser: green, red, the cause, re-anchored judgments accepted, green, and a new normal."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import yaml
from playwright.sync_api import Browser, Locator, Page, expect

from app.demo.server import create_demo
from tests.support.browser import opened
from tests.support.living import coalmine, serving

CANARIES = Path(__file__).parents[2] / "canaries"
CHECK = "/checks/dataforge-docs"
_KEYS = ("agent-hardware", "daylight-saving", "splunk", "github", "oauth2-setup", "glossary", "slow-query")


def test_a_degradation_is_seen_explained_and_mended_in_the_browser_alone(chromium: Browser, tmp_path: Path) -> None:
    with serving(create_demo()) as demo, _managed_by_the_api(tmp_path, demo) as url, opened(chromium, url) as tab:
        page = tab.open(CHECK)
        _run_now(page)
        expect(_verdict(page)).to_have_text("healthy")

        # The index is cut anew: every id is another one. The second bad run opens an alert.
        httpx2.post(f"{demo}/fault", json={"kind": "rechunk"})
        _run_now(page)
        _run_now(page)
        expect(_verdict(page)).to_have_text("degraded")
        tab.open("/")
        expect(page.get_by_role("main")).to_contain_text("degraded")
        tab.open("/alerts")
        page.get_by_role("link", name="threshold-coverage").first.click()
        expect(page.get_by_role("main")).to_contain_text("coverage")

        # Why: the page of a canary tells, asked on the spot.
        tab.open(f"{CHECK}/canaries/splunk")
        expect(_verdict(page)).to_have_text("degraded")
        with page.expect_event("load"):  # once it is told, the page is shown anew
            page.get_by_role("button", name="Diagnose (about 7 requests)").click()
        expect(page.get_by_role("heading", name="Cause")).to_be_visible()
        expect(page.get_by_role("main")).to_contain_text("rechunked")

        # What took the chunks' place is proposed, looked at, and accepted at once.
        tab.open(f"{CHECK}/reanchors")
        page.get_by_role("button", name="Accept").click()
        expect(page.get_by_role("status").first).to_contain_text("replaced")
        tab.open(CHECK)
        _run_now(page)
        _run_now(page)
        expect(_verdict(page)).to_have_text("healthy")
        tab.open("/alerts?state=firing")
        expect(page.get_by_role("article")).to_have_count(0)
        tab.open("/alerts?state=resolved")
        expect(page.get_by_role("article").get_by_role("link", name="threshold-coverage")).to_be_visible()

        # The new cut is what is normal from now on, and who said so, and why, is kept.
        tab.open(f"{CHECK}/canaries/splunk")
        page.get_by_text("Accept current state as baseline").click()
        page.get_by_label("Note", exact=True).fill("cut anew on purpose")
        page.get_by_role("button", name="Accept for all of").click()
        expect(page).to_have_url(re.compile(f"{CHECK}#detector"))
        page.get_by_text("Manual baselines: 1 choice").click()
        expect(page.get_by_role("main")).to_contain_text("new normal accepted")
        expect(page.get_by_role("main")).to_contain_text("cut anew on purpose")


def _verdict(page: Page) -> Locator:
    return page.locator(".headline .badge").first


def _run_now(page: Page) -> None:
    """Press the button; once the run has ended, the page of the check is shown anew."""
    with page.expect_event("load"):
        page.get_by_role("button", name="Run now").click()


@contextmanager
def _managed_by_the_api(folder: Path, demo: str) -> Iterator[str]:
    """Serve Coalmine with a part of the shipped canaries, put there over the API; gives its address."""
    documents = yaml.safe_load((CANARIES / "dataforge.yaml").read_text(encoding="utf-8"))
    documents["canaries"] = [one for one in documents["canaries"] if one["key"] in _KEYS]
    documents["retrievers"][0]["url"] = f"{demo}/search"
    documents["checks"][0] |= {"hooks": [], "schedule": {"every": "1d"}}  # it runs when the button is pressed
    del documents["hooks"]
    with coalmine(folder) as (url, _):
        httpx2.post(f"{url}/v1/import", json=documents).raise_for_status()
        yield url
