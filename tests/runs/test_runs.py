"""A run writes what changed and nothing else, and every run reads back as it was, however old it has become."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.base.db.engine import Store
from app.base.values import Outcome, Ranking, Verdict, replace
from app.base.views import numbers, rounded_or_none
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.tables import canary_versions
from app.records.service import plans, run_views
from app.records.tables import layouts
from app.reports.rendering.reports import compare_reports
from app.reports.service import charts
from app.reports.views import CanaryState
from app.retrievers.documents.retrievers import RetrieverDocument
from app.runs.service import finalising
from app.scoring import run_outcomes
from app.scoring.evaluation import judge
from app.scoring.rankings import Match, round_ranking
from app.scoring.run_inputs import Panel, Yardstick
from tests.records.test_store_run_endings import any_rankings
from tests.support.fakes import answered, failed, hits
from tests.support.world import CHECK, RETRIEVER, World, canary, page

KEYS = ("ant", "bee", "cat", "dog")
HISTORY = ("states", "rankings", "chunks", "scores", "vectors", "layouts", "suite_versions")


@pytest.fixture
def world(store: Store) -> World:
    """Give a world with four canaries."""
    world = World(store=store)
    world.apply(page([canary(key) for key in KEYS]))
    return world


# --- states are run-length -----------------------------------------------------------------------------------


@pytest.mark.both
def test_a_run_that_changes_nothing_writes_no_history(world: World) -> None:
    world.run()
    before = world.count(*HISTORY)
    assert before["states"] == 4
    world.run()
    world.run()
    assert world.count(*HISTORY) == before


@pytest.mark.both
def test_a_changed_canary_closes_one_state_and_opens_one(world: World) -> None:
    first, second = world.run(), world.run()
    world.probe.answers["bee"] = answered(hits("noise"))
    third = world.run()
    assert world.count("states") == {"states": 5}
    timeline = _timeline(world, "bee")
    assert [(item["first_run"], item["last_run"]) for item in timeline] == [
        (str(third.id), None),
        (str(first.id), str(second.id)),
    ]
    assert timeline[0]["reasons"] == ["missing"]
    assert timeline[1]["reasons"] == []
    assert len(_timeline(world, "ant")) == 1


def test_the_last_run_of_a_state_is_one_of_its_own_check(world: World) -> None:
    """Ids of runs count over all checks; a timeline must not point into another one's history."""
    other = {**page()["checks"][0], "slug": "other"}
    world.apply({**page([canary(key) for key in KEYS]), "checks": [*page()["checks"], other]})
    first = world.run()
    world.run("other")
    world.probe.answers["bee"] = answered(hits("noise"))
    world.run()
    closed = _timeline(world, "bee")[1]
    assert (closed["last_run"], closed["until"]) == (str(first.id), world.shown(first)["finished_at"])


def test_a_failed_probe_leaves_its_state_open_and_is_shown_as_failed(world: World) -> None:
    first = world.run()
    world.probe.answers["cat"] = failed(Outcome.TIMEOUT)
    second = world.run()
    assert world.count("states") == {"states": 4}
    result = world.results(second)["cat"]
    assert (result["outcome"], result["verdict"], result["ranking"]) == ("timeout", "unknown", [])
    assert result["top_score"] is None
    assert world.shown(second)["canaries"] == {"total": 4, "measured": 3, "failed": 1, "undefined": 0, "degraded": 0}
    del world.probe.answers["cat"]
    third = world.run()
    assert world.results(third)["cat"]["since_run"] == str(first.id)


@pytest.mark.databases
def test_a_canary_that_flips_back_reuses_its_ranking(world: World) -> None:
    world.run()
    for ranking in (hits("x"), hits("doc-dog", "noise"), hits("x"), hits("doc-dog", "noise")):
        world.probe.answers["dog"] = answered(ranking)
        world.run()
    assert world.count("states", "rankings", "scores") == {"states": 8, "rankings": 5, "scores": 5}
    assert [item["ranking"][0] for item in _timeline(world, "dog")] == ["doc-dog", "x", "doc-dog", "x", "doc-dog"]


def test_the_state_of_an_archived_canary_closes_and_old_runs_still_show_it(world: World) -> None:
    first = world.run()
    world.apply(page([canary(key) for key in KEYS[:3]]))
    second = world.run()
    assert set(world.results(second)) == set(KEYS[:3])
    assert set(world.results(first)) == set(KEYS)
    assert _timeline(world, "dog")[0]["last_run"] == str(first.id)
    world.apply(page([canary(key) for key in KEYS]))
    third = world.run()
    assert world.results(third)["dog"]["since_run"] == str(third.id)


