"""Canaries that must get nothing, fresh hits or a fast answer, and chunks that must never be returned."""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.base.values import Answer, Canary, Category, Judgment, Outcome, Ranking, Reason, replace
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import read_canary_files
from app.records.views import why_degraded
from app.reports.rendering.reports import report_junit
from app.reports.service import charts
from app.runs.service.gate import choose_targets, measure
from app.scoring.evaluation import forbidden_ranks, judge_timing, newest_age
from tests.support.fakes import START, FakeClock, FakeProbe, answered, failed, hits
from tests.support.world import CHECK, RETRIEVER, World, canary, documents, page

DATED = {**RETRIEVER, "response": {**RETRIEVER["response"], "text": "text", "document": "doc", "updated": "changed"}}
NOW = START.timestamp()


def dated(ranking: Ranking, *ages: float | None, seconds: float = 0.5) -> Answer:
    """Make the answer whose hits were last changed so many seconds before the tests begin."""
    updated = tuple(None if age is None else NOW - age for age in ages)
    return answered(replace(ranking, updated=updated), seconds=seconds)


@pytest.fixture
def world(store: Store) -> World:
    """Give a world of canaries of every kind, all of them content."""
    world = World(store=store)
    world.probe.answers = _content()
    world.apply(_page())
    return world


def _page() -> dict[str, Any]:
    nothing: Mapping[str, Any] = {"expected_chunks": []}
    kinds = [
        canary("plain"),
        canary("empty", expect_empty=True, **nothing),
        canary("fresh", max_age="2m"),
        canary("fast", max_latency="800ms"),
        canary("secret", forbidden_chunks=[{"document": "tenant-b"}, {"text": "The notice period is 14 days."}]),
    ]
    return {**page(kinds, k=2), "retrievers": [DATED]}


def _content() -> dict[str, Answer]:
    fresh = dated(hits("doc-fresh", "noise", "new"), 30, None, -3600)
    plain = dated(replace(hits("doc-plain", texts={"doc-plain": "All there is."}), documents=("a.md",)), 30)
    return {"empty": answered(hits()), "fresh": fresh, "plain": plain}


def _states(world: World, key: str) -> list[Sequence[str]]:
    """Give the reasons of the states a canary went through, oldest first."""
    items = charts.canary_history(world.store, CHECK, key).items
    return [item["reasons"] for item in reversed(items)]


# --- must be empty -------------------------------------------------------------------------------------------


def test_a_canary_that_must_get_nothing_is_healthy_with_nothing_and_in_no_mean(world: World) -> None:
    run = world.run()
    result, shown = world.results(run)["empty"], world.shown(run)
    assert (result["outcome"], result["verdict"], result["reasons"]) == ("ok", "healthy", [])
    assert set(result["measures"].values()) == {None}
    assert shown["canaries"] == {"total": 5, "measured": 5, "failed": 0, "undefined": 1, "degraded": 0}
    assert (shown["verdict"], shown["coverage"], shown["health_score"]) == ("healthy", 1.0, 0.9)


def test_any_hit_is_forbidden_to_a_canary_that_must_get_nothing(world: World) -> None:
    world.probe.answers["empty"] = answered(hits("weak", "weaker", scores=[0.01, 0.005]))
    run = world.run()
    result = world.results(run)["empty"]
    assert (result["verdict"], result["reasons"], result["forbidden_ranks"]) == ("degraded", ["forbidden"], [1, 2])
    assert why_degraded(result) == ["returned 2 hits where nothing may be returned"]
    assert world.shown(run)["health_score"] == 0.9
    assert world.shown(run)["degraded_queries"] == ["empty"]


def test_a_negative_canary_that_must_get_nothing_was_answered_if_it_got_anything(world: World) -> None:
    """The reason is `forbidden`: how relevant the hits are does not matter. The ratio counts it all the same."""
    leaky = {"key": "leaky", "query": "leaky", "category": "negative", "expect_empty": True}
    quiet = {**leaky, "key": "quiet", "query": "quiet"}
    world.apply({**_page(), "canaries": [*_page()["canaries"], leaky, quiet]})
    ratios = []
    for leak in (hits("x", scores=[0.01]), hits()):
        world.probe.answers |= {"leaky": answered(leak), "quiet": answered(hits())}
        run = world.run()
        ratios.append(world.shown(run)["categories"]["negative"]["measures"]["answered_ratio"])
        assert world.results(run)["leaky"]["reasons"] == (["forbidden"] if leak else [])
    assert ratios == [0.5, 0.0]


