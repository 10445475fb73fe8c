"""Pages and routes of facts of the index: the table of a run, the charts of a check, and what the API answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.base.db.engine import Store
from app.base.values import Outcome
from app.index_facts.domain import FactValueView, IndexRunView
from app.index_facts.pages import change_in, draw_fact, fact_text
from tests.index_facts.test_reading import world_with
from tests.support.api_service import RETRIEVER, Api, api
from tests.support.fakes import failed
from tests.support.pages_service import site


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        opened.docs()
        yield opened


def with_facts(service: Api) -> None:
    """Have the retriever tell facts, and two runs read them."""
    facts = {"documents": {"url": "/stats", "path": "count"}, "free_space": {"url": "/stats", "path": "free"}}
    service.put("/v1/retrievers/search", {**RETRIEVER, "facts": facts})
    service.run()
    service.run()


def test_a_run_and_a_check_show_what_the_store_tells(service: Api) -> None:
    with_facts(service)
    runs = service.get("/v1/checks/docs/facts")["items"]
    assert [one["facts"]["documents"]["value"] for one in runs] == [1_000, 1_000]
    newest = service.get(f"/v1/runs/{runs[0]['run']}/facts")["items"]
    assert [(one["fact"], one["value"], one["before"], one["change"]) for one in newest] == [
        ("documents", 1_000, 1_000, 0),
        ("free_space", 1_000, 1_000, 0),
    ]
    for path in (f"/runs/{runs[0]['run']}", "/checks/docs/facts"):
        page = service.client.get(path).text
        assert "1,000" in page
        assert "Free space" in page
    check = service.client.get("/checks/docs").text
    assert 'href="/checks/docs/facts"' in check
    assert "documents 1,000, free space 1,000" in check
    charts = service.client.get("/checks/docs/facts").text
    assert 'aria-label="documents in 2 runs: 1,000 at first, 1,000 in the newest"' in charts


def test_a_check_without_facts_says_how_to_read_some(service: Api) -> None:
    service.run()
    assert "No facts of the index yet" in service.client.get("/checks/docs/facts").text
    assert service.get("/v1/checks/docs/facts") == {"items": [], "next": None}
    assert 'href="/checks/docs/facts"' not in service.client.get("/checks/docs").text
    assert service.client.get("/v1/runs/999/facts").status_code == 404
    assert service.client.get("/checks/none/facts").status_code == 404


def _run(run: int, value: float | None, low: float | None = None, high: float | None = None) -> IndexRunView:
    reason = None if value is not None else "HTTP 500"
    fact: FactValueView = {"value": value, "reason": reason, "low": low, "high": high}
    return {"run": str(run), "at": f"2026-11-30T12:0{run}:00Z", "facts": {"exact_recall": fact}}


def test_a_chart_has_the_interval_and_leaves_out_what_is_unknown() -> None:
    chart = draw_fact("exact_recall", [_run(3, 0.9, 0.8, 1.0), _run(2, None), _run(1, 0.5, 0.4, 0.6)])
    assert chart is not None
    assert chart.points == "0.0,116.7 900.0,23.3"
    assert chart.band == "0.0,93.3 900.0,0.0 900.0,46.7 0.0,140.0"
    assert (chart.top, chart.bottom) == ("100.0 %", "40.0 %")
    assert draw_fact("exact_recall", [_run(1, 0.5)]) is None
    assert draw_fact("documents", [_run(2, 0.5), _run(1, 0.5)]) is None


def test_numbers_are_written_as_people_read_them() -> None:
    assert fact_text(88_000, "documents") == "88,000"
    assert fact_text(0.8126, "exact_recall") == "81.3 %"
    assert fact_text(None, "documents") == "\u2013"
    for change, text in ((-0.12, "\u221212.0 %"), (0.025, "+2.5 %"), (0.0, "none"), (None, "\u2013")):
        assert change_in({"change": change}) == text  # type: ignore[typeddict-item] # of the rest nothing is read


def test_what_fell_is_said_on_every_page_that_shows_it(sqlite_store: Store) -> None:
    world = world_with(sqlite_store)
    for _ in range(3):
        world.run()
    world.probe.facts = {"documents": 88_000.0, "segments": 7.0, "free": failed(Outcome.TIMEOUT)}
    run = world.run()
    clause = "The index has 12 % fewer documents than in run 3 (88,000 of 100,000)"
    for path in ("/checks/watch", f"/runs/{run.id}", "/checks/watch/facts"):
        shown = site(sqlite_store).page(path)
        assert clause in shown.text, path
        (row,) = [one.text for one in shown.all("tr") if one.text.startswith("Documents")]
        assert ("fell" in row, "88,000" in row, "100,000" in row, "\u221212.0 %" in row) == (True,) * 4
        (row,) = [one.text for one in shown.all("tr") if one.text.startswith("Free")]
        assert "unknown the retriever" in row
