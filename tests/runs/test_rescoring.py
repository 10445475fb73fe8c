"""A corrected judgment re-scores history from stored rankings: nobody is asked, and the old numbers stay."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store, to_us
from app.base.errors import ConflictError, InvalidInputError, NotFoundError
from app.base.values import Answer, Outcome, Verdict, replace
from app.operation.service import retention
from app.records.service import run_views
from app.records.store import rescorings as rescoring_rows
from app.records.tables import (
    idempotency_keys,
    marks,
    rescored_rollups,
    rescored_runs,
    rescorings,
    run_probes,
    runs,
    scores,
    states,
)
from app.reports.rendering.reports import compare_reports
from app.reports.service import charts
from app.retrievers.domain.retrievers import ProbeQuery
from app.runs.service import rescoring
from app.runs.service.rescoring import Sweep
from tests.conftest import Databases
from tests.support.fakes import START, Crash, answered, failed, hits
from tests.support.present import present
from tests.support.world import CHECK, RETRIEVER, World, canary, page, race, statements

KEYS = ("ant", "bee", "cat")
KEPT = ("runs", "states", "run_probes", "rollups", "latest", "marks", "rankings", "chunks", "alerts", "transitions")
"""What a re-scoring must not touch."""
NOW = START.timestamp()


@pytest.fixture
def world(store: Store) -> World:
    """Give a world of three canaries; the bee misses from the second run of three on."""
    world = World(store=store)
    world.apply(page([canary(key) for key in KEYS], hooks=[]))
    world.run()
    world.probe.answers["bee"] = answered(hits("bee-2024", "noise"))
    world.run()
    world.run()
    return world


def _correct(world: World, **corrections: Mapping[str, Any]) -> None:
    world.apply(page([canary(key, **corrections.get(key, {})) for key in KEYS], hooks=[]))


def _ask(world: World, *, since: datetime | None = None) -> int:
    return rescoring.ask(world.store, CHECK, since=since, now=world.clock.advance(1))


def _carry_on(world: World, rescoring_id: int, owner: str = "one", **more: Any) -> bool:
    rescoring.claim(world.store, owner=owner, now=world.clock(), only=rescoring_id)
    return rescoring.carry_on(world.store, rescoring_id, owner=owner, clock=world.clock, **more)


def _rescored(world: World, *, since: datetime | None = None, **more: Any) -> dict[str, Any]:
    """Re-score with every probe forbidden, and show what came of it."""
    world.probe.before_batch = _never
    rescoring_id = _ask(world, since=since)
    assert _carry_on(world, rescoring_id, **more)
    world.probe.before_batch = lambda _: None
    return {**rescoring.show(world.store, rescoring_id)}


def _never(_number: int) -> None:
    raise AssertionError("the retriever was asked")


def _run_ids(world: World) -> list[int]:
    with world.store.read() as connection:
        return list(connection.execute(sa.select(runs.c.id).order_by(runs.c.id)).scalars())


def _shown(world: World, run_id: int, version: str | None = None) -> dict[str, Any]:
    return {**run_views.report(world.store, str(run_id), version=version)}


def _rows(world: World) -> dict[str, list[tuple[Any, ...]]]:
    dump = world.dump()
    return {name: dump[name] for name in ("rescored_runs", "rescored_rollups", "scores")}


# --- what it is for ------------------------------------------------------------------------------------------


def test_a_corrected_judgment_raises_the_coverage_of_past_runs_and_the_old_numbers_stay(world: World) -> None:
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    before = {run: json.dumps(_shown(world, run)) for run in _run_ids(world)}
    rows = world.dump()
    asked = list(world.probe.asked)
    found = _rescored(world)
    version = found["measures_version"]
    assert (found["status"], found["progress"]) == ("finished", {"runs_done": 3, "runs_total": 3})
    assert world.probe.asked == asked
    coverages = [_shown(world, run, version)["run"]["coverage"] for run in before]
    assert coverages == [0.666667, 1.0, 1.0]  # the old chunk of the first run is wrong now
    assert {run: json.dumps(_shown(world, run)) for run in before} == before
    after = world.dump()
    assert {name: after[name] for name in KEPT} == {name: rows[name] for name in KEPT}
    assert set(rows["scores"]) < set(after["scores"])
    assert [side["coverage"] for side in (found["before"], found["after"])] == [0.777778, 0.888889]
    assert [side["verdicts"] for side in (found["before"], found["after"])] == [
        {"healthy": 1, "degraded": 2},
        {"healthy": 2, "degraded": 1},
    ]


def test_a_run_says_by_which_version_it_is_measured(world: World) -> None:
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    version = _rescored(world)["measures_version"]
    run = _run_ids(world)[-1]
    old, plain, new = (_shown(world, run, named) for named in (None, "2", version))
    assert old == plain
    assert (old["run"]["measures_version"], new["run"]["measures_version"]) == ("2", version)
    assert version.startswith("2.r")
    assert new["run"]["suite_hash"] == _shown(world, world.run().id)["run"]["suite_hash"] != old["run"]["suite_hash"]


def test_runs_of_different_versions_are_said_not_to_be_comparable(world: World) -> None:
    version = _rescored(world)["measures_version"]
    first, *_, last = _run_ids(world)
    told = "the numbers are of different measures versions"
    compared = compare_reports(_shown(world, first), _shown(world, last, version))
    assert compared["differences"] == [told]
    both = compare_reports(_shown(world, first, version), _shown(world, last, version))
    assert both["differences"] == []


def test_the_results_show_the_judgments_that_are_in_force_now(world: World) -> None:
    _correct(world, bee={"expected_chunks": [{"id": "bee-2024", "grade": 3}], "tags": ["fixed"]})
    version = _rescored(world)["measures_version"]
    run = str(_run_ids(world)[-1])
    (bee,), _ = run_views.results(world.store, run, tag="fixed", version=version)
    assert (bee["verdict"], bee["any_match"], bee["measures"]["R@1"]) == ("healthy", True, 1.0)
    assert bee["ranking"][0]["judgment"] == {"id": "bee-2024", "grade": 3}
    (bee,), _ = run_views.results(world.store, run, verdict=Verdict.DEGRADED)
    assert (bee["key"], bee["reasons"], bee["tags"]) == ("bee", ["missing"], [])


@pytest.mark.both
def test_the_newest_run_of_a_version_is_its_health(world: World) -> None:
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    version = _rescored(world)["measures_version"]
    newest = _run_ids(world)[-1]
    world.probe.all_miss()
    world.run()
    health = run_views.health(world.store, CHECK, version=version)
    assert (health["id"], health["coverage"], health["measures_version"]) == (str(newest), 1.0, version)
    assert run_views.health(world.store, CHECK)["coverage"] == 0.0


# --- what stays as it was judged -----------------------------------------------------------------------------


def test_a_canary_that_asked_something_else_then_keeps_its_judgment(world: World) -> None:
    _correct(world, bee={"query": "bees?", "expected_chunks": ["bee-2024"]}, cat={"expected_chunks": ["doc-cat", "x"]})
    found = _rescored(world)
    assert found["note"] == "1 canary asked something else then: kept as it was judged"
    run = _run_ids(world)[-1]
    results = {one["key"]: one for one in _shown(world, run, found["measures_version"])["results"]}
    assert (results["bee"]["query"], results["bee"]["reasons"]) == ("bee", ["missing"])
    assert results["cat"]["measures"]["R@5"] == 0.5


def test_canaries_that_left_the_suite_keep_their_judgments_and_new_ones_do_not_appear(world: World) -> None:
    world.apply(page([canary("ant", expected_chunks=["noise"]), canary("dog")], hooks=[]))
    found = _rescored(world)
    assert found["note"] == "2 canaries not in the suite any more: kept as they were judged"
    run = _run_ids(world)[-1]
    old, new = (
        {one["key"]: one for one in _shown(world, run, v)["results"]} for v in (None, found["measures_version"])
    )
    assert list(new) == list(KEYS)
    assert new["ant"]["measures"]["RR"] == 0.5
    assert (new["bee"], new["cat"]) == (old["bee"], old["cat"])


def test_nothing_changes_where_no_judgment_did(world: World) -> None:
    found = _rescored(world)
    assert (found["before"], found["note"]) == (found["after"], None)
    for run in _run_ids(world):
        old, new = _shown(world, run), _shown(world, run, found["measures_version"])
        assert {**new["run"], "measures_version": "2"} == old["run"]
        assert new["results"] == old["results"]


def test_that_expected_ids_are_documents_is_said_of_every_run_that_finds_nothing_re_scored_or_not(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary(key) for key in KEYS], hooks=[]))

    def found(*changed: str) -> Callable[[ProbeQuery], Answer]:
        def answer(ask: ProbeQuery) -> Answer:
            chunk = f"{ask.query}-{2 if ask.query in changed else 1}"
            return answered(replace(hits(chunk), documents=(f"doc-{ask.query}" if ask.query != "bee" else None,)))

        return answer

    for changed in ((), (), ("bee",)):  # all is judged, then nothing, then the one that says nothing
        world.probe.otherwise = found(*changed)
        world.run()
    world.probe.answers["ant"] = failed(Outcome.TIMEOUT)
    world.run()
    world.probe.answers["ant"] = answered(hits("doc-ant"))
    world.run()
    hint = "the expected ids are documents of the hits for {} canaries, not ids of hits: import with --as-documents, "
    told = [hint.format(count) + "or expect documents" for count in ("2 of 3", "2 of 3", "2 of 3", "1 of 2")]
    for version in (None, _rescored(world)["measures_version"]):
        reasons = [_shown(world, run_id, version)["run"]["reasons"] for run_id in _run_ids(world)]
        assert [[one for one in of_run if "documents" in one] for of_run in reasons] == [*([one] for one in told), []]


@pytest.mark.both
def test_a_check_whose_suite_is_gone_has_nothing_to_be_judged_by(world: World) -> None:
    other = {**page([canary("x")])["checks"][0], "suite": "other"}
    world.apply({**page([canary("x")]), "suite": "other", "checks": [other]})
    world.apply()
    with pytest.raises(ConflictError, match="'other' is not in force"):
        _ask(world)


# --- as if it had been asked again ---------------------------------------------------------------------------

DATED = {**RETRIEVER, "response": {**RETRIEVER["response"], "updated": "changed"}}
OLD: Sequence[Mapping[str, Any]] = (
    *[canary(f"q{number}", tags=[f"t{number % 3}"]) for number in range(10)],
    canary("never", category="negative", expected_chunks=[]),
    canary("fresh", max_age="1h"),
    canary("fast", max_latency="800ms"),
    canary("graded", expected_chunks=[{"id": "doc-graded", "grade": 3}, {"id": "b", "grade": 1}]),
)
NEW: Sequence[Mapping[str, Any]] = (
    *[canary(f"q{number}", tags=[f"t{number % 2}"], expected_chunks=["noise"]) for number in range(5)],
    *[canary(f"q{number}", forbidden_chunks=["b"], category="procedural") for number in range(5, 10)],
    canary("never", category="negative", expected_chunks=[], max_relevance_score=0.95),
    canary("fresh", max_age="2h", floors={"R@1": 1.0}),
    canary("fast", max_latency="400ms"),
    canary("graded", expected_chunks=[{"id": "doc-graded", "grade": 1}, {"id": "b", "grade": 2}]),
)


def _history(seed: int, count: int) -> Iterator[dict[str, Answer]]:
    """Make up what a retriever answers, run after run: mostly what it did before."""
    generator = random.Random(seed)  # noqa: S311 - made-up answers
    answers: dict[str, Answer] = {}
    for number in range(count):
        for one in OLD:
            if number % 3 or (number and generator.random() < 0.6):  # two of three bring nothing new
                continue
            ids = generator.sample(["noise", "b", "c", f"doc-{one['key']}"], generator.randint(0, 4))
            ages = tuple(generator.choice([None, NOW - generator.randint(0, 9_000)]) for _ in ids)
            found = replace(hits(*ids), updated=ages)
            seconds = generator.choice([0.2, 0.5, 0.9])
            good = answered(found, seconds=seconds, index_version=f"v{number // 4}")
            answers[one["key"]] = good if generator.random() < 0.9 else failed(Outcome.TIMEOUT)
        if (fast := answers["fast"]).ranking is not None:
            answers["fast"] = replace(fast, latency_seconds=generator.choice([0.2, 0.5, 0.9]))
        dead = generator.random() < 0.15
        yield dict(answers) if not dead else {one["key"]: failed(Outcome.UNREACHABLE) for one in OLD}


@pytest.mark.parametrize(
    ("seed", "scorer"), [(0, {"kind": "score", "scale": "similarity"}), (1, {"kind": "judged"})], ids=str
)
def test_it_equals_asking_again_and_getting_the_same_rankings(
    seed: int, scorer: Mapping[str, Any], store: Store, databases: Databases, stores: Callable[..., Store]
) -> None:
    rules = [
        {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.6}},
        {"kind": "threshold", "measure": "coverage", "category": "procedural", "warning": {"below": 0.9}},
        {"kind": "threshold", "measure": "degraded_share", "warning": {"above": 0.4}},
    ]
    worlds = World(store=store), World(store=stores(databases.sqlite()))
    for world, canaries in zip(worlds, (OLD, NEW), strict=True):
        retriever = {**DATED, "scorer": scorer}
        world.apply({**page(canaries, hooks=[], rules=rules, k=2), "retrievers": [retriever]})
        for answers in _history(seed, 12):
            world.probe.answers = answers
            world.run()
    before, again = worlds
    before.apply({**page(NEW, hooks=[], rules=rules, k=2), "retrievers": [{**DATED, "scorer": scorer}]})
    version = _rescored(before)["measures_version"]
    verdicts = set()
    for mine, other in zip(_run_ids(before), _run_ids(again), strict=True):
        anew, wanted = _shown(before, mine, version), _shown(again, other)
        ours = {name: anew["run"][name] for name in wanted["run"] if name not in {"id", "measures_version", "reasons"}}
        assert ours == {name: wanted["run"][name] for name in ours}
        assert _alone(anew["run"]["reasons"]) == _alone(wanted["run"]["reasons"])
        assert _of_itself(anew["results"]) == _of_itself(wanted["results"])
        verdicts.add(wanted["run"]["verdict"])
    assert {"degraded", "unknown"} <= verdicts


def _alone(reasons: Sequence[str]) -> list[str]:
    """Leave out the cause, which takes more than one run, too."""
    return [one for one in reasons if " since run " not in one]


def _of_itself(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what takes more than one run: since when it holds, and what detectors said on the day."""
    alone = [{name: value for name, value in one.items() if name != "since_run"} for one in results]
    return [{**one, "reasons": [reason for reason in one["reasons"] if reason != "regressed"]} for one in alone]


