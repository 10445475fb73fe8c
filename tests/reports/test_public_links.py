"""Public links of checks: what they show and what they never do, who makes them, and how they end."""

import re
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.catalog.tables import public_links
from app.reports.service.public_links import SHOWN_RUNS, make
from tests.support.api_service import bearer
from tests.support.fakes import answered, hits
from tests.support.pages_service import Site, page, site
from tests.support.world import COVERAGE, canary
from tests.support.world import page as canary_page

pytestmark = pytest.mark.both

LINK = re.compile(r"https?://[^\s\"<]*/public/([A-Za-z0-9_-]{43})")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MISSED = {"ant": answered(hits("nothing"))}
SECRETS = ("Who pays", "doc-ant", "ant", "search", "suite", "threshold", "coverage", "hooks.test")


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a check of which two runs were healthy and two, since then, are not."""
    made = site(sqlite_store)
    made.world.apply(canary_page([canary("ant"), canary("bee")], rules=[COVERAGE], schedule={"every": "1d"}))
    for answers in ({}, {}, MISSED, MISSED):
        made.world.probe.answers = dict(answers)
        made.world.run()
    return made


def _made(pages: Site, slug: str = "watch") -> str:
    """Make a public link, return its token."""
    shown = page(pages.client().post(f"/checks/{slug}/public-link"))
    found = LINK.search(shown.one("pre", id="link-page").text)
    assert found is not None
    assert shown.one("pre", id="link-markdown").text == f"[![{slug}]({found[0]}.svg)]({found[0]})"
    return found[1]


def test_a_public_page_shows_name_state_and_runs_and_nothing_else(pages: Site) -> None:
    token = _made(pages)
    answer = pages.client().get(f"/public/{token}")
    shown = page(answer)
    assert shown.one("h1").text == "watch"
    assert [one.get("class") for one in shown.all("rect")] == ["healthy", "healthy", "degraded", "degraded"]
    assert re.search(r"Runs are degraded since \S+ \S+ UTC\. Last run \S+ \S+ UTC\.", shown.text)
    assert shown.one("svg", class_="run-bars").get("aria-label") == "2 of the last 4 runs healthy"
    assert not shown.all("form")
    assert not shown.all("a")
    text = answer.text.replace('rel="stylesheet"', "")
    assert [one for one in SECRETS if re.search(rf"\b{re.escape(one)}\b", text)] == []
    assert answer.headers["x-robots-tag"] == "noindex, nofollow, noarchive"
    assert shown.one("meta", name="robots").get("content") == "noindex, nofollow, noarchive"
    assert answer.headers["referrer-policy"] == "no-referrer"
    badge = pages.client().get(f"/public/{token}.svg")
    assert badge.headers["content-type"] == "image/svg+xml; charset=utf-8"
    drawn = ET.fromstring(badge.content)  # noqa: S314 - our own answer
    assert [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")] == ["watch", "degraded"]


def test_before_the_first_run_it_says_so_and_of_many_runs_it_shows_the_newest(sqlite_store: Store) -> None:
    made = site(sqlite_store)
    made.world.apply(canary_page([canary("ant")]))
    assert "No run has ended yet." in made.page(f"/public/{_made(made)}").text
    for _ in range(SHOWN_RUNS + 3):
        made.world.run()
    made.app().state.public_pages.drawn.clear()
    shown = made.page(f"/public/{_made(made)}")
    assert len(shown.all("rect")) == SHOWN_RUNS
    assert "All runs shown are healthy, since" in shown.text


def test_it_is_cached_and_compared_by_its_etag(pages: Site) -> None:
    token = _made(pages)
    for path in (f"/public/{token}", f"/public/{token}.svg"):
        first = pages.client().get(path)
        assert first.headers["cache-control"] == "public, max-age=30"
        again = pages.client().get(path, headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert pages.client().get(path, headers={"if-none-match": '"other"'}).status_code == 200
    pages.world.run()  # drawn anew only after a while, however often it is asked for
    assert len(pages.page(f"/public/{token}").all("rect")) == 4
    pages.app().state.public_pages.drawn.clear()
    assert len(pages.page(f"/public/{token}").all("rect")) == 5


def test_only_its_hash_is_stored_and_it_cannot_be_guessed(pages: Site) -> None:
    tokens = {_made(pages) for _ in range(3)}
    assert len(tokens) == 3
    with pages.world.store.read() as connection:
        (row,) = connection.execute(sa.select(public_links)).all()
    assert len(row.digest) == 32
    assert not any(token.encode() in bytes(row.digest) or token in row.created_by for token in tokens)
    again = pages.page("/checks/watch").text
    assert "In force, made by anyone on this machine" in again
    assert not LINK.search(pages.client().get("/checks/watch").text)


def test_a_link_ends_when_it_is_replaced_or_revoked_or_its_check_is_archived(pages: Site) -> None:
    client = pages.client()

    def answers(token: str) -> set[int]:
        return {client.get(f"/public/{token}{end}").status_code for end in ("", ".svg")}

    first = _made(pages)
    assert answers(first) == {200}
    second = _made(pages)
    assert (answers(first), answers(second)) == ({404}, {200})
    assert client.post("/checks/watch/public-link/revoke").headers["location"] == "/checks/watch#definition"
    assert answers(second) == {404}
    assert "None: this check is private" in pages.page("/checks/watch").text
    assert client.post("/checks/watch/public-link/revoke").status_code == 404

    document = {"suite": "suite", "retriever": "search", "schedule": {"every": "1h"}}
    assert client.put("/v1/checks/mine", json=document).status_code == 201
    third = _made(pages, "mine")
    assert client.delete("/v1/checks/mine").status_code == 204
    assert answers(third) == {404}
    assert client.post("/checks/mine/public-link").status_code == 409
    assert client.put("/v1/checks/mine", json=document).status_code in {200, 201}
    assert answers(third) == {404}, "nobody made it public again"


def test_by_rest_a_link_is_made_shown_without_its_address_and_revoked(pages: Site) -> None:
    client, address = pages.client(), "/v1/checks/watch/public-link"
    assert client.get(address).status_code == 404
    made = client.post(address)
    assert made.status_code == 200
    assert made.json()["badge"] == f"{made.json()['page']}.svg"
    found = LINK.fullmatch(made.json()["page"])
    assert found is not None
    assert client.get(f"/public/{found[1]}").status_code == 200
    shown = client.get(address).json()
    assert shown == {name: made.json()[name] for name in ("check", "created_by", "created_at")}
    assert client.delete(address).status_code == 204
    assert client.get(f"/public/{found[1]}").status_code == 404
    assert (client.delete(address).status_code, client.post("/v1/checks/none/public-link").status_code) == (404, 404)


def test_an_admin_key_alone_makes_and_revokes_a_link_and_nobody_needs_one_to_see_it(pages: Site) -> None:
    token = make(pages.world.store, "watch", by="ada", now=NOW)
    admin = pages.key()
    for scope in (Scope.READ, Scope.WRITE, Scope.ANNOTATE):
        for path in ("/checks/watch/public-link", "/checks/watch/public-link/revoke", "/v1/checks/watch/public-link"):
            assert pages.client(**bearer(pages.key(scope))).post(path).status_code == 403
    reader = page(pages.client(**bearer(pages.key(Scope.READ))).get("/checks/watch"))
    assert not [one for one in reader.all("form") if "public-link" in one.get("action")]
    assert "an admin key makes it" in reader.text
    for headers in (
        {},
        bearer("nonsense"),
        bearer(admin),
        {"cookie": "coalmine_session=x"},
        {"host": "elsewhere.test"},
    ):
        answer = pages.client().get(f"/public/{token}", headers=headers)
        assert answer.status_code == 200
        assert "Sign out" not in answer.text
    assert pages.client().get("/checks/watch").status_code == 303, "everything else still needs a key"
    assert pages.client().get("/badge/watch.svg").status_code == 303


@pytest.mark.parametrize("token", ["none", "x" * 43, "..%2fchecks", "a" * 2_000, "\N{SNOWMAN}", "%27+or+1=1"])
def test_what_is_no_link_leads_nowhere(pages: Site, token: str) -> None:
    answer = pages.client().get(f"/public/{token}")
    assert answer.status_code == 404
    assert "watch" not in answer.text


def test_links_that_are_none_are_answered_for_a_while_only_and_true_ones_always(pages: Site) -> None:
    token = _made(pages)
    found = [pages.client().get(f"/public/wrong-{number}").status_code for number in range(80)]
    assert set(found) == {404, 429}
    assert pages.client().get(f"/public/{token}").status_code == 200
