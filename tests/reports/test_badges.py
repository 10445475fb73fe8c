"""Badges: what they say of a check, whom they say it to, and that nothing in them is more than text."""

from xml.etree import ElementTree as ET

import pytest

from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.values import Outcome
from tests.support.api_service import bearer
from tests.support.fakes import answered, failed, hits
from tests.support.pages_service import HOSTILE, Site, site
from tests.support.world import canary, page

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a check that has not run yet, with an index that may be asked once a day."""
    made = site(sqlite_store)
    made.world.apply(page([canary("ant"), canary("bee")], schedule={"every": "1d"}))
    return made


def _drawn(pages: Site, query: str = "") -> ET.Element:
    answer = pages.client().get(f"/badge/watch.svg{query}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/svg+xml; charset=utf-8"
    return ET.fromstring(answer.content)  # noqa: S314 - our own answer


def _said(pages: Site, query: str = "") -> list[str | None]:
    return [text.text for text in _drawn(pages, query).iter(f"{SVG}text")]


def test_before_the_first_run_a_badge_says_no_runs(pages: Site) -> None:
    assert _said(pages) == ["watch", "no runs"]
    assert _said(pages, "?measure=coverage") == ["watch coverage", "no runs"]


def test_a_badge_says_the_newest_verdict_in_words_and_to_screen_readers(pages: Site) -> None:
    pages.world.run()
    assert _said(pages) == ["watch", "healthy"]
    pages.world.probe.all_miss()
    pages.world.run()
    drawn = _drawn(pages)
    assert drawn.get("role") == "img"
    title = drawn.find(f"{SVG}title")
    assert title is not None
    assert title.text == "watch: degraded"
    assert drawn.get("aria-labelledby") == title.get("id")


def test_a_badge_says_a_measure_and_what_is_not_measured_is_no_number(pages: Site) -> None:
    pages.world.probe.answers["bee"] = answered(hits("noise"))
    pages.world.run()
    assert _said(pages, "?measure=coverage") == ["watch coverage", "0.500"]
    assert _said(pages, "?measure=R@5") == ["watch R@5", "0.500"]
    assert _said(pages, "?measure=R@20") == ["watch R@20", "\N{EN DASH}"]
    pages.world.probe.otherwise = lambda _: failed(Outcome.TIMEOUT)
    pages.world.probe.answers.clear()
    pages.world.run()
    assert _said(pages) == ["watch", "unknown"]
    assert _said(pages, "?measure=coverage") == ["watch coverage", "unknown"]


def test_a_check_that_is_overdue_is_not_said_to_be_healthy(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(page([canary("ant")], schedule={"every": "5m"}))
    pages.world.run()
    assert _said(pages) == ["watch", "overdue"]
    assert _said(pages, "?measure=coverage") == ["watch coverage", "overdue"]


def test_an_archived_check_says_so(pages: Site) -> None:
    pages.world.run()
    pages.world.apply()
    assert _said(pages) == ["watch", "archived"]


def test_a_label_is_text_whatever_it_holds(pages: Site) -> None:
    answer = pages.client().get("/badge/watch.svg", params={"label": HOSTILE[:64]})
    assert "<script" not in answer.text
    assert _said(pages, "?label=docs%20%26%20more%EF%BF%BE") == ["docs & more", "no runs"]
    assert pages.client().get("/badge/watch.svg", params={"label": "x" * 65}).status_code == 422


@pytest.mark.parametrize(
    ("path", "status"), [("/badge/other.svg", 404), ("/badge/watch.png", 404), ("/badge/watch.svg?measure=love", 422)]
)
def test_what_there_is_no_badge_of_is_a_problem(pages: Site, path: str, status: int) -> None:
    pages.world.run()
    answer = pages.client().get(path, headers={"accept": "image/*"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_badge_is_asked_for_anew_each_time_and_sent_again_only_when_it_changed(pages: Site) -> None:
    client = pages.client()
    first = client.get("/badge/watch.svg")
    assert first.headers["cache-control"] == "private, no-cache"
    again = client.get("/badge/watch.svg", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    pages.world.run()
    changed = client.get("/badge/watch.svg", headers={"if-none-match": first.headers["etag"]})
    assert changed.status_code == 200
    assert changed.headers["etag"] != first.headers["etag"]


def test_a_badge_needs_a_key_as_everything_does(pages: Site) -> None:
    key = pages.key(Scope.READ)
    client = pages.client()
    assert client.get("/badge/watch.svg", headers={"accept": "image/*"}).status_code == 401
    assert client.get("/badge/watch.svg", headers=bearer(key)).status_code == 200
    assert pages.signed_in(key).get("/badge/watch.svg").status_code == 200


def test_the_badge_of_a_check_that_is_switched_off_says_so_and_no_verdict(pages: Site) -> None:
    pages.world.run()
    pages.world.apply(page([canary("ant"), canary("bee")], schedule={"every": "1d"}, enabled=False))
    assert _said(pages) == ["watch", "disabled"]