def test_a_run_the_breaker_ended_stays_unknown_for_the_same_reason(store: Store) -> None:
    world = World(store=store)
    keys = [f"q{number}" for number in range(30)]
    world.apply(page([canary(key) for key in keys], hooks=[]))
    world.probe.batch = 1
    world.probe.otherwise = lambda ask: failed(Outcome.TIMEOUT) if ask.position < 13 else answered(hits("noise"))
    run = world.run().id
    old = world.shown(run)
    assert (old["status"], old["verdict"], old["canaries"]["measured"]) == ("partial", "unknown", 17)
    world.apply(page([canary(key, expected_chunks=["noise"]) for key in keys], hooks=[]))
    new = _shown(world, run, _rescored(world)["measures_version"])["run"]
    assert (new["verdict"], new["reasons"], new["coverage"]) == ("unknown", old["reasons"], 1.0)


def test_what_a_scorer_could_not_measure_then_is_still_said(world: World) -> None:
    world.probe.otherwise = lambda ask: answered(replace(hits(f"doc-{ask.query}"), relevance=0.9))
    world.probe.answers["ant"] = replace(answered(hits("doc-ant")), unscored="the reranker answered 503")
    run = world.run().id
    said = "relevance could not be measured for 1 of 3 canaries: the reranker answered 503"
    assert said in world.shown(run)["reasons"]
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    assert _shown(world, run, _rescored(world)["measures_version"])["run"]["reasons"] == [said]