@pytest.mark.parametrize(
    "more", [{"expected_chunks": ["a"]}, {"expected_top_chunks": ["a"]}, {"max_age": "2d"}, {"floors": {"R@5": 0.5}}]
)
def test_nothing_may_be_asked_of_hits_that_must_not_be_there(more: dict[str, Any]) -> None:
    (field,) = more
    with pytest.raises(InvalidInputError) as caught:
        parse_document(CanaryDocument, {"key": "a", "query": "q", "expect_empty": True, **more})
    (problem,) = caught.value.problems
    assert problem.path == field.replace("_top", "")
    assert problem.message == "cannot be combined with expect_empty: nothing may be found"


# --- must not be returned ------------------------------------------------------------------------------------


def test_a_forbidden_chunk_is_known_by_its_document_and_by_its_text_under_any_id(world: World) -> None:
    leak = replace(hits("doc-secret", "x", "y"), documents=("tenant-a", "tenant-b", None))
    world.probe.answers["secret"] = answered(leak)
    by_document = world.results(world.run())["secret"]
    withdrawn = {"y": "Terms, as of today: the notice\nperiod is 14 days. Signed."}
    world.probe.answers["secret"] = answered(hits("doc-secret", "x", "y", texts=withdrawn))
    by_text = world.results(world.run())["secret"]
    assert (by_document["reasons"], by_document["forbidden_ranks"]) == (["forbidden"], [2])
    assert (by_text["reasons"], by_text["forbidden_ranks"]) == (["forbidden"], [3])
    assert why_degraded(by_text) == ["a chunk that must not be returned was returned at rank 3"]


def test_every_forbidden_hit_is_named_once() -> None:
    secret = Canary(key="a", query="q", forbidden=(Judgment(id="x"), Judgment(document="d")))
    ranking = replace(hits("x", "fine", "other"), documents=("d", None, "d"))
    assert forbidden_ranks(secret, ranking) == [1, 3]


# --- freshness -----------------------------------------------------------------------------------------------


@pytest.mark.both
def test_the_same_ranking_turns_stale_with_time_and_only_then_is_a_state_written(world: World) -> None:
    """The canary wants a hit of the last two minutes; a newer one below the top 2 does not count."""
    first = world.run()  # a minute after the hit was half a minute old
    before = world.count("rankings", "scores", "chunks")
    second, third = world.run(), world.run()
    assert _states(world, "fresh") == [[], ["stale"]]
    assert world.count("rankings", "scores", "chunks") == before
    ages = [world.results(run)["fresh"]["age_seconds"] for run in (first, second, third)]
    assert ages == [pytest.approx(91), pytest.approx(151), pytest.approx(211)]


def test_a_hit_that_was_written_anew_is_fresh_again(world: World) -> None:
    for _ in range(3):
        world.run()
    world.probe.answers["fresh"] = dated(hits("doc-fresh", "noise", "new"), -300, None, None)
    world.run()
    assert _states(world, "fresh") == [[], ["stale"], []]


def test_a_stale_canary_says_how_old_and_how_old_it_may_be(world: World) -> None:
    run = [world.run() for _ in range(3)][-1]
    result = world.results(run)["fresh"]
    assert (result["verdict"], result["reasons"], result["max_age_seconds"]) == ("degraded", ["stale"], 120.0)
    assert result["ranking"][0]["updated"] == "2026-03-02T11:59:30Z"
    assert why_degraded(result) == ["the newest of its top 2 hits is 3.5 min old, more than 2 min"]
    assert world.shown(run)["degraded_queries"] == ["fresh"]
    assert world.shown(run)["coverage"] == 1.0


def test_older_runs_still_read_as_they_were(world: World) -> None:
    remembered = []
    for seconds in (0.5, 0.9, 0.9, 0.5):
        world.probe.answers["fast"] = answered(hits("doc-fast"), seconds=seconds)
        run = world.run()
        remembered.append((run.id, world.shown(run), world.results(run)))
    for run_id, shown, results in remembered:
        assert world.shown(run_id) == shown
        assert world.results(run_id) == results


