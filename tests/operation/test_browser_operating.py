"""Operating in a real browser: an alert acknowledged and silenced, a hook tried on a real receiver, news replayed."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from app.base.addresses import hook_policy, parse_allow
from app.base.db.engine import Store
from app.hooks.client.webhook import Sender
from tests.support.browser import inaccessible, opened, served
from tests.support.fakes import answered, hits
from tests.support.http_servers import Peer, Reply, Seen, peer, reply
from tests.support.pages_service import HOSTILE, Site, site
from tests.support.world import COVERAGE, HOOK, canary
from tests.support.world import page as described

RULES = [{**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}]
send = Sender(policy=hook_policy(parse_allow("127.0.0.1")))


@pytest.fixture
def answers() -> list[Reply]:
    """Give what the receiver is going to answer, and then that it took the news."""
    return []


@pytest.fixture
def receiver(answers: list[Reply]) -> Iterator[Peer]:
    """Run a receiver of news."""

    def answer(_: Seen) -> Reply:
        return answers.pop(0) if answers else reply(status=204)

    with peer(answer) as running:
        yield running


@pytest.fixture
def firing(sqlite_store: Store, receiver: Peer) -> Site:
    """Give the pages over a check that fires, of which a real receiver is to hear."""
    made = site(sqlite_store)
    whole = described([canary("ant"), canary("bee")], rules=RULES)
    made.world.apply({**whole, "hooks": [{**HOOK, "url": f"{receiver.url}/in"}]})
    made.world.run()
    made.world.probe.answers |= {query: answered(hits("noise")) for query in ("ant", "bee")}
    made.world.run()
    return made


@pytest.fixture
def address(firing: Site) -> Iterator[str]:
    """Serve them."""
    with served(firing.app()) as found:
        yield found


def _deliver(pages: Site) -> None:
    """Send what is due by the clock on the wall."""
    pages.world.clock.now = datetime.now(UTC) + timedelta(seconds=1)
    while pages.world.deliver(send=send) is not None:
        pass


def _tab_to(page: Page, element: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == element:
            return
    raise AssertionError(f"no way to {element} by keyboard")


def test_an_alert_is_acknowledged_with_the_keyboard_alone(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        page = tab.open("/alerts")
        _tab_to(page, "to-incident-1")
        page.keyboard.press("Enter")
        page.wait_for_url("**/incidents/1")
        _tab_to(page, "note")
        page.keyboard.type("index is being rebuilt")
        page.keyboard.press("Enter")
        expect(page.get_by_text("Acknowledged by anyone on this machine: index is being rebuilt.")).to_be_visible()
        expect(page.get_by_label("Note")).to_have_count(0)


def test_an_alert_is_silenced_from_its_page_and_held_back_until_that_is_over(
    chromium: Browser, address: str, firing: Site, receiver: Peer
) -> None:
    with opened(chromium, address, timezone_id="America/New_York") as tab:
        page = tab.open("/alerts/1")
        page.get_by_role("link", name="Silence alert").click()
        expect(page.get_by_label("Time zone")).to_have_value("America/New_York")
        preview = page.locator("#preview")
        expect(preview).to_contain_text("1 open alert would be silenced now")
        page.locator("summary", has_text="Severities").click()
        page.get_by_label("warning").check()
        expect(preview).to_contain_text("It would be on")
        expect(preview).not_to_contain_text("would be silenced now")
        page.get_by_label("warning").uncheck()
        expect(preview).to_contain_text("1 open alert would be silenced now")
        assert inaccessible(page) == []
        page.get_by_role("button", name="Silence", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("watch-threshold-coverage")
        tab.open("/alerts/1")
        expect(page.locator("#standing")).to_contain_text("Notifications are suppressed.")
        tab.open("/silences")
        page.locator("summary", has_text="End now").click()
        expect(page.get_by_text("It ends now, and alerts that still fire are notified within seconds.")).to_be_visible()
        page.get_by_role("button", name="End now").click()
        expect(page.get_by_text("No silences")).to_be_visible()
    _deliver(firing)
    assert len(receiver.seen) == 1, "its opening had been told before"


def test_a_hook_is_tried_on_a_real_receiver_and_shows_what_it_answered(
    chromium: Browser, address: str, firing: Site, receiver: Peer, answers: list[Reply]
) -> None:
    _deliver(firing)
    answers.append(reply(HOSTILE.encode(), status=400))
    with opened(chromium, address) as tab:
        page = tab.open("/hooks/ops")
        page.get_by_role("button", name="Send a test message").click()
        test = page.locator("#test")
        expect(test).to_contain_text("Not tried yet")
        _deliver(firing)
        expect(test).to_contain_text("HTTP 400, declined it")
        expect(test).to_contain_text("Next attempt")
        page.get_by_role("button", name="Send a test message").click()
        expect(test).to_contain_text("Not tried yet")
        _deliver(firing)
        expect(test).to_contain_text("The receiver took it.")
        assert inaccessible(page) == []
    assert b'"hook.test"' in receiver.seen[-1].body


def test_a_test_shows_among_the_deliveries_what_became_of_it_without_being_asked(
    chromium: Browser, address: str, firing: Site
) -> None:
    _deliver(firing)
    with opened(chromium, address) as tab:
        page = tab.open("/hooks/ops")
        assert page.locator("#sent").get_attribute("data-every") is None
        page.get_by_role("button", name="Send a test message").click()
        newest = page.locator("table.deliveries tbody tr").first
        pending = page.locator("#faring .facts div", has_text="Pending")
        expect(newest).to_contain_text("pending")
        expect(pending).to_contain_text("1")
        page.locator("#send-test").focus()
        _deliver(firing)
        expect(newest).to_contain_text("delivered")
        expect(newest).to_contain_text("delivered (204)")
        expect(pending).to_contain_text("0")
        expect(page.locator("#send-test")).to_be_focused()
        assert page.locator("#sent").get_attribute("data-every") is None
        assert inaccessible(page) == []


def test_what_is_dead_is_replayed_and_then_heard_of(
    chromium: Browser, address: str, firing: Site, receiver: Peer, answers: list[Reply]
) -> None:
    answers += [reply(status=400)] * 3
    for seconds in (60, 25 * 3600, 60):
        firing.world.deliver(send=send)
        firing.world.clock.advance(seconds)
    with opened(chromium, address) as tab:
        page = tab.open("/deliveries?state=dead")
        expect(page.get_by_role("table")).to_contain_text("gave up after 24 hours and 3 attempts")
        page.get_by_role("button", name="Replay").click()
        expect(page.get_by_text("No delivery like that.")).to_be_visible()
        _deliver(firing)
        tab.open("/deliveries")
        expect(page.get_by_role("table")).to_contain_text("delivered")
        expect(page.get_by_role("button", name="Replay")).to_have_count(0)
    assert len({seen.body for seen in receiver.seen}) == 1, "the same news on every attempt"
    assert len(receiver.seen) == 4


def test_a_list_of_alerts_follows_what_happens(chromium: Browser, address: str, firing: Site) -> None:
    with opened(chromium, address) as tab:
        page = tab.open("/alerts?state=firing")
        expect(page.locator("#found article")).to_have_count(1)
        firing.world.probe.all_answer()
        firing.world.run()
        expect(page.get_by_text("No alert like that.")).to_be_visible()
        expect(page.locator("#tab-open .count")).to_have_text("0")


def test_alerts_are_filtered_as_soon_as_a_choice_is_made(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        page = tab.open("/alerts")
        page.get_by_label("Severity").select_option("warning")
        expect(page.get_by_text("No alert like that.")).to_be_visible()
        page.wait_for_url("**/alerts?*severity=warning*")
        page.get_by_label("Severity").select_option("critical")
        expect(page.locator("#found article")).to_have_count(1)


def test_the_filter_of_alerts_and_the_strip_of_runs_fit_a_desktop(
    chromium: Browser, address: str, firing: Site
) -> None:
    for _ in range(30):
        firing.world.run()
    with opened(chromium, address) as tab:
        page = tab.open("/alerts")
        right_edges = "all => all.map(one => one.getBoundingClientRect().right)"
        (edge,) = page.locator("#found").evaluate_all(right_edges)
        assert max(page.locator("#filters *").evaluate_all(right_edges)) <= edge + 1
        page = tab.open("/")
        widths = page.locator(".history rect").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
        assert len(widths) == 20
        assert min(widths) > 5
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        (edge,) = page.locator("#found").evaluate_all(right_edges)
        assert max(page.locator("table.checks td").evaluate_all(right_edges)) <= edge + 1


def test_a_hook_made_in_another_tab_can_be_chosen_in_a_form_that_keeps_what_was_typed(
    chromium: Browser, address: str
) -> None:
    with opened(chromium, address) as tab:
        page = tab.open("/new-check")
        page.get_by_label("Name").fill("typed")
        ticks = page.locator("#hooks")
        ticks.get_by_label("ops").uncheck()
        with page.expect_popup() as popup:
            page.get_by_role("link", name="Add another hook").click()
        popup.value.request.put(
            f"{address}/v1/hooks/night", data={"kind": "webhook", "url": "https://ops.example.com/"}
        )
        popup.value.close()
        page.evaluate("dispatchEvent(new Event('focus'))")
        expect(ticks.get_by_label("night")).to_be_checked()
        expect(ticks.get_by_label("ops")).not_to_be_checked()
        expect(page.get_by_label("Name")).to_have_value("typed")
        expect(page.get_by_label("Suite", exact=True)).to_have_value("suite")
