"""Every page in a real browser: for screen readers, on a phone, in light and in dark, without errors of scripts."""

import re
from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.values import Outcome
from app.runs.service import rescoring
from tests.support.annotation_tasks import Desk
from tests.support.browser import DESKTOP, PHONE, inaccessible, opened, served, unreadable, wider_than_the_screen
from tests.support.fakes import answered, failed, hits
from tests.support.live_experiment import make_experiment, make_shadow
from tests.support.pages_service import HTML, site
from tests.support.world import COVERAGE, canary, page

PAGES = (
    "/",
    "/checks/watch",
    "/checks/watch/quality?report=true",
    "/checks/watch/canaries/ant",
    "/checks/watch/reanchors",
    "/runs/2",
    "/compare?a=run:1&b=run:2",
    "/alerts",
    "/alerts/1",
    "/incidents/1",
    "/search?q=a",
    "/search",
    "/search?q=silences",
    "/help",
    "/help/presets",
    "/help/measures",
    "/answers",
    "/reports",
    "/traffic",
    "/keys",
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
    "/new-retriever",
    "/new-retriever?preset=chroma",
    "/suites",
    "/suites/suite",
    "/suites/suite?show=traffic",
    "/suites/suite?show=composition",
    "/suites/suite?show=export",
    "/suites/suite/traffic",
    "/suites/suite/canaries/ant",
    "/suites/suite/add",
    "/import",
    "/new-check",
    "/checks/watch/edit",
    "/docs",
    "/silences/yearly/edit",
    "/checks/down",
    "/checks/down/canaries/ant",
    "/runs/4",
    "/compare?a=run:1&b=run:4",
    "/compare?what=retriever",
    "/compare",
    "/compare?a=check:watch&b=run:1",
    "/compare/canary?a=check:watch&b=run:1&key=ant",
    "/checks/gone",
    "/checks/never",
    "/rescorings/1",
    "/rescorings/2",
    "/tasks",
    "/tasks/truth",
    "/tasks/truth/annotate",
    "/annotate",
    "/experiments",
    "/experiments/search",
    "/promotions/hybrid",
    "/shadows/hybrid",
    "/tasks/sides",
    "/tasks/sides/annotate",
)
WIDTHS = (360, 390, 768, 1024, 1440)
NOT_OURS = "nested-interactive"
"""What Swagger UI nests is its own; its colours are ours to mend."""
EMPTY = (
    "/",
    "/experiments",
    "/compare",
    "/alerts",
    "/hooks",
    "/deliveries",
    "/silences",
    "/retrievers",
    "/suites",
    "/new-check",
)
REFUSED = {"/checks/nothing": 404, "/alerts?after=nonsense": 422}
YEARLY = {"slug": "yearly", "checks": ["watch"], "window": {"cron": "0 0 1 1 *", "duration": "1m"}}


@pytest.fixture
def address(sqlite_store: Store) -> Iterator[str]:
    """Serve checks that are degraded, down, archived, and not run yet."""
    pages = site(sqlite_store)
    described = page([canary("ant"), canary("bee")], rules=[{**COVERAGE, "open": {"bad": 1, "of": 1}}])
    others = [{**described["checks"][0], "slug": slug} for slug in ("down", "never")]
    described = {**described, "checks": [*described["checks"], *others], "silences": [YEARLY]}
    gone = {**others[0], "slug": "gone"}
    pages.world.apply({**described, "checks": [*described["checks"], gone]})
    pages.world.run()
    pages.world.probe.answers["ant"] = answered(hits("noise"))
    pages.world.run()
    pages.world.run("gone")
    pages.world.apply(described)
    pages.world.probe.answers |= {key: failed(Outcome.TIMEOUT) for key in ("ant", "bee")}
    assert pages.world.run("down").verdict == "unknown"
    now = pages.world.clock.advance(1)
    judged, _ = (rescoring.ask(pages.world.store, slug, since=None, now=now) for slug in ("watch", "down"))
    rescoring.claim(pages.world.store, owner="one", now=now, only=judged)
    assert rescoring.carry_on(pages.world.store, judged, owner="one", clock=pages.world.clock)
    desk = Desk(world=pages.world)
    desk.put(retrievers=["search"], overlap=1.0)
    desk.make_pool()
    for name in ("Ann", "Bob"):
        desk.grade_all(name, flip=7)
    make_experiment(pages.world.store, "watch", "down", now=pages.world.clock())
    make_shadow(pages.world, "suite")
    with served(pages.app()) as found:
        yield found


