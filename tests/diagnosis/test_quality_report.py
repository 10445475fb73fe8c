"""The quality report of a check, from stored rows: what it holds, what it leaves out, and how it is shown."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from app.base.api.requests import Turns
from app.base.db.engine import Store
from app.base.errors import NotFoundError
from app.base.values import Outcome, replace
from app.cli import app
from app.diagnosis.api import REPORTS
from app.diagnosis.rendering import TITLES, quality_markdown
from app.diagnosis.service import quality as quality_report
from app.diagnosis.views import QualityReport
from app.retrievers.domain.retrievers import Embedder, EmbeddingResult
from tests.support.api_service import CANARIES, Api, api
from tests.support.embedders import vector
from tests.support.fakes import answered, failed, hits
from tests.support.filled_service import app_of
from tests.support.http_servers import peer, reply
from tests.support.world import CHECK, RETRIEVER, World, canary, page

DAY = 86_400
TEXTS = {
    "kept": "Deleted requests are kept for ninety days in the archive before an operator may remove them for good.",
    "keys": "To rotate a key, create a new one, deploy it, and then revoke the one before.",
    "lunch": "The cafeteria opens at eleven and closes when the last guest has finished lunch.",
}


def _begun(store: Store) -> World:
    made = World(store=store)
    canaries = [
        canary("kept", expected_chunks=[{"text": TEXTS["kept"]}]),
        canary("keys", query="rotate a key", expected_chunks=["keys"], category="procedural", tags=["security"]),
        canary("lost", query="vanished thing", expected_chunks=["gone"]),
        canary("none", query="who lives on mars", expected_chunks=[], category="negative"),
    ]
    made.apply(page(canaries))
    made.probe.answers = {
        "kept": answered(hits("a", "b", texts={"a": f"Hello. {TEXTS['kept'][:50]}", "b": TEXTS["kept"][50:]})),
        "rotate a key": answered(hits("keys", "lunch", texts=TEXTS)),
        "vanished thing": answered(hits("lunch", texts=TEXTS)),
        "who lives on mars": answered(hits("lunch", texts=TEXTS)),
    }
    return made


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give it on SQLite, for what does not depend on the database."""
    return _begun(sqlite_store)


@pytest.fixture
def anywhere(store: Store) -> World:
    """Give it on each kind of store."""
    return _begun(store)


def _report(world: World, **limits: int) -> QualityReport:
    return quality_report.report(world.store, CHECK, now=world.clock(), **limits)


def _sections(report: QualityReport) -> dict[str, Any]:
    return {section["name"]: section for section in report["sections"]}


def test_a_report_goes_through_the_whole_checklist(anywhere: World) -> None:
    run = anywhere.run()
    report = _report(anywhere)
    assert (report["check"], report["run"]) == (CHECK, str(run.id))
    assert report["canaries"] == {"total": 4, "measured": 4, "looked_at": 4}
    assert report["chunks"] == {"looked_at": 4}
    assert report["notes"] == []
    sections = _sections(report)
    assert list(sections) == list(TITLES)
    assert {name: section["verdict"] for name, section in sections.items()} == {
        "suite": "look_at_this",
        "chunk_quality": "look_at_this",
        "embedding_quality": "unknown",
        "recall": "look_at_this",
        "precision": "unknown",
        "vocabulary": "unknown",
        "chunk_boundaries": "look_at_this",
        "slow_drift": "unknown",
    }
    assert sections["recall"]["numbers"]["canaries"] == 3, "negative canaries expect nothing"
    assert sections["recall"]["numbers"]["not_found"] == pytest.approx(2 / 3, abs=1e-6)
    assert sections["recall"]["groups"]["procedural"]["found@1"] == 1
    assert sections["chunk_boundaries"]["numbers"]["split"] == 1
    assert sections["chunk_boundaries"]["examples"][0]["canary"] == "kept"
    assert sections["chunk_quality"]["numbers"]["starting_inside_a_sentence"] == 1
    json.dumps(report, allow_nan=False)


def test_a_report_is_the_same_when_it_is_asked_for_again(world: World) -> None:
    world.run()
    assert _report(world) == _report(world)


def test_a_report_looks_at_what_a_canary_last_got_and_says_whose_probe_failed(world: World) -> None:
    world.run()
    world.probe.answers["kept"] = failed(Outcome.TIMEOUT)
    world.run()
    report = _report(world)
    assert report["canaries"]["looked_at"] == 4
    assert report["notes"] == ["1 probe of the newest run failed; the last answers before are evaluated"]


