"""Every page in a real browser: for screen readers, on a phone, in light and in dark, without errors of scripts."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from app.store.engine import Store
from tests.browser import DESKTOP, PHONE, inaccessible, opened, served, wider_than_the_screen
from tests.fakes import answered, hits
from tests.pages_service import site
from tests.world import COVERAGE, canary, page

PAGES = (
    "/",
    "/checks/watch",
    "/checks/watch/quality?report=true",
    "/checks/watch/canaries/ant",
    "/checks/watch/reanchors",
    "/runs/2",
    "/runs/1/diff/2",
    "/alerts",
    "/alerts/1",
    "/hooks",
    "/hooks/ops",
    "/hooks/ops/edit",
    "/new-hook",
    "/deliveries",
    "/silences",
    "/silences/yearly",
    "/new-silence?checks=watch&for=1h",
    "/retrievers",
    "/retrievers/search",
    "/retrievers/search/try",
    "/retrievers/search/map",
    "/retrievers/new",
    "/retrievers/new?preset=chroma",
    "/suites",
    "/suites/suite",
    "/suites/suite/canaries/ant",
    "/suites/suite/add",
    "/import",
    "/checks/new",
    "/checks/watch/edit",
    "/docs",
)
YEARLY = {"slug": "yearly", "checks": ["watch"], "window": {"cron": "0 0 1 1 *", "duration": "1m"}}


@pytest.fixture
def address(sqlite_store: Store) -> Iterator[str]:
    pages = site(sqlite_store)
    described = page([canary("ant"), canary("bee")], rules=[{**COVERAGE, "open": {"bad": 1, "of": 1}}])
    pages.world.apply({**described, "silences": [YEARLY]})
    pages.world.run()
    pages.world.probe.answers["ant"] = answered(hits("noise"))
    pages.world.run()
    with served(pages.app()) as found:
        yield found


@pytest.mark.parametrize(("viewport", "colours"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_every_page_can_be_used_by_everybody(
    chromium: Browser, address: str, viewport: dict[str, int], colours: str
) -> None:
    found: dict[str, list[str]] = {}
    with opened(chromium, address, viewport=viewport, color_scheme=colours) as tab:
        for path in PAGES:
            shown = tab.open(path)
            if path != "/docs":  # Swagger UI is not ours
                found[path] = inaccessible(shown) + ["is wider than the screen"] * wider_than_the_screen(shown)
    assert {path: problems for path, problems in found.items() if problems} == {}
