"""What stands before and behind a retriever: whose failure it was, and relevance that could not be measured."""

from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from app.alerts.service.evidence import list_changed
from app.base.db.engine import Store
from app.base.values import Answer, Outcome, Ranking, Step, replace
from app.records.store import run_rows
from app.records.store.open_runs import Failure, ShardBody
from app.records.tables import run_probes
from app.runs.service.gate import choose_targets, measure
from tests.support.fakes import Crash, FakeClock, answered, failed, hits
from tests.support.world import RETRIEVER, World, canary, documents, page, statements

KEYS = ("ant", "bee", "cat", "dog")
RERANKED = {
    **RETRIEVER,
    "response": {**RETRIEVER["response"], "text": "text"},
    "scorer": {"kind": "rerank", "url": "http://rerank.test/", "model": "m"},
}
WHY = "the reranker timed out"


def _page() -> dict[str, Any]:
    return {**page([canary(key) for key in KEYS]), "retrievers": [RERANKED]}


@pytest.fixture
def world(store: Store) -> World:
    """Give a world whose first hits are scored outside the retriever."""
    world = World(store=store)
    world.probe.otherwise = lambda ask: _scored(ask.query, 0.8)
    world.apply(_page())
    return world


def _scored(key: str, relevance: float) -> Answer:
    return answered(replace(_hits(key), relevance=relevance))


def _unscored(key: str) -> Answer:
    return replace(answered(_hits(key)), unscored=WHY)


def _hits(key: str) -> Ranking:
    return hits(f"doc-{key}", "noise", texts={f"doc-{key}": "What was asked for."})


# --- whose failure -------------------------------------------------------------------------------------------


def test_a_failure_of_the_embedder_is_told_from_one_of_the_retriever(world: World) -> None:
    world.probe.answers["ant"] = failed(Outcome.TIMEOUT)
    world.probe.answers["bee"] = replace(failed(Outcome.REFUSED, http_status=429), step=Step.EMBEDDER)
    run = world.run()
    assert {key: result["step"] for key, result in world.results(run).items()} == {
        "ant": "retriever",
        "bee": "embedder",
        "cat": "retriever",
        "dog": "retriever",
    }
    assert world.results(run)["bee"]["http_status"] == 429
    assert world.shown(run)["probes"] == {"ok": 2, "timeout": 1, "refused": 1}
    assert world.shown(run)["probes_by_step"] == {"embedder": {"refused": 1}}
    world.probe.answers.clear()
    newer = world.run()
    assert world.shown(newer)["probes_by_step"] == {}
    assert world.shown(run)["probes_by_step"] == {"embedder": {"refused": 1}}  # spelled out anew from its probes


@pytest.mark.databases
def test_whose_failure_it_was_survives_a_crash(world: World) -> None:
    world.probe.answers["bee"] = replace(failed(Outcome.TIMEOUT), step=Step.EMBEDDER)
    world.wish()
    claimed = world.claim("first")
    assert claimed is not None

    def die(statement: str) -> None:
        if statement.startswith("UPDATE runs") and "verdict=" in statement:
            raise Crash

    with statements(world.store, die), pytest.raises(Crash):
        world.execute(claimed, "first")
    world.clock.advance(1)
    resumed = world.claim("second")
    assert resumed is not None
    run = world.execute(resumed, "second")
    assert run is not None
    assert len(world.probe.asked) == 4
    assert world.shown(run)["probes_by_step"] == {"embedder": {"timeout": 1}}


@pytest.mark.both
def test_failures_stored_before_there_were_steps_are_the_retrievers(world: World) -> None:
    world.probe.answers["bee"] = failed(Outcome.REFUSED, http_status=500)
    run = world.run()
    with world.store.write() as connection:
        old = msgspec.msgpack.encode({1: ("refused", 500, "as told")})
        connection.execute(sa.update(run_probes).values(failures=old))
    with world.store.read() as connection:
        _, failures = run_rows.probes_of(connection, run.id)
    assert failures == {1: Failure(outcome="refused", http_status=500, detail="as told", step="retriever")}
    assert world.results(run)["bee"]["step"] == "retriever"


def test_shards_staged_by_a_release_before_are_read() -> None:
    old = msgspec.msgpack.encode([100, b"", [None], {100: ["timeout", None, "late"]}, "v1"])
    body = msgspec.msgpack.decode(old, type=ShardBody)
    assert body.failures == {100: Failure(outcome="timeout", detail="late")}
    assert (body.index_version, body.unscored, body.arrived, body.row, body.ended_early) == ("v1", 0, 0, {}, None)


def test_the_embedders_failures_end_a_run_early_too(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary(f"q{number}") for number in range(40)]))
    world.probe.batch = 5
    world.probe.otherwise = lambda _: replace(failed(Outcome.UNREACHABLE), step=Step.EMBEDDER)
    run = world.run()
    assert world.shown(run)["reasons"] == [
        "the run was ended early: 10 probes in a row failed (10 unreachable at the embedder)",
        "embedder is unreachable: as told (10 of 40 probes, 30 were not sent)",
    ]
    assert world.shown(run)["probes_by_step"] == {"embedder": {"unreachable": 10}}


# --- relevance that could not be measured --------------------------------------------------------------------


def test_unmeasured_relevance_is_said_of_the_run_and_held_against_no_canary(world: World) -> None:
    world.probe.answers |= {"ant": _unscored("ant"), "bee": _unscored("bee"), "cat": _scored("cat", 0.3)}
    run = world.run()
    results, shown = world.results(run), world.shown(run)
    assert {key: (result["top_score"], result["reasons"]) for key, result in results.items()} == {
        "ant": (None, []),
        "bee": (None, []),
        "cat": (0.3, ["low_relevance"]),
        "dog": (0.8, []),
    }
    assert shown["reasons"] == [f"relevance could not be measured for 2 of 4 canaries: {WHY}"]
    assert (shown["verdict"], shown["coverage"], shown["health_score"]) == ("healthy", 1.0, 0.55)
    assert [hit["relevance"] for hit in results["dog"]["ranking"]] == [0.8, None]


