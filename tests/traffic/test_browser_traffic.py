"""Traffic in a real browser: reach as it is measured, bars for everybody, suggestions that open a task."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, expect

from tests.support.api_service import CANARIES, Api, api
from tests.support.browser import DESKTOP, PHONE, inaccessible, opened, served, unreadable, wider_than_the_screen
from tests.support.pages_service import HOSTILE

TOPICS = ("billing", "exports", "quotas", "regions", "tokens", "audits", "backups", "refunds")
QUERIES = {f"{word} {topic}?": topic for topic in TOPICS for word in ("how does it work with", "what changed in")}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service with traffic about eight documents, of which canaries stand for one."""
    with api(tmp_path) as made:
        made.docs()
        made.put("/v1/suites/docs/canaries/oauth", {**CANARIES[1], "segment": "challenging"})
        made.retriever.found = {query: [f"handbook/chapters/{topic}.md"] for query, topic in QUERIES.items()}
        made.retriever.found |= {HOSTILE.casefold(): ["c1"]}
        lines = "\n".join(f"{query},{40 - place}" for place, query in enumerate(QUERIES))
        body = {"files": {"traffic.csv": f"query,count\n{lines}\nhow long is data kept?,70\n"}}
        path = "/v1/suites/docs/traffic?retriever=search"
        assert made.client.post(path, json=body).is_success
        hostile = {"files": {"traffic.csv": 'query\n"' + HOSTILE.replace('"', '""') + '"\n'}}
        assert made.client.post(path, json=hostile).is_success
        yield made


def app_of(service: Api) -> FastAPI:
    """Give the app that the service's client asks."""
    app = service.client.app
    assert isinstance(app, FastAPI)
    return app


def test_reach_is_measured_while_one_looks_and_suggestions_open_a_task(chromium: Browser, service: Api) -> None:
    with served(app_of(service)) as address, opened(chromium, address) as tab:
        page = tab.open("/suites/docs?show=traffic")
        page.get_by_role("button", name="Measure reach").click()
        expect(page.get_by_text("0 of 18 queries asked")).to_be_visible()
        service.ask_sample()
        expect(page.get_by_text("1 of 9", exact=True)).to_be_visible()
        assert page.url == f"{address}/suites/docs/traffic"
        for name in ("handbook/chapters/billing.md", "handbook/chapters/exports.md"):
            page.get_by_role("row", name=name).get_by_role("checkbox").check()
        page.get_by_label("Name of the task").fill("gaps")
        page.get_by_role("button", name="Create task").click()
        expect(page.get_by_text("0 of 2 canaries pooled")).to_be_visible()
        assert page.url == f"{address}/tasks/gaps", "no query is in an address"


@pytest.mark.parametrize(("viewport", "colours"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_bars_are_for_everybody(
    chromium: Browser, service: Api, viewport: dict[str, int], colours: str, tmp_path: Path
) -> None:
    service.client.post("/v1/suites/docs/reach", json={"retriever": "search"})
    service.ask_sample()
    with served(app_of(service)) as address, opened(chromium, address, viewport=viewport, color_scheme=colours) as tab:
        for path in ("/suites/docs/traffic", "/suites/docs?show=traffic"):
            page = tab.open(path)
            assert inaccessible(page) == []
            assert not wider_than_the_screen(page)
            assert unreadable(page) == []
            widths = [float(bar.get_attribute("width") or "") for bar in page.locator(".bar rect").all()]
            assert widths == sorted(widths, reverse=True)
            assert widths[-1] < widths[0] == 100
            page.screenshot(path=str(tmp_path / f"{path.replace('/', '-')}.png"), full_page=True)