def test_a_run_whose_scorer_was_away_stays_unknown_and_is_given_no_relevance_of_another(store: Store) -> None:
    world = World(store=store)
    retriever = {
        **RETRIEVER,
        "response": {**RETRIEVER["response"], "text": "text"},
        "scorer": {"kind": "rerank", "url": "http://rerank.test/", "model": "m"},
    }
    world.apply({**page([canary(key) for key in KEYS], hooks=[]), "retrievers": [retriever]})
    scored = {key: replace(hits(f"doc-{key}"), relevance=0.2) for key in KEYS}
    runs = []
    for away in (False, True, False):
        world.probe.answers = {
            key: replace(answered(replace(ranking, relevance=None)), unscored="it is away")
            if away
            else answered(ranking)
            for key, ranking in scored.items()
        }
        runs.append(world.run().id)
    old = [world.shown(run) for run in runs]
    assert [one["verdict"] for one in old] == ["healthy", "unknown", "healthy"]
    _correct(world, ant={"expected_chunks": ["other"]})
    version = _rescored(world)["measures_version"]
    new = [_shown(world, run, version) for run in runs]
    assert (new[1]["run"]["verdict"], new[1]["run"]["reasons"]) == ("unknown", old[1]["reasons"])
    assert [one["run"]["health_score"] for one in new] == [0.2, None, 0.2]
    for one, low in zip(new, (["low_relevance"], [], ["low_relevance"]), strict=True):
        reasons = {result["key"]: result["reasons"] for result in one["results"]}
        assert reasons == {key: [*low, "missing"] if key == "ant" else low for key in KEYS}