def test_a_canary_that_never_answered_is_left_out_and_said_to_be(world: World) -> None:
    world.probe.answers["kept"] = failed(Outcome.TIMEOUT)
    world.run()
    report = _report(world)
    assert report["canaries"] == {"total": 4, "measured": 3, "looked_at": 3}
    assert report["notes"][0] == "no answer is known of 1 canary of 4"
    assert _sections(report)["chunk_boundaries"]["verdict"] == "unknown"


def test_what_was_answered_to_another_query_is_left_out(world: World) -> None:
    world.run()
    world.apply(page([canary("kept", query="something else")]))
    world.probe.answers["something else"] = failed(Outcome.TIMEOUT)
    world.run()
    assert _report(world)["canaries"] == {"total": 1, "measured": 0, "looked_at": 0}


def test_a_report_of_a_retriever_that_never_answered_knows_nothing(world: World) -> None:
    world.probe.all_fail()
    world.run()
    verdicts = {name: section["verdict"] for name, section in _sections(_report(world)).items()}
    assert verdicts.pop("suite") == "look_at_this"
    assert set(verdicts.values()) == {"unknown"}


def test_before_the_first_run_there_is_no_report(world: World) -> None:
    with pytest.raises(NotFoundError, match="no ended run yet"):
        _report(world)
    with pytest.raises(NotFoundError, match="no check 'other'"):
        quality_report.report(world.store, "other", now=world.clock())


def test_of_large_suites_a_sample_is_looked_at_and_said_to_be(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary(f"c{place:02}") for place in range(40)]))
    world.run()
    report = _report(world, most_canaries=10)
    assert report["canaries"] == {"total": 40, "measured": 40, "looked_at": 10}
    assert report["notes"] == ["10 of 40 answered canaries are evaluated, evenly spaced over the suite"]
    assert _sections(report)["suite"]["numbers"]["expecting_canaries"] == 40, "the suite itself is counted whole"