def test_without_a_date_nothing_is_called_stale_and_the_run_says_so(world: World) -> None:
    world.probe.answers["fresh"] = dated(hits("doc-fresh", "noise", "old"), None, None, 10**9)
    run = world.run()
    result = world.results(run)["fresh"]
    assert (result["verdict"], result["reasons"], result["age_seconds"]) == ("healthy", [], None)
    assert world.shown(run)["reasons"] == [
        "staleness is not known for 1 of 5 canaries: none of their top hits has a date"
    ]
    world.probe.answers["fresh"] = answered(hits("doc-fresh"))
    assert len(world.shown(world.run())["reasons"]) == 1


def test_an_empty_answer_is_stale_where_something_fresh_is_expected(world: World) -> None:
    for _ in range(2):
        world.probe.answers["fresh"] = answered(hits())
        run = world.run()
        result = world.results(run)["fresh"]
        assert (result["verdict"], result["reasons"], result["age_seconds"]) == (
            "degraded",
            ["low_relevance", "missing", "stale"],
            None,
        )
        assert world.shown(run)["reasons"] == ["coverage 0.750 is below 0.9 (warning)"]  # no word of missing dates
    assert why_degraded(result)[-1] == "returned nothing, where something no older than 2 min was expected"


def test_an_empty_answer_is_stale_also_where_no_chunk_is_expected_but_not_where_none_exists() -> None:
    aged = Canary(key="a", query="q", max_age_seconds=60)
    assert judge_timing(aged, age_seconds=None, latency_seconds=0.1, empty=True) == (Reason.STALE,)
    negative = replace(aged, category=Category.NEGATIVE)
    assert judge_timing(negative, age_seconds=None, latency_seconds=0.1, empty=True) == ()


def test_a_failed_probe_says_nothing_of_age_or_speed(world: World) -> None:
    for _ in range(3):
        world.run()
    slow = replace(failed(Outcome.TIMEOUT), latency_seconds=30.0)
    world.probe.answers |= {"fresh": slow, "fast": slow}
    run = world.run()
    assert world.results(run)["fresh"]["reasons"] == world.results(run)["fast"]["reasons"] == []
    assert not any(word in one for one in world.shown(run)["reasons"] for word in ("stale", "slow"))
    assert _states(world, "fresh") == [[], ["stale"]]
    assert _states(world, "fast") == [[]]


def test_the_newest_of_the_top_k_counts() -> None:
    ranking = replace(hits("a", "b", "c"), updated=(NOW - 50, None, NOW - 10))
    assert newest_age(ranking, 2, START) == 50
    assert newest_age(ranking, 3, START) == 10
    assert newest_age(replace(ranking, updated=(None, None, NOW)), 2, START) is None
    assert newest_age(hits("a"), 1, START) is None
    assert newest_age(hits(), 1, START) is None


FILE = """suite: s
canaries:
  - key: a
    query: q
    expected_chunks: [d]
    max_age: 2d
retrievers:
  - {slug: r, url: "http://127.0.0.1:9/", response: {hits: hits, id: id}}
checks:
  - {slug: c, suite: s, retriever: r, schedule: {every: 5m}}
"""


def test_a_maximum_age_of_hits_that_do_not_tell_theirs_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_canary_files([("f.yaml", FILE)], {}, None)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.path) == ("f.yaml", 6, "canaries[0].max_age")
    assert problem.message == "can never be judged: retriever 'r' maps no 'updated' under 'response'"
    read_canary_files([("f.yaml", FILE.replace("id: id", "id: id, updated: changed"))], {}, None)


def test_the_gate_refuses_such_an_age_where_no_check_names_the_retriever() -> None:
    lone = read_canary_files([("f.yaml", FILE[: FILE.index("checks:")])], {}, None)
    with pytest.raises(InvalidInputError, match="max_age: of canary 's/a' can never be judged: retriever 'r' maps no"):
        choose_targets(lone)


# --- speed ---------------------------------------------------------------------------------------------------