def test_a_ranking_of_another_retriever_is_not_judged_by_the_scale_of_a_later_one(store: Store) -> None:
    """The probe of the canary failed since, so what it has is the ranking of before, with scores off the new scale."""
    world = World(store=store)
    far = {**RETRIEVER, "scorer": {"kind": "score", "scale": "distance"}}
    world.apply({**page([canary(key) for key in KEYS], hooks=[]), "retrievers": [far]})
    world.probe.answers["ant"] = answered(hits("doc-ant", scores=[7.5]))
    first = world.run().id
    world.apply(page([canary(key) for key in KEYS], hooks=[]))
    world.probe.answers["ant"] = failed(Outcome.TIMEOUT)
    world.run()
    _correct(world, ant={"expected_chunks": ["other"]})
    found = _rescored(world)
    assert found["note"] is None
    results = {one["key"]: one for one in _shown(world, first, found["measures_version"])["results"]}
    assert (results["ant"]["reasons"], results["ant"]["top_score"]) == (["low_relevance", "missing"], 0.117647)


# --- crashes, repetition, others -----------------------------------------------------------------------------


@pytest.mark.systems
@pytest.mark.databases
@pytest.mark.parametrize("crash_at", range(1, 9))
def test_a_crash_in_the_middle_costs_nothing(crash_at: int, world: World) -> None:
    for number in range(4):
        world.probe.answers["cat"] = answered(hits(f"cat-{number}"))
        world.run()
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    rescoring_id = _ask(world)
    commits = []

    def crash(statement: str) -> None:
        if statement == "COMMIT":
            commits.append(statement)
            if len(commits) == crash_at:
                raise Crash

    with statements(world.store, crash):
        try:
            ended = _carry_on(world, rescoring_id, "dead", batch_rows=3)
        except Crash:
            ended = False
    assert not ended
    world.clock.advance(rescoring.LEASE.total_seconds() + 1)
    assert _carry_on(world, rescoring_id, "heir", batch_rows=3)
    crashed = _rows(world)
    with world.store.write() as connection:
        connection.execute(sa.delete(rescored_runs))
        connection.execute(sa.delete(rescored_rollups))
        connection.execute(sa.update(rescorings).values(finished_at=None))
    assert _carry_on(world, rescoring_id)
    assert _rows(world) == crashed