def test_a_changed_judgment_is_applied_though_the_ranking_is_the_same(world: World) -> None:
    first = world.run()
    changed = [canary(key) for key in KEYS[:3]] + [canary("dog", expected_chunks=["noise", "elsewhere"])]
    world.apply(page(changed))
    before = world.count("rankings", "chunks")
    second = world.run()
    assert world.count("rankings", "chunks") == before
    assert world.results(first)["dog"]["measures"]["R@1"] == 1.0
    assert world.results(second)["dog"]["measures"]["R@1"] == 0.0
    assert world.results(second)["dog"]["measures"]["R@3"] == 0.5
    assert len(_timeline(world, "ant")) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"check": {"k": 1}},
        {"retriever": {"scorer": {"kind": "judged"}}},
        {"retriever": {"scorer": {"kind": "score", "scale": "distance"}}},
        {"check": {"cutoffs": [2, 4]}},
    ],
)
def test_another_yardstick_judges_every_canary_anew(world: World, change: dict[str, dict[str, Any]]) -> None:
    world.probe.otherwise = lambda ask: answered(hits("noise", f"doc-{ask.query}"))
    first = world.run()
    shown = world.shown(first), world.results(first)
    definitions = page([canary(key) for key in KEYS], **change.get("check", {}))
    definitions["retrievers"] = [{**RETRIEVER, **change.get("retriever", {})}]
    world.apply(definitions)
    before = world.count("rankings")
    second = world.run()
    assert world.count("rankings") == before
    assert world.count("states") == {"states": 8}
    assert world.results(second)["ant"] != shown[1]["ant"]
    assert (world.shown(first), world.results(first)) == shown


def test_rules_are_no_yardstick_for_results(world: World) -> None:
    world.run()
    before = world.count("states")
    world.apply(page([canary(key) for key in KEYS], rules=[{"kind": "probe_errors"}]))
    world.run()
    assert world.count("states") == before


@pytest.mark.both
def test_equal_rankings_of_several_canaries_are_stored_once(world: World) -> None:
    world.probe.all_miss()
    world.run()
    assert world.count("states", "rankings", "chunks", "scores") == {
        "states": 4,
        "rankings": 1,
        "chunks": 2,
        "scores": 4,
    }


# --- a run ---------------------------------------------------------------------------------------------------


def test_a_probe_that_fails_shows_how_and_harms_no_other(sqlite_store: Store) -> None:
    outcomes = [outcome for outcome in Outcome if outcome is not Outcome.OK]
    well = [f"well-{number}" for number in range(10 * len(outcomes))]
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in (*map(str, outcomes), *well)]))
    statuses = {outcome: 503 if outcome is Outcome.REFUSED else None for outcome in outcomes}
    for outcome, status in statuses.items():
        world.probe.answers[str(outcome)] = failed(outcome, http_status=status, detail="no luck \N{BIRD}")
    run = world.run()
    results = world.results(run, limit=100)
    for outcome, status in statuses.items():
        result = results[str(outcome)]
        told = [result[name] for name in ("outcome", "http_status", "detail", "verdict")]
        assert told == [str(outcome), status, "no luck \N{BIRD}", "unknown"]
    assert {results[key]["verdict"] for key in well} == {"healthy"}
    shown = world.shown(run)
    assert shown["probes"] == {"ok": len(well), **{str(outcome): 1 for outcome in outcomes}}
    assert (shown["status"], shown["verdict"], shown["coverage"]) == ("finished", "healthy", 1.0)
    assert shown["latency_seconds"] == {"p50": 0.5, "p95": 0.5, "max": 0.5}


def test_a_run_of_which_less_than_half_was_measured_is_unknown(world: World) -> None:
    for key in KEYS[:2]:
        world.probe.answers[key] = failed(Outcome.UNREACHABLE)
    assert world.run().verdict is Verdict.DEGRADED
    world.probe.answers["cat"] = failed(Outcome.MALFORMED)
    run = world.run()
    assert run.verdict is Verdict.UNKNOWN
    assert world.shown(run)["reasons"] == [
        "only 1 of 4 probes measured: retriever is unreachable: as told (2 of 4 probes, 1 failed otherwise)",
        "retriever answers in a form that cannot be read: as told (1 of 4 probes)",
    ]
    world.probe.all_fail()
    run = world.run()
    shown = world.shown(run)
    assert (shown["verdict"], shown["coverage"], shown["health_score"]) == ("unknown", None, None)
    assert set(shown["measures"].values()) == {None}