def test_a_slow_answer_degrades_its_canary_while_it_is_slow(world: World) -> None:
    for seconds in (0.5, 0.8, 1.2, 0.9, 0.5):
        world.probe.answers["fast"] = answered(hits("doc-fast", "noise"), seconds=seconds)
        run = world.run()
        if seconds == 1.2:
            result = world.results(run)["fast"]
            assert (result["verdict"], result["max_latency_seconds"]) == ("degraded", 0.8)
            assert why_degraded(result) == ["answered in 1.2 s, more than 800 ms"]
            assert "fast" in world.shown(run)["degraded_queries"]
    assert _states(world, "fast") == [[], ["slow"], []]


@pytest.mark.parametrize("most", [0.001, 0.1, 0.3, 0.7, 1.1, 33.3])
def test_an_answer_just_in_time_is_not_slow_though_latencies_are_kept_roughly(most: float) -> None:
    limited = Canary(key="a", query="q", max_latency_seconds=most)
    assert judge_timing(limited, age_seconds=None, latency_seconds=most) == ()
    assert judge_timing(limited, age_seconds=None, latency_seconds=most * 1.002) == (Reason.SLOW,)


def test_reasons_of_the_moment_come_beside_those_of_the_ranking(world: World) -> None:
    world.probe.answers["fast"] = answered(hits("noise", scores=[0.2]), seconds=3.0)
    assert world.results(world.run())["fast"]["reasons"] == ["low_relevance", "missing", "slow"]
    world.probe.answers["fast"] = answered(hits("noise", scores=[0.2]))
    world.run()
    assert _states(world, "fast") == [["low_relevance", "missing", "slow"], ["low_relevance", "missing"]]


# --- everywhere alike ----------------------------------------------------------------------------------------


def _degrading() -> dict[str, Answer]:
    return {
        "empty": answered(hits("leak")),
        "fresh": dated(hits("doc-fresh"), 500),
        "fast": answered(hits("doc-fast"), seconds=0.9),
        "secret": answered(replace(hits("doc-secret", "x"), documents=(None, "tenant-b"))),
    }


def test_the_gate_and_the_service_say_the_same_of_every_kind(world: World) -> None:
    world.probe.answers = _degrading()
    run = world.run()
    of_service = world.results(run)
    (target,) = choose_targets(documents(_page()))
    report = measure(target, FakeProbe(answers=_degrading()), run_id="r", clock=FakeClock(now=world.clock()))
    of_gate = {result["key"]: result for result in report["results"]}
    assert {key: result["reasons"] for key, result in of_gate.items()} == {
        "plain": [],
        "empty": ["forbidden"],
        "fresh": ["stale"],
        "fast": ["slow"],
        "secret": ["forbidden"],
    }
    for key, result in of_gate.items():
        assert result["latency_seconds"] == pytest.approx(of_service[key].pop("latency_seconds"), rel=1e-3)
        assert of_service[key].pop("since_run") == str(run.id)
        del result["latency_seconds"], result["since_run"]
        assert result == of_service[key]
    same = ("verdict", "reasons", "degraded_queries", "canaries", "coverage", "health_score")
    told = {name: value for name, value in report["run"].items() if name in same}
    assert told == {name: world.shown(run)[name] for name in same}


def test_an_export_reads_back_as_it_was_in_words_people_write() -> None:
    before = documents(_page())
    text = write_canary_file(before)
    assert "max_age: 2m" in text
    assert "max_latency: 800ms" in text
    assert "expect_empty: true" in text
    after = read_canary_files([("f.yaml", text)], {"HOOK_OPS_SECRET": "whsec_" + 32 * "A"}, None)
    assert after.suites == before.suites


def test_a_content_canary_that_expects_no_chunk_passes_in_junit(world: World) -> None:
    world.apply({**_page(), "canaries": [*_page()["canaries"], {"key": "bare", "query": "bare"}]})
    run = world.run()
    results = list(world.results(run).values())
    suites = ET.fromstring(report_junit({"run": world.shown(run), "worst": [], "results": results}))  # noqa: S314 - our own
    told = {case.get("name"): [child.tag for child in case if child.tag != "system-out"] for case in suites[0]}
    assert told["empty"] == told["fresh"] == []
    assert told["bare"] == ["skipped"]