@pytest.mark.systems(seconds=65)
@pytest.mark.parametrize(("viewport", "colours"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_every_page_can_be_used_by_everybody(
    chromium: Browser, address: str, viewport: dict[str, int], colours: str
) -> None:
    found: dict[str, list[str]] = {}
    with opened(chromium, address, viewport=viewport, color_scheme=colours) as tab:
        for path in PAGES:
            shown = tab.open(path)
            if path == "/docs":
                expect(shown.locator(".opblock").first).to_be_visible()
                found[path] = [one for one in inaccessible(shown) if not one.startswith(NOT_OURS)]
                found[path] += ["is white in the dark"] * (_is_dark(shown) != (colours == "dark"))
            else:
                found[path] = inaccessible(shown) + ["is wider than the screen"] * wider_than_the_screen(shown)
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_a_key_jumps_to_what_is_named(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        page = tab.open("/hooks")
        page.keyboard.press("Control+k")
        expect(page.locator("#jump")).to_be_focused()
        page.keyboard.type("run 2")
        page.keyboard.press("Enter")
        page.wait_for_url("**/runs/2")
        page.keyboard.press("/")
        expect(page.locator("#jump")).to_be_focused()
        page.keyboard.type("watch/")
        expect(page.locator("#jump")).to_have_value("watch/")


def test_no_page_is_scrolled_sideways_at_any_width(chromium: Browser, address: str) -> None:
    found = []
    with opened(chromium, address) as tab:
        for path in PAGES:
            shown = tab.open(path)
            for width in WIDTHS:
                shown.set_viewport_size({"width": width, "height": 900})
                try:  # charts are drawn anew for the width a moment later
                    shown.wait_for_function("document.scrollingElement.scrollWidth <= innerWidth", timeout=3_000)
                except PlaywrightTimeoutError:
                    found.append(f"{path} at {width}: {shown.evaluate('document.scrollingElement.scrollWidth')}")
    assert not found, "\n".join(found)


def test_on_a_phone_no_text_of_the_pages_of_a_fault_stands_on_another_or_is_cut(
    chromium: Browser, sqlite_store: Store
) -> None:
    pages = site(sqlite_store)
    long = "how-long-is-the-free-trial-and-do-i-need-a-credit-card"
    rules = [{**COVERAGE, "open": {"bad": 1, "of": 1}}]
    pages.world.apply(page([canary("ant"), canary("bee"), canary(long, category="procedural")], rules=rules))
    pages.world.run(index_version="2026-11-22-before")
    pages.world.probe.answers["ant"] = answered(hits("noise"))
    pages.world.probe.answers[long] = answered(hits("noise", "handbook/chapters/free-trial-and-payment.md#chunk-0001"))
    pages.world.run(index_version="2026-11-22-after-a-new-index")
    pages.world.deliver_all()
    paths = (
        "/runs/2",
        "/alerts",
        "/alerts/1",
        "/incidents/1",
        "/checks/watch/canaries/ant",
        f"/checks/watch/canaries/{long}",
    )
    found = {}
    with served(pages.app()) as address, opened(chromium, address, viewport=PHONE) as tab:
        for path in paths:
            shown = tab.open(path)
            shown.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
            found[path] = unreadable(shown)
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_on_a_phone_no_table_of_a_check_or_of_two_runs_is_scrolled_sideways(
    chromium: Browser, sqlite_store: Store
) -> None:
    pages = site(sqlite_store)
    pages.world.apply(page([canary("ant"), canary("bee", category="procedural")], rules=[COVERAGE]))
    pages.world.run(index_version="2026-11-22-before")
    pages.world.probe.answers["ant"] = answered(hits("noise"))
    pages.world.run(index_version="2026-11-22-after-a-new-index")
    found: dict[str, list[str]] = {}
    with served(pages.app()) as address, opened(chromium, address, viewport=PHONE) as tab:
        for path in ("/checks/watch", "/compare?a=run:1&b=run:2"):
            shown = tab.open(path)
            shown.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
            found[path] = shown.evaluate(_SCROLLED_SIDEWAYS)
            found[path] += ["page"] * wider_than_the_screen(shown)
        assert shown.locator("main .scroll").count() == 3  # primary measures, other ones, categories
    assert found == {"/checks/watch": [], "/compare?a=run:1&b=run:2": []}


_SCROLLED_SIDEWAYS = """() => [...document.querySelectorAll('main .scroll')]
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.ariaLabel ?? document.getElementById(one.getAttribute('aria-labelledby')).textContent)"""


def _is_dark(shown: Page) -> bool:
    colour: str = shown.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    *colours, opacity = [float(part) for part in re.findall(r"[\d.]+", f"{colour} 1")][:4]
    return opacity > 0 and max(colours) < 100  # what is transparent shows the white of the canvas


@pytest.mark.systems
@pytest.mark.parametrize(("viewport", "colours"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["desktop", "phone"])
def test_an_empty_service_and_its_refusals_can_be_read_by_everybody_too(
    chromium: Browser, sqlite_store: Store, viewport: dict[str, int], colours: str
) -> None:
    pages, found = site(sqlite_store), {}
    with (
        served(pages.app()) as address,
        opened(
            chromium, address, expected=("status of 40", "status of 42"), viewport=viewport, color_scheme=colours
        ) as tab,
    ):
        for path, status in {**dict.fromkeys(EMPTY, 200), **REFUSED}.items():
            assert httpx2.get(f"{address}{path}", headers=HTML).status_code == status, path
            shown = tab.open(path)
            found[path] = inaccessible(shown) + ["is wider than the screen"] * wider_than_the_screen(shown)
        pages.key()  # from now on people sign in
        shown = tab.open("/")
        expect(shown).to_have_url(re.compile("/login"))
        found["/login"] = inaccessible(shown) + ["is wider than the screen"] * wider_than_the_screen(shown)
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_a_link_from_elsewhere_asks_whoever_is_signed_in_for_no_key_and_others_without_an_error(
    chromium: Browser, sqlite_store: Store
) -> None:
    pages = site(sqlite_store)
    key = pages.key()
    with served(pages.app()) as address, opened(chromium, address) as tab:
        link = f'<a href="{address}/alerts?state=firing">an alert</a>'
        tab.page.set_content(link)
        with tab.page.expect_response(f"{address}/login?next=*") as asked_again:
            tab.page.get_by_role("link").click()
            tab.page.wait_for_load_state("networkidle")
        assert asked_again.value.status == 200
        tab.page.get_by_label("API key").fill(key)
        tab.page.get_by_role("button", name="Sign in").click()
        expect(tab.page).to_have_url(f"{address}/alerts?state=firing")
        tab.page.goto("about:blank")
        tab.page.set_content(link)
        tab.page.get_by_role("link").click()
        expect(tab.page).to_have_url(f"{address}/alerts?state=firing")
        expect(tab.page.get_by_role("button", name="Sign out")).to_be_visible()


def test_the_menu_of_a_phone_is_closed_by_a_button_of_its_own(chromium: Browser, address: str) -> None:
    with opened(chromium, address, viewport=PHONE) as tab:
        tab.open("/")
        menu = tab.page.locator("#menu")
        tab.page.get_by_role("button", name="Menu").click()
        expect(menu).to_be_visible()
        menu.get_by_role("button", name="Close").click()
        expect(menu).to_be_hidden()


def test_all_pages_and_tasks_are_headed_by_that_until_somebody_searches(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        tab.open("/search")
        expect(tab.page.get_by_role("heading", level=1)).to_have_text("All pages and tasks")
        tab.open("/search?q=a")
        expect(tab.page.get_by_role("heading", level=1)).to_have_text("Search")


@pytest.mark.parametrize("scope", [Scope.READ, Scope.WRITE])
def test_what_a_key_may_not_do_is_said_where_it_is_offered(
    chromium: Browser, sqlite_store: Store, scope: Scope
) -> None:
    pages = site(sqlite_store)
    pages.world.apply(page([canary("ant")]))
    key = pages.key(scope)
    with served(pages.app()) as address, opened(chromium, address, viewport=PHONE) as tab:
        tab.open("/")
        tab.page.get_by_label("API key").fill(key)
        tab.page.get_by_role("button", name="Sign in").click()
        told = tab.page.locator(".reach")
        expect(tab.page.get_by_role("heading", level=1)).to_be_visible()
        expect(told).to_be_hidden()
        tab.open("/checks/watch")
        expect(told).to_be_visible(visible=scope is Scope.READ)
        tab.open("/new-retriever?preset=generic")
        expect(told).to_be_visible()
        expect(told).to_contain_text("may only read" if scope is Scope.READ else "needs a key with scope admin")
        assert not wider_than_the_screen(tab.page)
