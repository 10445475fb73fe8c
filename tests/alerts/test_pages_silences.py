"""The pages of silences: which are on and what they keep back, made in a form that says first what it would do."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from app.alerts.silences.pages import matchers_text
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.catalog.service import references
from tests.support.fakes import answered, hits
from tests.support.html_pages import Page
from tests.support.pages_service import HOSTILE, Site, csrf, page, site
from tests.support.world import COVERAGE, canary
from tests.support.world import page as canary_page

AT_ONCE = {"open": {"bad": 1, "of": 1}}
SOFT = {**COVERAGE, **AT_ONCE, "key": "soft", "measure": "health_score", "critical": {"below": 0.2}}
ONCE = {"slug": "rebuild", "checks": "watch", "when": "once", "for": "2h", "timezone": "UTC"}
NIGHT = {
    "slug": "nights",
    "severities": "warning",
    "when": "window",
    "cron": "0 2 * * *",
    "duration": "4h",
    "timezone": "Europe/Berlin",
}


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over two checks, one of which fires."""
    return _fired(sqlite_store)


@pytest.fixture(scope="module")
def read(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to those that only look, or are refused."""
    return _fired(shared_stores())


def _fired(store: Store) -> Site:
    made = site(store)
    quiet = canary_page([canary("cat")], slug="quiet", suite="other", rules=[COVERAGE])
    made.world.apply(canary_page([canary("ant"), canary("bee")], rules=[{**COVERAGE, **AT_ONCE}, SOFT]), quiet)
    made.world.run()
    made.world.probe.answers |= {query: answered(hits("noise")) for query in ("ant", "bee")}
    made.world.run()
    return made


def _make(pages: Site, **fields: Any) -> Any:
    return pages.client().post("/new-silence", data={**ONCE, **fields})


def _body(pages: Site, slug: str = "rebuild") -> dict[str, Any]:
    return dict(references.load_definition(pages.world.store, "silence", slug).body)


def _section(shown: Page, heading: str) -> str:
    (found,) = [element.text for element in shown.all("section") if element.get("aria-labelledby") == heading]
    return found


def _rows(shown: Page) -> dict[str, str]:
    rows = [row.text for row in shown.all("tr") if row.text and not row.text.startswith("Silence ")]
    return {row.split()[0]: row for row in rows}


# --- what there is ---


def test_without_silences_the_page_says_what_they_are_for(read: Site) -> None:
    shown = read.page("/silences")
    assert "No silences" in shown.text
    assert "what still fires at its end is notified then" in shown.text


def test_silences_are_shown_by_whether_they_are_on_coming_or_over(pages: Site) -> None:
    assert _make(pages).status_code == 303
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert _make(pages, slug="later", starts=f"{tomorrow:%Y-%m-%dT%H:%M}").status_code == 303
    assert _make(pages, **{**NIGHT, "cron": f"{(tomorrow - timedelta(hours=9)):%M %H} * * *"}).status_code == 303
    over = {"slug": "past", "all": True, "ends": "2026-01-01T00:00:00Z"}
    pages.world.apply({**canary_page([canary("ant")]), "silences": [over]})
    shown = pages.page("/silences")
    assert [heading.text for heading in shown.all("h2")] == ["On now", "Upcoming", "Recurring windows", "Over"]
    rows = _rows(shown)
    assert rows["rebuild"].endswith("End now silence rebuild")
    assert "check watch" in rows["rebuild"]
    assert "severity warning" in rows["nights"]
    assert "each time for 4h" in rows["nights"]
    assert "every alert" in rows["past"]
    assert "in canaries.yaml:1" in rows["past"]
    assert "End" not in rows["past"]


def test_a_silence_counts_the_alerts_it_holds_back_and_names_them(pages: Site) -> None:
    _make(pages)
    assert len(pages.world.alerts()) == 1
    assert " 1 End now" in _rows(pages.page("/silences"))["rebuild"]
    shown = pages.page("/silences/rebuild")
    assert "1 open alert is silenced now" in _section(shown, "concerns")
    assert shown.all("a", href="/alerts/1")
    assert "watch all its rules" in _section(shown, "concerns")
    held = pages.page("/alerts/1")
    assert "Silence rebuild is on until" in _section(held, "next")
    assert "suppressed" in _section(held, "next")


def test_the_end_of_a_silence_is_told_once_and_what_ending_it_does_beside_the_button(pages: Site) -> None:
    _make(pages)
    shown = pages.page("/silences/rebuild")
    (ends,) = [one for one in shown.all("time") if one.get("data-when") == "since"]
    assert shown.text.count(ends.text) == 1
    assert not [one for one in shown.all("section") if one.get("aria-labelledby") == "times"]
    (folded,) = shown.all("details", class_="archive")
    effect = "It ends now, and alerts that still fire are notified within seconds."
    assert effect in folded.text
    assert shown.text.lower().count("alerts that still fire") == 1


def test_the_form_says_that_ticks_of_one_kind_are_alternatives(pages: Site) -> None:
    told = "An alert is silenced where its check, suite, retriever, severity and rule are among those chosen."
    assert f"{told} Nothing chosen stands for any." in pages.page("/new-silence").text


def test_a_silence_of_a_file_is_read_only_and_names_the_file(pages: Site) -> None:
    ends = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    silence = {"slug": "filed", "checks": ["watch"], "ends": ends}
    pages.world.apply({**canary_page([canary("ant")]), "silences": [silence]})
    shown = pages.page("/silences/filed")
    assert shown.one("a", href="/silences/filed/edit").text == "Edit in canaries.yaml:1"
    assert not shown.all("form", action="/silences/filed/end")
    edited = pages.page("/silences/filed/edit")
    assert "Defined in canaries.yaml:1: change it there and apply." in edited.text
    assert "slug: filed" in edited.one("pre", id="yaml").text
    assert not edited.all("form", id="silence")
    assert pages.client().post("/silences/filed/end").status_code == 409
    changed = {**ONCE, "revision": "1"}
    assert "managed by canaries.yaml" in page(pages.client().post("/silences/filed/edit", data=changed), 409).text


def test_who_it_is_about_is_told_in_words() -> None:
    nobody: dict[str, Any] = dict.fromkeys(("checks", "suites", "retrievers", "rules", "severities"), ())
    assert matchers_text({**nobody, "all": True}) == "every alert"
    assert matchers_text({**nobody, "all": False, "checks": ("a", "b"), "severities": ("warning",)}) == (
        "checks a, b; severity warning"
    )
    assert matchers_text({**nobody, "all": False, "rules": ("slow",), "suites": ("s",)}) == "suite s; rule slow"


# --- the form ---


def test_a_preview_names_the_checks_and_rules_or_says_that_nothing_would_be_silenced(read: Site) -> None:
    query = urlencode({**ONCE, "checks": "watch", "rules": "soft", "preview": "1"})
    told = _section(read.page(f"/new-silence?{query}"), "preview-title")
    assert "1 of 2 checks: watch soft" in told
    assert "silenced now" not in told, "no alert of that rule is open"
    everything = urlencode({"slug": "x", "all": "on", "when": "once", "for": "1h", "preview": "1"})
    told = _section(read.page(f"/new-silence?{everything}"), "preview-title")
    assert "2 of 2 checks" in told
    assert "1 open alert would be silenced now: threshold-coverage of watch" in told
    assert references.load_definitions(read.world.store, "silence") == []

    query = urlencode({**ONCE, "checks": "quiet", "rules": "soft", "preview": "1"})
    assert "it would silence nothing" in _section(read.page(f"/new-silence?{query}"), "preview-title")
    query = urlencode({**ONCE, "checks": "nothing", "preview": "1"})
    assert "There is no check 'nothing'." in _section(read.page(f"/new-silence?{query}"), "preview-title")


def test_a_preview_shows_the_next_windows_in_utc_with_summer_time_followed(read: Site) -> None:
    query = urlencode({**NIGHT, "cron": "0 2 1 1,7 *", "preview": "1"})
    shown = read.page(f"/new-silence?{query}")
    moments = [one.get("datetime")[5:16] for one in shown.all("time")]
    assert {"01-01T01:00", "01-01T05:00", "07-01T00:00", "07-01T04:00"} == set(moments)
    assert len(moments) == 10


def test_what_cannot_be_told_yet_is_said_in_the_preview_without_a_failure(read: Site) -> None:
    query = urlencode({"slug": "x", "when": "window", "cron": "every day", "duration": "4h", "preview": "1"})
    shown = read.page(f"/new-silence?{query}")
    assert "Cron expression: " in " ".join(_section(shown, "preview-title").split())
    assert shown.one("span", id="wrong-cron").text
    assert not shown.all("div", role="alert")
    assert "Tick a scope" in read.page("/new-silence").text


def test_a_silence_for_a_while_begins_at_once_and_ends_by_itself(pages: Site) -> None:
    asked = datetime.now(UTC)
    assert _make(pages, reason="index rebuild").headers["location"] == "/silences/rebuild"
    body = _body(pages)
    assert (body["checks"], body["starts"], body["reason"]) == (["watch"], None, "index rebuild")
    lasts = datetime.fromisoformat(body["ends"]) - asked
    assert timedelta(hours=2) <= lasts <= timedelta(hours=2, minutes=2)


def test_times_are_those_of_the_zone_they_are_written_in(pages: Site) -> None:
    times = {"starts": "2030-07-01T12:00", "ends": "2030-07-01T14:30", "timezone": "Asia/Kolkata", "for": ""}
    _make(pages, **times)
    body = _body(pages)
    assert (body["starts"], body["ends"]) == ("2030-07-01T06:30:00Z", "2030-07-01T09:00:00Z")
    form = pages.page("/silences/rebuild/edit")
    assert form.one("input", name="ends").get("value") == "2030-07-01T09:00"
    assert form.one("input", name="timezone").get("value") == "UTC"


def test_a_window_comes_back_with_its_cron(pages: Site) -> None:
    assert _make(pages, **NIGHT).status_code == 303
    body = _body(pages, "nights")
    assert "every day at 02:00 (Europe/Berlin)" in pages.page("/silences").text
    assert body["window"] == {"cron": "0 2 * * *", "timezone": "Europe/Berlin", "duration": "4h"}
    assert (body["starts"], body["ends"]) == (None, None)
    times = _section(pages.page("/silences/nights"), "times")
    assert times.count("until") == 5


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"slug": "Not so"}, "slug", "lower-case letters"),
    ({"for": "", "ends": ""}, "ends", "needs a length or an end"),
    ({"ends": "2020-01-01T10:00"}, "ends", "is over already"),
    ({"ends": "soon"}, "ends", "is not a time"),
    ({"starts": "2030-01-01T10:00", "ends": "2029-01-01T10:00"}, "ends", "must be after 'starts'"),
    ({"ends": "2030-03-31T02:30", "timezone": "Europe/Berlin"}, "ends", "is skipped by the clocks of Europe/Berlin"),
    ({"timezone": "Mars/Olympus"}, "timezone", "There is no time zone"),
    ({"when": "window", "cron": "0 2 * *", "duration": "4h"}, "cron", "cron"),
    ({"when": "window", "cron": "", "duration": "4h"}, "cron", "is required"),
    ({"when": "window", "cron": "0 2 * * *", "duration": "4 moons"}, "duration", "duration"),
    ({"checks": "nothing"}, "checks", "there is no check 'nothing'"),
    ({"rules": "not a rule!"}, "rules", "letters"),
    ({"all": "on"}, "all", "contradicts the lists"),
]


def test_what_is_wrong_is_said_beside_the_field_and_nothing_saved(read: Site) -> None:
    found: dict[str, str] = {}
    for fields, field, message in WRONG:
        shown = page(_make(read, **fields), 422)
        told, summary = shown.one("span", id=f"wrong-{field}").text, shown.one("div", role="alert").text
        if message not in told or "Nothing was saved" not in summary:
            found[str(fields)] = f"{told}; {summary}"
    assert found == {}
    shown = page(_make(read, checks=()), 422)
    assert shown.one("span", id="wrong-all").text == "tick what it is about above, or this"
    assert references.load_definitions(read.world.store, "silence") == []


def test_what_was_typed_is_kept_when_it_is_refused(read: Site) -> None:
    shown = page(_make(read, timezone="Mars/Olympus", reason="why not", rules="soft", severities=["warning"]), 422)
    assert shown.one("input", name="reason").get("value") == "why not"
    assert shown.one("textarea", name="rules").text == "soft"
    ticked = [one.get("value") for one in shown.all("input", type="checkbox") if "checked" in one.attributes]
    assert ticked == ["watch", "warning"]


def test_a_silence_is_changed_and_one_changed_meanwhile_is_not_overwritten(pages: Site) -> None:
    _make(pages)
    revision = pages.page("/silences/rebuild/edit").one("input", name="revision").get("value")
    change = {**ONCE, "checks": "quiet", "revision": revision}
    assert pages.client().post("/silences/rebuild/edit", data=change).headers["location"] == "/silences/rebuild"
    assert _body(pages)["checks"] == ["quiet"]
    again = page(pages.client().post("/silences/rebuild/edit", data={**change, "checks": "watch"}), 409)
    assert "changed by somebody else" in again.text.lower()
    assert _body(pages)["checks"] == ["quiet"]


def test_a_name_that_is_taken_is_refused(pages: Site) -> None:
    _make(pages)
    shown = page(_make(pages, checks="quiet"), 409)
    assert (
        "there is a silence 'rebuild' already; choose another name, such as 'rebuild-2',"
        in shown.one("span", id="wrong-slug").text
    )
    assert _body(pages)["checks"] == ["watch"]


def test_a_silence_that_is_ended_tells_what_it_kept_back(pages: Site) -> None:
    world = pages.world
    world.deliver_all()
    _make(pages, rules="soft")
    world.clock.now = datetime.now(UTC) + timedelta(seconds=1)
    world.probe.answers |= {query: answered(hits("noise", scores=[0.1])) for query in ("ant", "bee")}
    world.run()
    (held,) = [alert for alert in world.alerts() if alert["rule"] == "soft"]
    assert held["transitions"][-1]["suppressed"] == "silenced"
    assert pages.client().post("/silences/rebuild/end").headers["location"] == "/silences"
    assert world.tick() == 1
    (pending,) = world.deliveries(state="pending")
    (entered,) = [alert for alert in world.alerts() if alert["rule"] == "soft"]
    assert pending["incident_id"] == entered["incident_id"], "what was held back entered the incident"
    assert "sent at its end" in _section(pages.page(f"/alerts/{held['id']}"), "history")


# --- who may ---


def test_a_key_that_may_only_read_silences_nothing(pages: Site) -> None:
    _make(pages)
    client = pages.signed_in(pages.key(Scope.READ))
    shown = page(client.get("/silences"))
    buttons = {one.text: one for one in shown.all("button") if one.text not in {"Menu", "Close", "Sign out"}}
    assert buttons
    assert all("disabled" in one.attributes and one.get("title") for one in buttons.values())
    form = page(client.get("/new-silence"))
    assert "disabled" in form.all("fieldset")[0].attributes
    token = csrf(client)
    for path in ("/new-silence", "/silences/rebuild/edit", "/silences/rebuild/end"):
        assert client.post(path, data={**ONCE, "csrf": token}).status_code == 403, path
    assert references.load_definition(pages.world.store, "silence", "rebuild").archived_at is None


def test_what_people_wrote_is_only_text(pages: Site) -> None:
    _make(pages, reason=HOSTILE)
    query = urlencode({**ONCE, "slug": HOSTILE, "checks": HOSTILE, "reason": HOSTILE, "preview": "1"})
    for path in ("/silences", "/silences/rebuild", "/silences/rebuild/edit", f"/new-silence?{query}"):
        shown = pages.page(path)
        assert "onerror=" in shown.text or "onerror=" in str([one.attributes for one in shown.elements]), path
        assert not shown.all("img", src="x"), path
        assert all(script.get("src").startswith("/static/") for script in shown.all("script")), path


def test_a_silence_there_is_not_is_not_found(read: Site) -> None:
    paths = ("/silences/nothing", "/silences/nothing/edit")
    assert {read.client().get(path).status_code for path in paths} == {404}
