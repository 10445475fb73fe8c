"""Mapped fields that no hit has: told of the run, whether the service or the gate makes it."""

from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.values import replace
from app.records.service import run_views
from app.retrievers.domain.retrievers import ResponseMapping
from app.runs.service import rescoring
from app.runs.service.gate import choose_targets, measure
from app.scoring.rankings import missing_fields, present_fields
from tests.support.fakes import FakeClock, FakeProbe, answered, hits
from tests.support.world import CHECK, RETRIEVER, World, canary, documents, page

MAPPED = {"hits": "hits", "id": "id", "score": "score", "text": "body", "document": "meta.source"}
TEXTS = {"doc-b0": "Logs are kept for a year."}
NO_TEXT = "`text: body` was found in none of the hits"
NO_DOCUMENT = "`document: meta.source` was found in none of the hits"


def _reasons_of_gate(probe: FakeProbe) -> list[str]:
    (target,) = choose_targets(documents(_page(2)))
    report = measure(target, probe, run_id="run-1", clock=FakeClock())
    assert report["run"]["verdict"] == "healthy"
    return list(report["run"]["reasons"])


def test_a_gate_says_which_mapped_fields_it_found_nowhere() -> None:
    assert _reasons_of_gate(FakeProbe()) == [NO_TEXT, NO_DOCUMENT]


def test_one_hit_that_has_a_field_is_enough() -> None:
    probe = FakeProbe(answers={"b0": answered(hits("noise", "doc-b0", texts=TEXTS))})
    assert _reasons_of_gate(probe) == [NO_DOCUMENT]
    full = replace(hits("doc-b0", texts=TEXTS), documents=("logs.md",))
    assert _reasons_of_gate(FakeProbe(answers={"b0": answered(full)})) == []


@pytest.fixture
def world(store: Store) -> World:
    """Give a world of more canaries than a shard holds, whose retriever is mapped to have texts and documents."""
    world = World(store=store)
    world.apply(_page())
    return world


def _page(count: int = 120, **more: Any) -> dict[str, Any]:
    canaries = [canary(f"b{number}", **more) for number in range(count)]
    return {**page(canaries, hooks=[]), "retrievers": [{**RETRIEVER, "response": MAPPED}]}


def test_a_run_says_which_mapped_fields_it_found_nowhere_while_nothing_changes_too(world: World) -> None:
    for _ in range(2):
        run = world.shown(world.run())
        assert (run["verdict"], run["reasons"]) == ("healthy", [NO_TEXT, NO_DOCUMENT])
    world.probe.answers["b110"] = answered(hits("doc-b110", texts={"doc-b110": "The last shard has one."}))
    assert world.shown(world.run())["reasons"] == [NO_DOCUMENT]


def test_a_run_without_hits_lacks_no_field(world: World) -> None:
    world.probe.otherwise = lambda _: answered(hits())
    assert not [reason for reason in world.shown(world.run())["reasons"] if "none of the hits" in reason]


def test_judging_anew_keeps_what_was_said_of_fields(world: World) -> None:
    run = world.run()
    assert run is not None
    world.apply(_page(min_relevance_score=0.1))
    asked = rescoring.ask(world.store, CHECK, since=None, now=world.clock())
    rescoring.claim(world.store, owner="one", now=world.clock(), only=asked)
    assert rescoring.carry_on(world.store, asked, owner="one", clock=world.clock)
    version = rescoring.show(world.store, asked)["measures_version"]
    report = run_views.report(world.store, str(run.id), version=version)
    assert report["run"]["measures_version"] == version
    assert report["run"]["reasons"] == [NO_TEXT, NO_DOCUMENT]


def test_what_is_not_mapped_is_not_lacked() -> None:
    found = present_fields([hits(), hits("a")])
    assert missing_fields(ResponseMapping(hits="hits", id="id"), found) == ()
    dated = ResponseMapping(hits="hits", id="id", updated="at")
    assert missing_fields(dated, found) == ("updated: at",)
    assert missing_fields(dated, present_fields([replace(hits("a", "b"), updated=(None, 5.0))])) == ()
    assert missing_fields(dated, present_fields([hits()])) == ()


def test_a_long_path_is_told_on_one_short_line() -> None:
    (told,) = missing_fields(ResponseMapping(hits="hits", id="id", text="a ||\n b" * 100), present_fields([hits("a")]))
    assert len(told) < 120
    assert "\n" not in told