def test_asked_again_it_is_the_same_and_takes_in_what_has_come_since(world: World) -> None:
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    first = _rescored(world)
    rows = _rows(world)
    assert _rescored(world) == first
    assert _rows(world) == rows
    world.run()
    again = _ask(world)
    shown = rescoring.show(world.store, again)
    assert (shown["id"], shown["status"]) == (first["id"], "queued")
    assert shown["progress"] == {"runs_done": 3, "runs_total": 4}
    assert _carry_on(world, again)
    assert present(rescoring.show(world.store, again)["after"])["runs"] == 4
    assert set(rows["rescored_runs"]) < set(_rows(world)["rescored_runs"])


def test_another_correction_is_another_version_and_the_former_stays(world: World) -> None:
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    first = _rescored(world)["measures_version"]
    run = _run_ids(world)[-1]
    before = _shown(world, run, first)
    _correct(world, bee={"expected_chunks": ["bee-2025"]})
    second = _rescored(world)["measures_version"]
    assert first != second
    assert _shown(world, run, first) == before
    assert _shown(world, run, second)["run"]["coverage"] == 0.666667
    listed = rescoring.list_all(world.store, CHECK, before=None, limit=10)
    assert [one["measures_version"] for one in listed] == [second, first]


@pytest.mark.both
def test_since_limits_it_and_can_be_widened(world: World) -> None:
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    ids = _run_ids(world)
    with world.store.read() as connection:
        ended = connection.execute(sa.select(runs.c.finished_at).where(runs.c.id == ids[-1])).scalar_one()
    since = START + timedelta(microseconds=ended - to_us(START))
    found = _rescored(world, since=since)
    assert found["progress"] == {"runs_done": 1, "runs_total": 1}
    with pytest.raises(NotFoundError, match=f"run '{ids[0]}' is not in measures version"):
        _shown(world, ids[0], found["measures_version"])
    wider = _rescored(world)
    assert (wider["id"], wider["since"], wider["progress"]["runs_done"]) == (found["id"], None, 3)
    assert _rescored(world, since=since)["since"] is None