def test_a_canary_whose_relevance_was_known_before_loses_it_for_the_run(world: World) -> None:
    first = world.run()
    world.probe.answers["ant"] = _unscored("ant")
    second = world.run()
    world.probe.answers.clear()
    third = world.run()
    assert [world.results(run)["ant"]["top_score"] for run in (first, second, third)] == [0.8, None, 0.8]
    assert [len(world.shown(run)["reasons"]) for run in (first, second, third)] == [0, 1, 0]


def _dead(world: World) -> None:
    world.probe.otherwise = lambda ask: _unscored(ask.query)


def test_a_dead_scorer_makes_a_run_unknown_and_pages_after_the_second(world: World) -> None:
    for status in ("healthy", "unknown", "unknown"):
        run = world.shown(world.run())
        assert run["verdict"] == status
        _dead(world)
    assert run["reasons"] == [f"relevance was measured for only 0 of 4 canaries that got hits: {WHY}"]
    ((kind, reason),) = [(alert["kind"], alert["reason"]) for alert in world.alerts() if alert["state"] == "firing"]
    assert kind == "probe_errors"
    assert f"the run is unknown: {run['reasons'][0]} (critical)" in reason


@pytest.mark.parametrize("measure", ["answered_ratio", "health_score", "degraded_share"])
def test_a_dead_scorer_resolves_no_alert(world: World, measure: str) -> None:
    bound = {"below": 0.5} if measure == "health_score" else {"above": 0.2}
    rule = {"kind": "threshold", "measure": measure, "critical": bound}
    never = {"key": "never", "query": "never", "category": "negative"}
    world.apply({**page([*map(canary, KEYS), never], rules=[rule]), "retrievers": [RERANKED]})
    world.probe.otherwise = lambda ask: _scored(ask.query, 0.9 if ask.query == "never" else 0.1)
    world.run()
    world.run()

    def states() -> list[str]:
        return [alert["state"] for alert in world.alerts() if alert["kind"] == "threshold"]

    assert states() == ["firing"]
    _dead(world)
    for _ in range(3):
        world.run()
    assert states() == ["firing"]
    world.probe.otherwise = lambda ask: _scored(ask.query, 0.1 if ask.query == "never" else 0.9)
    world.run()
    world.run()
    assert states() == ["resolved"]


@pytest.mark.both
def test_a_scorer_that_comes_and_goes_writes_no_states_and_ends_none(world: World) -> None:
    first = world.run()
    before = world.count("states", "rankings")
    for _ in range(2):
        _dead(world)
        dead = world.run()
        world.probe.otherwise = lambda ask: _scored(ask.query, 0.8)
        again = world.run()
    assert world.count("states", "rankings") == before
    for run, score in ((first, 0.8), (dead, None), (again, 0.8)):
        results, shown = world.results(run), world.shown(run)
        assert {result["top_score"] for result in results.values()} == {score}
        assert {result["ranking"][0]["relevance"] for result in results.values()} == {score}
        assert {result["since_run"] for result in results.values()} == {str(first.id)}
        assert (shown["health_score"], shown["coverage"]) == (score, 1.0)


def test_what_was_wrong_with_relevance_is_not_held_against_a_run_that_did_not_measure_it(world: World) -> None:
    world.probe.answers["ant"] = _scored("ant", 0.1)
    first = world.run()
    world.probe.answers["ant"] = _unscored("ant")
    second = world.run()
    assert [world.results(run)["ant"]["reasons"] for run in (first, second)] == [["low_relevance"], []]
    assert [world.shown(run)["degraded_queries"] for run in (first, second)] == [["ant"], []]
    assert world.shown(second)["health_score"] == 0.8
    world.probe.answers["ant"] = _scored("ant", 0.1)
    newest = world.run()
    assert world.shown(second)["degraded_queries"] == []  # spelled out anew from its states
    assert world.results(newest)["ant"]["since_run"] == str(first.id)


def test_hits_that_changed_are_news_though_nobody_scored_them(world: World) -> None:
    world.run()
    world.probe.answers["ant"] = replace(answered(hits("noise")), unscored=WHY)
    run = world.run()
    result = world.results(run)["ant"]
    assert (result["reasons"], result["top_score"], result["since_run"]) == (["missing"], None, str(run.id))


def test_canaries_are_not_listed_for_relevance_that_was_not_measured(world: World) -> None:
    world.probe.answers["ant"] = _scored("ant", 0.1)
    first = world.run()
    world.probe.answers["ant"] = _unscored("ant")
    second = world.run()
    with world.store.read() as connection:
        named = [list_changed(connection, one.id, None)["canaries"] for one in (first, second)]
    assert [[worst["key"] for worst in one] for one in named] == [["ant"], []]


# --- who is asked for ----------------------------------------------------------------------------------------


def test_probes_hear_the_key_of_the_canary_they_ask_for(world: World) -> None:
    heard: list[tuple[str, str]] = []

    def answer(ask: Any) -> Answer:
        heard.append((ask.key, ask.query))
        return answered(hits("x"))

    world.probe.otherwise = answer
    questions = [canary(key, query=f"What of the {key}?") for key in KEYS]
    world.apply({**_page(), "canaries": questions})
    world.run()
    (target,) = choose_targets(documents({**_page(), "canaries": questions}))
    measure(target, world.probe, run_id="r", clock=FakeClock())
    assert sorted(heard) == sorted([(key, f"What of the {key}?") for key in KEYS] * 2)