def test_an_empty_answer_is_a_measurement_of_zero(world: World) -> None:
    world.probe.answers["ant"] = answered(hits())
    run = world.run()
    result = world.results(run)["ant"]
    assert (result["outcome"], result["top_score"], result["any_match"]) == ("ok", 0.0, False)
    assert result["measures"]["R@5"] == 0.0
    assert world.shown(run)["coverage"] == 0.75


def test_a_run_says_what_it_worked_with(world: World) -> None:
    world.probe.answers["ant"] = answered(hits("doc-ant"), index_version="reported")
    first = world.shown(world.run(index_version="said"))
    assert first["index_version"] == "reported"
    world.probe.all_answer()
    second = world.shown(world.run(index_version="said"))
    assert second["index_version"] == "said"
    same = ("suite_hash", "config_hash", "measures_version")
    assert [first[name] for name in same] == [second[name] for name in same]
    world.apply(page([canary(key) for key in KEYS], k=3))
    third = world.shown(world.run())
    assert third["config_hash"] != second["config_hash"]
    assert third["suite_hash"] == second["suite_hash"]
    world.apply(page([canary(key) for key in KEYS[1:]], k=3))
    fourth = world.shown(world.run())
    assert fourth["config_hash"] == third["config_hash"]
    assert fourth["suite_hash"] != third["suite_hash"]


def test_a_run_says_when_the_limits_of_its_retriever_were_read(world: World) -> None:
    world.run()
    first = world.clock()
    world.run()
    assert [asking.defined_at for asking in world.probe.askings] == [first, first + timedelta(seconds=60)]


def test_definitions_changed_during_a_run_do_not_change_it(world: World) -> None:
    def change(_: int) -> None:
        world.apply(page([canary(key, expected_chunks=["other"]) for key in KEYS[:2]], k=1))

    world.probe.before_batch = change
    run = world.run()
    assert set(world.results(run)) == set(KEYS)
    assert world.shown(run)["coverage"] == 1.0


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(st.lists(any_rankings() | st.sampled_from(Outcome), min_size=3, max_size=3), max_size=4))
def test_results_read_back_as_they_were_judged_and_stay_so(store: Store, drawn: list[list[Ranking | Outcome]]) -> None:
    """A logit scale takes any score there is; whatever comes later, an older run still reads as it did."""
    described = [
        canary("one", expected_chunks=["a", {"text": "b"}, {"id": "\U0001f426", "grade": 3}], tags=["t"]),
        canary("two", category="negative", expected_chunks=[], forbidden_chunks=["a"]),
        canary("three", expected_chunks=["a"], floors={"R@5": 0.5}, category="procedural"),
    ]
    world = World(store=store)
    definitions = page(described)
    definitions["retrievers"] = [
        {**RETRIEVER, "scorer": {"kind": "score", "scale": "logit"}, "score_tolerance": 0}  # beside 1e138 all are alike
    ]
    world.apply(definitions)
    retriever = RetrieverDocument.model_validate(definitions["retrievers"][0]).to_domain()
    yardstick = Yardstick.of(k=5, fetch_k=10, cutoffs=(1, 3, 5, 10, 20), scorer=retriever.scorer, rules=())
    panel = Panel([CanaryDocument.model_validate(one).to_domain() for one in described])
    remembered: list[tuple[int, Mapping[str, Any], Mapping[str, Any]]] = []
    for answers in drawn:
        settled: dict[int, Ranking] = {}
        for position, (one, answer) in enumerate(zip(described, answers, strict=True)):
            if isinstance(answer, Ranking):
                settled[position] = round_ranking(answer, 6)
                world.probe.answers[one["query"]] = answered(answer)
            elif answer is Outcome.OK:
                settled[position] = round_ranking(hits(), 6)
                world.probe.answers[one["query"]] = answered(hits())
            else:
                world.probe.answers[one["query"]] = failed(answer)
        run = world.run()
        results = world.results(run)
        assert len(results) == 3
        for position, judged in judge(yardstick, panel, settled).items():
            result, ranking = results[described[position]["key"]], settled[position]
            assert _columns(result["ranking"]) == (ranking.ids, ranking.documents, ranking.texts, ranking.scores)
            assert result["reasons"] == [str(reason) for reason in judged.reasons]
            assert result["top_score"] == rounded_or_none(judged.top_score)
            named = dict(zip(map(str, yardstick.measures), judged.vector.tolist(), strict=True))
            assert result["measures"] == numbers(named)
            assert result["any_match"] == _found_within(judged.match, 5)
        unmeasured = [one["key"] for position, one in enumerate(described) if position not in settled]
        assert {results[key]["verdict"] for key in unmeasured} <= {"unknown"}
        remembered.append((run.id, world.shown(run), results))
    for run_id, shown, found in remembered:
        assert world.shown(run_id) == shown
        assert world.results(run_id) == found