@pytest.mark.databases
def test_two_who_work_at_one_rescoring_count_every_run_once(world: World) -> None:
    for _ in range(3):
        world.run()
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    rescoring_id = _ask(world)

    def work(number: int) -> bool:
        return rescoring.carry_on(world.store, rescoring_id, owner=f"{number}", clock=world.clock, batch_rows=3)

    race(3, work)  # none holds it: each writes a batch and lets go
    assert _carry_on(world, rescoring_id)
    with world.store.read() as connection:
        days = sa.select(sa.func.sum(rescored_rollups.c.runs)).where(rescored_rollups.c.seconds == -86_400)
        assert connection.execute(days).scalar_one() == 6
    assert world.count("rescored_runs") == {"rescored_runs": 6}


@pytest.mark.both
def test_what_is_asked_for_or_ends_meanwhile_is_taken_in(world: World) -> None:
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    calls: list[tuple[int, int]] = []

    def moved(done: int, total: int) -> None:
        calls.append((done, total))
        if len(calls) == 2:  # all states of before are read by then
            world.probe.all_miss()
            world.run()
        if len(calls) == 3:
            _ask(world)

    with world.store.read() as connection:
        ended = connection.execute(sa.select(runs.c.finished_at).order_by(runs.c.id.desc()).limit(1)).scalar_one()
    rescoring_id = _ask(world, since=START + timedelta(microseconds=ended - to_us(START)))
    assert _carry_on(world, rescoring_id, batch_rows=3, moved=moved)
    assert calls == [(0, 1), (1, 1), (2, 2), (2, 4), (3, 4), (4, 4)]
    version = rescoring.show(world.store, rescoring_id)["measures_version"]
    coverages = [_shown(world, run, version)["run"]["coverage"] for run in _run_ids(world)]
    assert coverages == [0.666667, 1.0, 1.0, 0.0]