def test_of_very_long_texts_a_sample_is_looked_at_and_said_to_be(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    keys = [f"c{place:02}" for place in range(40)]
    world.apply(page([canary(key, query=key, expected_chunks=[{"text": f"{TEXTS['kept']} {key}"}]) for key in keys]))
    world.probe.answers = {
        key: answered(hits(f"{key}-a", texts={f"{key}-a": chr(0x4E00 + place) * 1_000}))
        for place, key in enumerate(keys)
    }
    world.run()
    report = _report(world, most_characters=11_500)  # an expected text has 104
    assert report["canaries"] == {"total": 40, "measured": 40, "looked_at": 10}
    assert report["chunks"] == {"looked_at": 10}
    assert report["notes"] == [
        "10 of 40 answered canaries are evaluated, evenly spaced over the suite",
        "texts are so long that canaries were left out: 11,500 characters are evaluated, of one text the first 20,000",
    ]
    assert _report(world, most_characters=1)["canaries"]["looked_at"] == 1
    assert _report(world)["notes"] == []


def test_slow_drift_compares_days_and_says_when_the_suite_changed(store: Store) -> None:
    world = World(store=store)
    keys = [f"c{place:02}" for place in range(20)]
    world.apply(page([canary(key) for key in keys]))
    for day in range(10):
        for key in keys[: day // 2]:
            world.probe.answers[key] = answered(hits("noise"))
        world.run()
        world.clock.advance(DAY)
    section = _sections(_report(world))["slow_drift"]
    assert section["verdict"] == "look_at_this"
    assert section["numbers"]["coverage days"] == 10
    assert section["numbers"]["coverage now"] == pytest.approx(0.8)
    assert section["numbers"]["coverage 7 days ago"] == pytest.approx(0.95)
    assert section["numbers"]["coverage 30 days ago"] is None
    assert -0.03 < section["numbers"]["coverage slope per day"] < -0.01
    assert section["numbers"]["NDCG@10 days"] == 10
    assert "suite has changed" not in section["reason"]
    world.apply(page([canary(key) for key in keys[1:]]))
    world.run()
    assert "the suite has changed" in _sections(_report(world))["slow_drift"]["reason"]


def _embed(embedder: Embedder, texts: Sequence[str], *, refresh: bool = False) -> EmbeddingResult:
    assert refresh
    assert embedder.model == "m"
    return EmbeddingResult(vectors={text: np.array(vector(text), dtype=np.float32) for text in texts})


def test_the_embedder_is_judged_by_what_the_newest_run_found(sqlite_store: Store) -> None:
    world = World(store=sqlite_store, embed=_embed)
    described = page([canary("a")])
    described["retrievers"] = [{**RETRIEVER, "embedding": {"url": "http://model.test/v1/embeddings", "model": "m"}}]
    world.apply(described)
    world.run()
    section = _sections(_report(world))["embedding_quality"]
    assert section["verdict"] == "good"
    assert (section["numbers"]["similar_pairs"], section["numbers"]["dissimilar_pairs"]) == (3, 3)
    assert section["numbers"]["separation"] > 0.1


# --- how it is shown -----------------------------------------------------------------------------------------


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        opened.docs()
        yield opened


def test_the_report_is_read_over_the_api(service: Api) -> None:
    assert service.client.get("/v1/checks/docs/quality").status_code == 404
    service.run()
    report: Any = service.get("/v1/checks/docs/quality")
    assert [section["name"] for section in report["sections"]] == list(TITLES)
    answer = service.client.get("/v1/checks/docs/quality", params={"format": "markdown"})
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert answer.text == quality_markdown(report)
    assert "## Chunk boundaries" in answer.text
    assert "| Embedding quality | unknown |" in answer.text
    assert "| Score separation | unknown |" in answer.text, "precision at a depth is a measure"
    assert service.client.get("/v1/checks/docs/quality", params={"format": "pdf"}).status_code == 422


def test_reports_wait_for_each_other_and_for_nothing_else_and_nothing_for_them(service: Api) -> None:
    assert REPORTS.total_tokens == 1
    service.run()
    somebody = object()

    async def taken() -> None:
        REPORTS.acquire_on_behalf_of_nowait(somebody)

    async def given() -> None:
        REPORTS.release_on_behalf_of(somebody)

    state = app_of(service).state
    state.access = replace(state.access, turns=Turns(most=60))  # else all but sixteen are refused at once
    portal = service.client.portal
    assert portal is not None
    portal.call(taken)
    with ThreadPoolExecutor(60) as pool:
        # More than the threads that all routes share.
        waiting = [pool.submit(service.get, "/v1/checks/docs/quality") for _ in range(60)]
        try:
            assert service.get("/v1/checks/docs")["slug"] == "docs"
            assert not any(one.done() for one in waiting)
        finally:
            portal.call(given)
        assert [one.result()["check"] for one in waiting] == ["docs"] * 60


def test_texts_and_names_of_others_are_shown_literally(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> | [x](http://evil) @all `code` \x1b[31m\u202e"
    with api(tmp_path) as service:
        service.docs(canaries=[{**one, "tags": ["<b>|`x`"]} for one in CANARIES])
        service.retriever.found = {one["query"]: [f"{evil} id", "c2", "c3"] for one in CANARIES}
        service.run()
        text = service.client.get("/v1/checks/docs/quality", params={"format": "markdown"}).text
    assert "script" in text, "the chunk is among the examples"
    for character in ("\x1b", "\u202e"):
        assert character not in text
    for line in text.splitlines():
        cells = line.replace("\\|", "").split("|")
        for cell in cells:
            if "<script>" in cell or "<b>" in cell:
                assert cell.strip().startswith("`"), cell
                assert cell.strip().endswith("`"), cell


def test_the_command_writes_the_report_of_a_check(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.docs()
        service.run()
        folder = service.service.settings.data_dir
        told = CliRunner().invoke(app, ["quality", "docs", "--data-dir", str(folder), "--format", "json"])
        assert told.exit_code == 0, told.output
        assert json.loads(told.stdout)["check"] == "docs"
        shown = CliRunner().invoke(app, ["quality", "docs", "--data-dir", str(folder)])
        assert shown.stdout == quality_markdown(json.loads(told.stdout))
        nobody = CliRunner().invoke(app, ["quality", "nobody", "--data-dir", str(folder)])
        assert nobody.exit_code == 2
        assert "there is no check 'nobody'" in nobody.stderr


@pytest.mark.parametrize("told", [{}, [], {"check": "docs"}, {"check": "docs", "sections": [{"name": 1}]}])
def test_a_server_that_is_no_coalmine_is_said_to_be_none(told: Any) -> None:
    with peer(lambda _: reply(json.dumps(told).encode())) as server:
        result = CliRunner().invoke(app, ["quality", "docs", "--server", server.url])
    assert result.exit_code == 2
    assert "did not answer as Coalmine does" in result.stderr