def _columns(ranking: list[dict[str, Any]]) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(hit[name] for hit in ranking) for name in ("id", "document", "text", "score"))


def _found_within(match: Match, k: int) -> bool:
    return match.first_relevant is not None and match.first_relevant <= k


# --- reading -------------------------------------------------------------------------------------------------


@pytest.mark.both
def test_an_older_run_still_names_its_degraded_queries(world: World) -> None:
    world.probe.answers["bee"] = answered(hits("noise"))
    first = world.run()
    world.probe.answers["bee"] = failed(Outcome.TIMEOUT)
    second = world.run()
    world.probe.all_answer()
    third = world.run()
    listed = run_views.list_runs(world.store, CHECK, before=None, limit=10)
    assert [(run["id"], run["degraded_queries"]) for run in listed] == [
        (str(third.id), []),
        (str(second.id), []),
        (str(first.id), ["bee"]),
    ]
    assert world.shown(first)["degraded_queries"] == ["bee"]
    assert world.shown(second)["canaries"]["degraded"] == 0


def test_a_run_that_keeps_few_rankings_reads_the_others_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = world.shown(world.run())
    monkeypatch.setattr(plans, "MOST_RANKINGS", 1)
    monkeypatch.setattr(finalising, "_READ_AT_ONCE", 2)
    monkeypatch.setattr(run_outcomes, "_JUDGED_AT_ONCE", 2)
    monkeypatch.setattr(finalising, "_SAVED_AT_ONCE", 2)
    for key in KEYS:
        world.probe.answers[key] = answered(hits("noise", f"doc-{key}"))
    read_back = world.run()
    results = run_views.report(world.store, str(read_back.id))["results"]
    assert [one["measures"]["RR"] for one in results] == [0.5] * len(KEYS)
    assert [one["ranking"][1]["id"] for one in results] == [f"doc-{key}" for key in KEYS]
    assert {one["since_run"] for one in results} == {str(read_back.id)}
    assert kept["measures"]["MRR"] == 1


def _timeline(world: World, key: str) -> Sequence[CanaryState]:
    return charts.canary_history(world.store, CHECK, key).items


# --- what releases before left, and large canaries -----------------------------------------------------------


@pytest.mark.both
def test_runs_of_a_measures_version_before_read_as_they_were_and_are_said_not_to_compare(world: World) -> None:
    world.run()
    world.probe.answers["bee"] = answered(hits("noise"))
    old = world.run()
    before = run_views.report(world.store, str(old.id))
    with world.store.write() as connection:  # as the release before stored it
        for row in connection.execute(sa.select(layouts.c.id, layouts.c.hash)).all():
            was = sa.update(layouts).where(layouts.c.id == row.id)
            connection.execute(was.values(measures_version="1", hash=bytes(row.hash)[::-1]))
    for named in (None, "1"):
        read = run_views.report(world.store, str(old.id), version=named)
        assert read == {**before, "run": {**before["run"], "measures_version": "1"}}
    later = replace(world, store=Store(world.store.engine.url.render_as_string(hide_password=False)))  # of this release
    new = run_views.report(world.store, str(later.run().id))
    later.store.close()
    assert new["run"]["measures_version"] == "2"
    assert compare_reports(read, new)["differences"] == ["the numbers are of different measures versions"]
    assert run_views.report(world.store, str(old.id)) == read


@pytest.mark.both
def test_a_run_over_stored_definitions_this_release_refuses_fails_with_the_reason(world: World) -> None:
    with world.store.write() as connection:
        connection.execute(
            sa.update(canary_versions).values(
                body=sa.func.replace(canary_versions.c.body, '"query":"bee"', '"query":7')
            )
        )
    ended = world.run()
    assert ended.status == "failed"
    reasons = run_views.report(world.store, str(ended.id))["run"]["reasons"]
    assert reasons == [
        "canary 'bee' cannot be used as it is defined: query: must be text, not a number; put it in quotes"
    ]


@pytest.mark.databases
def test_a_canary_of_thousands_of_judgments_by_document_is_run_and_read(world: World) -> None:
    expected = [{"document": f"d{number}"} for number in range(4_999)]
    world.apply(page([canary("ant", expected_chunks=[{"id": "doc-ant"}, *expected])]))
    ended = world.run()
    assert ended.status == "finished"
    (result,) = run_views.report(world.store, str(ended.id))["results"]
    assert (result["measures"]["R@5"], result["any_match"]) == (round(1 / 5_000, 6), True)