@pytest.mark.databases
def test_one_who_stops_lets_go_and_another_goes_on_at_once(world: World) -> None:
    rescoring_id = _ask(world)
    looks = iter([False, True])
    assert not _carry_on(world, rescoring_id, "one", batch_rows=3, stopping=lambda: next(looks))
    assert rescoring.show(world.store, rescoring_id)["progress"] == {"runs_done": 1, "runs_total": 3}
    assert rescoring.claim(world.store, owner="two", now=world.clock()) == rescoring_id
    assert rescoring.claim(world.store, owner="three", now=world.clock()) is None
    assert rescoring.carry_on(world.store, rescoring_id, owner="two", clock=world.clock)
    assert rescoring.claim(world.store, owner="three", now=world.clock()) is None


@pytest.mark.both
def test_what_a_release_before_began_is_not_mixed_with_other_measures(world: World) -> None:
    rescoring_id = _ask(world)
    with world.store.write() as connection:
        connection.execute(sa.update(rescorings).values(measures_version="0"))
    assert _carry_on(world, rescoring_id)
    note = rescoring.show(world.store, rescoring_id)["note"]
    assert note == "begun with measures version 0 and not finished: ask for it again"
    assert _ask(world) != rescoring_id


# --- forgetting ----------------------------------------------------------------------------------------------


@pytest.mark.both
def test_rescored_runs_go_with_their_runs_and_the_rest_reads_as_before(world: World) -> None:
    world.clock.now = START + timedelta(days=20)
    kept = world.run().id
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    version = _rescored(world)["measures_version"]
    before = _shown(world, kept, version)
    assert retention.prune(world.store, world.clock(), days=10, batch=2) > 0
    assert world.count("runs", "rescored_runs") == {"runs": 1, "rescored_runs": 1}
    assert _shown(world, kept, version) == before
    world.clock.now += timedelta(days=800)
    retention.prune(world.store, world.clock(), days=10)
    with world.store.read() as connection:
        assert set(connection.execute(sa.select(rescored_rollups.c.seconds)).scalars()) == {-86_400}


@pytest.mark.both
def test_a_release_that_knows_no_rescoring_can_still_delete_runs(world: World) -> None:
    _rescored(world)
    first = _run_ids(world)[0]
    with world.store.write() as connection:
        for table in (run_probes, marks, idempotency_keys):
            connection.execute(sa.delete(table).where(table.c.run_id == first))
        connection.execute(sa.delete(runs).where(runs.c.id == first))
    assert world.count("rescored_runs") == {"rescored_runs": 2}


@pytest.mark.databases
def test_runs_and_rankings_that_are_pruned_while_they_are_judged_are_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescoring, "_SAVED_AT_ONCE", 2)
    world.clock.now = START + timedelta(days=20)
    world.probe.answers = {key: answered(hits(f"new-{key}")) for key in KEYS}
    kept = world.run().id
    _correct(world, bee={"expected_chunks": ["new-bee"]})
    rescoring_id = _ask(world)
    with world.store.read() as connection:
        asked = rescoring_rows.find(connection, rescoring_id)
        assert asked is not None
        left = rescoring_rows.runs_left(connection, asked, after=0, limit=10)
    batch = Sweep(world.store, asked).judge(left)
    retention.prune(world.store, world.clock(), days=10)
    rescoring._save_scores(world.store, batch)
    with world.store.write() as connection:
        rescoring._save_runs(connection, asked, batch)
        assert connection.execute(sa.select(rescored_runs.c.run_id)).scalars().all() == [kept]
        there = set(connection.execute(sa.select(scores.c.ranking_id)).scalars())
        assert there == set(connection.execute(sa.select(states.c.ranking_id)).scalars())


