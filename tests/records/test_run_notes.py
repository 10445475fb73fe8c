"""Notes that people write on runs: over REST and on pages, shown wherever the run is, deleted with it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.base.db.engine import Store
from app.records.service import run_views
from app.records.store import expired
from tests.support.api_service import Api, api
from tests.support.pages_service import HOSTILE, Site, csrf, site
from tests.support.world import CHECK, World, canary, page


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        opened.docs()
        yield opened


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    found = site(sqlite_store)
    found.world.apply(page([canary("ant"), canary("bee")], rules=[]))
    found.world.run()
    found.world.run()
    return found


def test_a_note_is_written_shown_replaced_and_deleted_over_rest(service: Api) -> None:
    run = service.run()["id"]
    assert service.get(f"/v1/runs/{run}")["note"] is None
    first = service.client.put(f"/v1/runs/{run}/note", json={"text": " index rebuilt "})
    assert (first.status_code, first.json()["text"]) == (200, "index rebuilt")
    assert set(first.json()) == {"text", "by", "at"}
    assert datetime.now(UTC) - datetime.fromisoformat(first.json()["at"]) < timedelta(minutes=1)
    later = service.client.put(f"/v1/runs/{run}/note", json={"text": "with new embeddings"}).json()
    shown = [
        service.get(f"/v1/runs/{run}"),
        service.get("/v1/checks/docs/health"),
        service.get("/v1/checks/docs/runs")["items"][0],
    ]
    assert [one["note"] for one in shown] == [later] * 3
    for _ in range(2):
        assert service.client.delete(f"/v1/runs/{run}/note").status_code == 204
        assert service.get(f"/v1/runs/{run}")["note"] is None


def test_a_note_that_cannot_be_is_a_problem(service: Api) -> None:
    run = service.run()["id"]
    for body in ({}, {"text": ""}, {"text": "  "}, {"text": "x" * 501}, {"text": "x", "by": "somebody else"}):
        assert service.client.put(f"/v1/runs/{run}/note", json=body).status_code == 422, body
    for path in ("/v1/runs/77/note", "/v1/runs/x/note"):
        assert service.client.put(path, json={"text": "x"}).status_code == 404
        assert service.client.delete(path).status_code == 404


def test_a_note_of_the_page_has_the_name_of_its_writer_and_stands_wherever_the_run_does(pages: Site) -> None:
    client = pages.signed_in(pages.key())
    sent = {"csrf": csrf(client), "text": f"rebuilt {HOSTILE}"}
    answer = client.post("/runs/2/note", data=sent)
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/2#note")
    note = run_views.run(pages.world.store, "2")["note"]
    assert note is not None
    assert (note["text"], note["by"]) == (sent["text"], "somebody")
    for path in ("/runs/2", f"/checks/{CHECK}", "/compare?a=run:1&b=run:2", "/compare?a=run:2&b=run:1"):
        shown = client.get(path).text
        assert shown.count("<q") >= 1, path
        assert "rebuilt &lt;/script&gt;" in shown, path
    assert "rebuilt &lt;" not in client.get("/runs/1").text
    client.post("/runs/2/note", data={**sent, "text": " "})
    assert run_views.run(pages.world.store, "2")["note"] is None


def test_a_note_that_is_too_long_is_refused(pages: Site) -> None:
    client = pages.client()
    answer = client.post("/runs/2/note", data={"csrf": csrf(client), "text": "x" * 501})
    assert answer.status_code == 422
    assert run_views.run(pages.world.store, "2")["note"] is None


def test_a_note_is_kept_for_each_run_on_both_databases(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")], rules=[]))
    one, two = world.run(), world.run()
    for run, text in ((one, "first"), (two, "second"), (one, "third")):
        run_views.write_note(store, str(run.id), text, by="Ada", now=world.clock())
    found = run_views.read_notes(store, [str(one.id), str(two.id), "x"])
    assert {run: note["text"] for run, note in found.items()} == {str(one.id): "third", str(two.id): "second"}
    with store.write() as connection:
        expired.drop_runs(connection, [one.id])
    assert list(run_views.read_notes(store, [str(one.id), str(two.id)])) == [str(two.id)]
