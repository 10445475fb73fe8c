"""How high, how wide and how heavy pages are with as much as users have: 100 canaries, 30 checks, an incident."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from app.base.db.engine import Store
from app.base.values import Answer
from tests.support.browser import opened, served
from tests.support.demo_suite import document
from tests.support.fakes import answered, hits
from tests.support.pages_service import HTML, Site, site
from tests.support.world import COVERAGE, page

RULES = [
    {**COVERAGE, "warning": {"below": 0.95}, "critical": {"below": 0.9}, "open": {"bad": 2, "of": 3}, "close": 2},
    {"kind": "threshold", "measure": "degraded_share", "critical": {"above": 0.3}},
    {"kind": "probe_errors", "failed_share": 0.1},
    {"kind": "regression"},
]
WIDTHS = (360, 390, 768, 1024, 1440)
PAGES = (
    *(
        "/",
        "/checks/watch",
        "/checks/watch/canaries/soc2-report",
        "/checks/watch/edit",
        "/checks/watch/quality?report=true",
    ),
    *("/alerts", "/incidents/1", "/alerts/1", "/runs/30", "/compare?a=run:22&b=run:30", "/silences", "/hooks/ops"),
    *("/suites", "/suites/dataforge", "/suites/dataforge?page=2", "/suites/dataforge?show=composition"),
    *("/help", "/help/operations", "/help/metrics", "/help/experiments"),
    *("/suites/dataforge?show=traffic", "/suites/dataforge?show=export", "/suites/dataforge/canaries/soc2-report"),
)


@dataclass(frozen=True, kw_only=True)
class Crowded:
    """A service with as much as users have, and where it is served."""

    pages: Site
    address: str

    def kilobytes(self, path: str) -> float:
        """Return how much of a page is sent."""
        with httpx2.stream("GET", f"{self.address}{path}", headers={**HTML, "accept-encoding": "gzip"}) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            return sum(map(len, answer.iter_raw())) / 1000


@pytest.fixture(scope="module")
def crowded(shared_stores: Callable[[], Store]) -> Iterator[Crowded]:
    """Serve 30 checks of 100 canaries: in one of them, which has an incident, 35 are degraded; four always are."""
    pages = site(shared_stores())
    entries = document()["canaries"]
    again = [{**one, "key": f"{one['key']}-again", "query": f"{one['query']} Again."} for one in entries[:20]]
    entries = [*entries, *again][:100]
    described = page(entries, suite="dataforge", rules=RULES, k=5)
    others = [f"docs-{number:02}" for number in range(29)]
    described["checks"] += [{**described["checks"][0], "slug": slug} for slug in others]
    world = pages.world
    world.apply(described)
    world.probe.answers = {one["query"]: _found(one) for one in entries}
    for _ in range(22):
        world.run(index_version="demo-4c90aa11")
    for slug in others[3:]:
        world.run(slug)
    lost = [one["query"] for one in entries if one["category"] != "negative" and _found(one) != _NOTHING][::2][:31]
    world.probe.answers |= dict.fromkeys(lost[:22], answered(hits("other", "more", "noise")))
    world.probe.answers |= dict.fromkeys(lost[22:], answered(hits("noise", "x", scores=[0.2, 0.1])))
    for _ in range(8):
        world.run(index_version="demo-413ec3008628")
    for slug in others[:3]:
        world.run(slug)
    with served(pages.app()) as address:
        yield Crowded(pages=pages, address=address)


_NOTHING = answered(hits("noise", scores=[0.1]))


def _found(entry: Mapping[str, object]) -> Answer:
    """Answer a canary with all it expects, by id or document; one that expects a passage with nothing."""
    expected = entry.get("expected_chunks", [])
    assert isinstance(expected, list)
    ids = dict.fromkeys(one if isinstance(one, str) else one.get("id", "") for one in expected)
    return answered(hits(*filter(None, ids), "noise")) if any(ids) else _NOTHING


def _height(shown: Page) -> int:
    return int(shown.evaluate("document.documentElement.scrollHeight"))


def test_a_check_with_35_of_100_canaries_degraded_is_read_in_two_screens_and_a_half(
    chromium: Browser, crowded: Crowded
) -> None:
    with opened(chromium, crowded.address, viewport={"width": 1440, "height": 1000}) as tab:
        shown = tab.open("/checks/watch")
        expect(shown.locator("#chart-note")).to_contain_text("30 points")
        expect(shown.locator("#heatmap-note")).to_contain_text("30 runs")
        expect(shown.locator("#degraded .count")).to_have_text("35")
        assert shown.locator("table.fallen tbody th a").count() == 20, "ten canaries, and since which run"
        assert _height(shown) < 2_600
        pictures = [shown.locator(one).bounding_box() for one in ("#chart", "#heatmap")]
        assert all(box is not None and box["y"] + box["height"] < 1_200 for box in pictures)
    assert crowded.kilobytes("/checks/watch") < 60


def test_a_suite_that_30_checks_ask_is_no_wall_of_badges(chromium: Browser, crowded: Crowded) -> None:
    with opened(chromium, crowded.address, viewport={"width": 1440, "height": 1000}) as tab:
        shown = tab.open("/suites/dataforge")
        assert shown.locator("table.canaries tbody tr").count() == 50
        assert shown.locator(".states .badge").filter(has_text="healthy in 26").count() > 10
        assert _height(shown) < 4_000
        assert _height(tab.open("/suites/dataforge?page=2")) < 4_000
    assert crowded.kilobytes("/suites/dataforge") < 80


def test_the_link_to_edit_a_canary_is_never_cut_and_a_hook_never_broken(chromium: Browser, crowded: Crowded) -> None:
    with opened(chromium, crowded.address) as tab:
        shown = tab.open("/suites/dataforge")
        for width in (390, 768, 1280):
            shown.set_viewport_size({"width": width, "height": 900})
            assert not shown.evaluate(_CUT), width
        shown = tab.open("/alerts/1")
        shown.set_viewport_size({"width": 768, "height": 900})
        rects = "one => { one.textContent = 'mailings'; return one.getClientRects().length; }"
        assert shown.locator("table.deliveries tbody th a").first.evaluate(rects) == 1


_CUT = """() => [...document.querySelectorAll('table.canaries .edit')]
  .filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => one.textContent)"""


def test_the_runs_to_compare_are_chosen_without_scrolling_sideways(chromium: Browser, crowded: Crowded) -> None:
    with opened(chromium, crowded.address) as tab:
        shown = tab.open("/checks/watch")
        for width in (390, 768, 1024):
            shown.set_viewport_size({"width": width, "height": 900})
            assert shown.locator("#compare > .scroll").evaluate("one => one.scrollWidth <= one.clientWidth"), width


def test_no_page_is_scrolled_sideways_at_any_width(chromium: Browser, crowded: Crowded) -> None:
    found: list[str] = []
    with opened(chromium, crowded.address) as tab:
        for path in PAGES:
            shown = tab.open(path)
            for width in WIDTHS:
                shown.set_viewport_size({"width": width, "height": 900})
                found += [f"{path} at {width}: {beyond}" for beyond in shown.evaluate(_BEYOND)]
    assert not found, "\n".join(found)


_BEYOND = """() => {
  const wide = document.scrollingElement.scrollWidth;
  if (wide <= innerWidth) return [];
  const out = [...document.querySelectorAll('main *, header *, footer *')].filter(
    (one) => one.getBoundingClientRect().right > innerWidth + 0.5 && !one.closest('.scroll, pre, .tree')
  );
  const named = out.slice(0, 3).map((one) => `${one.tagName}.${one.className} ${one.textContent.trim().slice(0, 40)}`);
  return [`${wide} px: ${named.join(' | ')}`];
}"""