# --- over time -----------------------------------------------------------------------------------------------


def _series(world: World, version: str | None, days: int = 1, **more: Any) -> list[tuple[float | None, int]]:
    end = to_us(world.clock.now)
    wish = {"measure": "coverage", "category": None, "points": 300, **more}
    start = end - days * 86_400_000_000
    chart = charts.series(world.store, CHECK, start=start, end=end, version=version, **wish)
    assert chart["measures_version"] == version
    return [(point.mean, point.runs) for point in chart["points"]]


@pytest.mark.both
def test_a_series_follows_the_version_by_run_and_by_day(world: World) -> None:
    _correct(world, bee={"expected_chunks": ["bee-2024"]})
    version = _rescored(world)["measures_version"]
    assert _series(world, version) == [(0.666667, 1), (1.0, 1), (1.0, 1)]
    assert _series(world, None) == [(1.0, 1), (0.666667, 1), (0.666667, 1)]
    assert _series(world, version, points=1) == [(0.888889, 3)]
    assert _series(world, version, category="simple_factual")[0] == (0.666667, 1)
    with world.store.write() as connection:  # as retention leaves it
        connection.execute(sa.delete(rescored_runs).where(rescored_runs.c.run_id < _run_ids(world)[-1]))
        connection.execute(sa.update(runs).values(finished_at=runs.c.finished_at + 3_600_000_000 * 5))
    world.clock.advance(3_600 * 6)
    assert _series(world, version, days=300) == [(0.888889, 3)]


def test_a_version_that_is_none_is_refused_with_those_there_are(world: World) -> None:
    version = _rescored(world)["measures_version"]
    other = {**page()["checks"][0], "slug": "other", "hooks": []}
    world.apply({**page([canary(key) for key in KEYS], hooks=[]), "checks": [*page(hooks=[])["checks"], other]})
    run = world.run("other").id
    for wrong in ("2.r999", "1", "2.rx", version.replace("2.", "1.")):
        with pytest.raises(InvalidInputError, match=f"there is no version '{wrong}'; there are: 2, {version}"):
            _series(world, wrong)
    with pytest.raises(InvalidInputError, match=f"there is no version '{version}'; there are: 2"):
        run_views.run(world.store, str(run), version=version)


# --- how it is done ------------------------------------------------------------------------------------------


def test_a_ranking_is_judged_once_however_many_runs_had_it(world: World) -> None:
    for number in range(6):
        world.probe.answers["cat"] = answered(hits(f"cat-{number % 2}"))
        world.run()
    _correct(world, cat={"expected_chunks": ["cat-1"]})
    before = world.count("scores")["scores"]
    _rescored(world)
    assert world.count("scores")["scores"] - before == 3  # of the cat: its own chunk, and two more
    with world.store.read() as connection:
        newest = next(iter(rescoring_rows.find_runs(connection, 1, _run_ids(world)[-1:]).values()))
    assert (newest.degraded, newest.degraded_reasons is None) == (1, False)


def test_what_a_canary_has_is_known_though_states_come_in_many_pages(world: World) -> None:
    other = {**page()["checks"][0], "slug": "other", "hooks": []}
    world.apply({**page([canary(key) for key in KEYS], hooks=[]), "checks": [*page(hooks=[])["checks"], other]})
    for number in range(6):
        world.probe.otherwise = partial(_by_number, number // 2)
        world.run()
        world.probe.otherwise = partial(_by_number, number)
        world.run("other")
    found = _rescored(world, batch_rows=2)
    mine = run_views.list_runs(world.store, CHECK, before=None, limit=50)
    for run in mine:
        shown = _shown(world, int(run["id"]), found["measures_version"])["run"]
        assert {**shown, "measures_version": "2"} == world.shown(int(run["id"]))
    assert found["progress"]["runs_done"] == len(mine) == 9


def _by_number(number: int, ask: ProbeQuery) -> Answer:
    return answered(hits(f"doc-{ask.query}") if number % 2 else hits("noise", f"n{number}"))
