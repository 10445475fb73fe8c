"""Two runs held against each other: who changed sides, by how much, whether by chance, and what speaks against it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.base.db.engine import Store
from app.base.errors import InvalidInputError
from app.base.values import Outcome, Verdict
from app.comparison.domain.estimates import estimate, randomisation_test
from app.comparison.domain.outcomes import Change, RunSide, pair_up
from app.comparison.service import comparisons
from app.runs.service import rescoring
from app.scoring.rankings import rbo
from tests.support.api_service import Api, api
from tests.support.fakes import answered, failed, hits
from tests.support.world import CHECK, RETRIEVER, World, canary, page

KEYS = tuple(f"c{number:02}" for number in range(14))
HEALTHY, DEGRADED, UNKNOWN = Verdict.HEALTHY, Verdict.DEGRADED, Verdict.UNKNOWN


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give what `made` makes on SQLite, for what does not depend on the database."""
    return made(sqlite_store)


@pytest.fixture
def any_world(store: Store) -> World:
    """Give the same on each database."""
    return made(store)


def made(store: Store) -> World:
    world = World(store=store)
    world.apply(page([canary(key) for key in KEYS], k=5, rules=[], hooks=[]))
    return world


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        opened.docs()
        yield opened


def diff(world: World, before: Any, now: Any, **more: Any) -> dict[str, Any]:
    found = comparisons.diff(world.store, str(before.id), str(now.id), **more)
    return {**found, "next": None if found["next"] is None else int(found["next"])}


def items(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["key"]: item for item in found["items"]}


# The pairing itself


def side(verdicts: list[Verdict], ndcg: list[float], rankings: list[int | None], **more: Any) -> RunSide:
    keys = more.get("keys", [f"k{place}" for place in range(len(verdicts))])
    return RunSide(
        keys=keys, queries=more.get("queries", keys), verdicts=verdicts, rankings=rankings, scores=np.array(ndcg)
    )


def test_every_way_to_change_has_a_name_and_the_worst_comes_first() -> None:
    before = side(
        [HEALTHY, HEALTHY, HEALTHY, HEALTHY, DEGRADED, UNKNOWN, HEALTHY, DEGRADED, HEALTHY, HEALTHY],
        [1.0, 1.0, 0.5, 1.0, 0.0, np.nan, 1.0, 0.4, 1.0, np.nan],
        [1, 2, 3, 4, 5, None, 7, 8, 9, 10],
        keys=["lost", "worse", "better", "moved", "healed", "unheard", "gone", "same", "other", "anew"],
        queries=["lost", "worse", "better", "moved", "healed", "unheard", "gone", "same", "other", "anew"],
    )
    now = side(
        [HEALTHY, DEGRADED, HEALTHY, HEALTHY, HEALTHY, HEALTHY, HEALTHY, DEGRADED, HEALTHY, DEGRADED],
        [1.0, 0.0, 0.7, 0.9, 1.0, 1.0, 1.0, 0.4, 1.0, np.nan],
        [11, 12, 13, 14, 15, 4, 16, 8, 9, 10],
        keys=["new", "lost", "worse", "better", "healed", "moved", "unheard", "same", "other", "anew"],
        queries=["new", "lost", "worse", "better", "healed", "moved", "unheard", "same", "another question", "anew"],
    )
    # `moved` kept ranking 4: it is the same. `better` has a new one, and more.
    assert [(pair.key, pair.change) for pair in pair_up(before, now, rejudged=["anew"])] == [
        ("lost", Change.DEGRADED),
        ("worse", Change.WORSE),
        ("moved", Change.SAME),
        ("same", Change.SAME),
        ("better", Change.BETTER),
        ("healed", Change.HEALED),
        ("unheard", Change.UNKNOWN),
        ("other", Change.REWRITTEN),
        ("anew", Change.REJUDGED),
        ("new", Change.ADDED),
        ("gone", Change.REMOVED),
    ]


# Over real runs


def test_a_run_is_compared_canary_by_canary(any_world: World) -> None:
    before = any_world.run(index_version="v1")
    any_world.probe.answers = {
        "c00": answered(hits("noise")),
        "c01": answered(hits("noise", "doc-c01")),
        "c02": answered(hits("doc-c02", "other")),
        "c03": failed(Outcome.TIMEOUT),
    }
    now = any_world.run(index_version="v2")
    found = diff(any_world, before, now)
    assert found["comparable"]
    assert found["differences"] == ["the index versions are v1 and v2"]
    assert {name: count for name, count in found["changes"].items() if count} == {
        "degraded": 1,
        "worse": 1,
        "reranked": 1,
        "same": 10,
        "unknown": 1,
    }
    assert [item["key"] for item in found["items"][:2]] == ["c00", "c01"]
    lost, outranked, reranked, unheard, same = (items(found)[f"c0{number}"] for number in range(5))
    assert (lost["change"], lost["before"]["rank"], lost["now"]["rank"]) == ("degraded", 1, None)
    assert (lost["before"]["reasons"], lost["now"]["reasons"]) == ([], ["missing"])
    assert (outranked["change"], outranked["before"]["rank"], outranked["now"]["rank"]) == ("worse", 1, 2)
    assert outranked["difference"] == pytest.approx(1 / np.log2(3) - 1, abs=1e-6)
    assert outranked["rbo"] == pytest.approx(rbo(["doc-c01", "noise"], ["noise", "doc-c01"]), abs=1e-6)
    single = outranked["now"]["measures"]
    assert (single["RR"], single["AP"], {"MRR", "MAP"} & set(single)) == (0.5, 0.5, set()), "no means of one canary"
    assert (reranked["change"], reranked["difference"], reranked["now"]["rank"]) == ("reranked", 0.0, 1)
    assert 0 < reranked["rbo"] < 1
    assert (same["change"], same["rbo"]) == ("same", 1.0)
    assert (unheard["change"], unheard["rbo"], unheard["now"]["outcome"]) == ("unknown", None, "timeout")
    assert unheard["now"]["verdict"] == "unknown"
    assert unheard["now"]["measures"]["NDCG@10"] is None, "what the canary once had is no measurement of this run"


def test_measures_differ_by_pairs_with_their_interval_and_chance(world: World) -> None:
    before = world.run()
    world.probe.answers = {key: answered(hits("noise")) for key in KEYS[:5]} | {"c13": failed(Outcome.TIMEOUT)}
    now = world.run()
    coverage = diff(world, before, now)["measures"]["coverage"]
    then, later = np.ones(13), np.array([0.0] * 5 + [1.0] * 8)
    interval = estimate("coverage", then, later)
    assert (coverage["before"], coverage["now"]) == (1.0, pytest.approx(8 / 13, abs=1e-6))
    assert coverage["paired"] == {
        "canaries": 13,
        "before": 1.0,
        "now": pytest.approx(8 / 13, abs=1e-6),
        "difference": pytest.approx(-5 / 13, abs=1e-6),
        "low": pytest.approx(interval.low, abs=1e-6),
        "high": pytest.approx(interval.high, abs=1e-6),
        "confidence": 0.95,
        "p": pytest.approx(randomisation_test(then, later), abs=1e-6),
    }
    assert coverage["paired"]["high"] < 0


def test_nothing_differs_between_a_run_and_itself(world: World) -> None:
    run = world.run()
    found = diff(world, run, run)
    assert (found["comparable"], found["differences"]) == (True, ["both are one and the same run"])
    assert {item["change"] for item in found["items"]} == {"same"}
    assert {one["difference"] for one in found["measures"].values()} <= {0.0, None}
    assert {one["paired"]["p"] for one in found["measures"].values() if one["paired"]} <= {1.0, None}


def test_what_differs_about_how_runs_came_about_is_said(world: World) -> None:
    before = world.run()
    changed = [canary(key) for key in KEYS[1:]] + [canary("new")]
    changed[0] = {**changed[0], "query": "another question"}
    world.apply(page(changed, k=3, rules=[], hooks=[], retriever="search"))
    now = world.run()
    found = diff(world, before, now)
    assert not found["comparable"]
    assert found["differences"] == [
        "the suites differ: only canaries with the same key, query and judgments are compared",
        "k is 5 and 3, which coverage and who is degraded depend on: compared at 3",
    ]
    changes = {key: item["change"] for key, item in items(found).items()}
    assert {changes["c00"], changes["c01"], changes["new"]} == {"removed", "rewritten", "added"}
    assert items(found)["c00"]["now"] is None
    assert items(found)["new"]["before"] is None
    assert found["measures"]["NDCG@10"]["paired"]["canaries"] == 12


def test_runs_of_two_checks_over_one_suite_are_compared_and_that_is_said(world: World) -> None:
    keys = [canary(key) for key in KEYS]
    one, two = page(keys, k=5, rules=[], hooks=[]), page(keys, slug="second", retriever="other", rules=[], hooks=[])
    one["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    one["checks"] += two["checks"]
    world.apply(one)
    before = world.run()
    world.probe.answers = {"c00": answered(hits("noise"))}
    now = world.run("second")
    found = diff(world, before, now)
    assert found["comparable"], "two retrievers over the same questions is what a comparison is for"
    assert found["differences"] == [
        "the runs are of different checks, watch and second",
        "different retrievers were asked, search and other",
    ]
    assert (found["before"]["retriever"], found["now"]["retriever"]) == ("search", "other")
    assert found["decision"]["sentence"].startswith("no difference shown between A and B over 14 canaries")
    assert items(found)["c00"]["change"] == "degraded"


def test_canaries_come_in_pages_the_worst_first_and_by_what_became_of_them(world: World) -> None:
    before = world.run()
    world.probe.answers = {"c07": answered(hits("noise")), "c09": answered(hits("noise", "doc-c09"))}
    now = world.run()
    seen, after = [], 0
    while after is not None:
        part = diff(world, before, now, after=after, limit=5)
        seen += [item["key"] for item in part["items"]]
        after = part["next"]
    assert seen == ["c07", "c09", *(key for key in KEYS if key not in {"c07", "c09"})]
    only = diff(world, before, now, changes=[Change.WORSE])
    assert [item["key"] for item in only["items"]] == ["c09"]
    assert only["next"] is None
    assert only["changes"]["degraded"] == 1, "the counts are of all canaries"


def test_two_runs_are_compared_by_corrected_judgments(any_world: World) -> None:
    any_world.probe.answers = {"c00": answered(hits("renamed"))}
    before = any_world.run()
    any_world.probe.answers = {"c00": answered(hits("noise"))}
    now = any_world.run()
    corrected = [canary("c00", expected_chunks=["renamed"]), *(canary(key) for key in KEYS[1:])]
    any_world.apply(page(corrected, k=5, rules=[], hooks=[]))
    asked = rescoring.ask(any_world.store, CHECK, since=None, now=any_world.clock())
    rescoring.claim(any_world.store, owner="w", now=any_world.clock(), only=asked)
    assert rescoring.carry_on(any_world.store, asked, owner="w", clock=any_world.clock)
    version = rescoring.show(any_world.store, asked)["measures_version"]
    assert diff(any_world, before, now)["changes"]["degraded"] == 0
    anew = diff(any_world, before, now, version=version)
    assert anew["changes"]["degraded"] == 1
    assert anew["comparable"]
    assert {anew[side]["measures_version"] for side in ("before", "now")} == {version}
    with pytest.raises(InvalidInputError):
        diff(any_world, before, now, version="9.r9")


# Over REST


def test_a_diff_is_shown_over_rest_in_full_shape(service: Api) -> None:
    before = service.run()
    service.retriever.found = {"How long is data kept?": ["c9"]}
    now = service.run()
    path = f"/v1/runs/{before['id']}/diff/{now['id']}"
    found = service.get(path, limit=1)
    assert set(found) == {
        "before", "now", "comparable", "differences", "changes", "decision", "measures", "categories", "ordered_by",
        "items", "next",
    }  # fmt: skip
    assert found["before"]["id"] == before["id"]
    assert found["now"]["verdict"] == now["verdict"]
    assert set(found["changes"]) == set(Change)
    [item] = found["items"]
    assert set(item) == {"key", "query", "category", "tags", "change", "difference", "rbo", "before", "now"}
    assert (item["key"], item["change"], item["tags"]) == ("retention", "degraded", ["legal", "data"])
    assert set(item["now"]) == {"verdict", "outcome", "reasons", "rank", "top_score", "measures"}
    assert [one["key"] for one in service.get(path, after=found["next"])["items"]] == ["oauth", "moon"]
    assert found["categories"]["simple_factual"]["coverage"] == {"before": 1.0, "now": 0.0, "difference": -1.0}
    assert found["measures"]["coverage"]["paired"]["low"] is None, "two canaries are too few for an interval"


def test_a_diff_that_cannot_be_is_a_problem(service: Api) -> None:
    service.run()
    cases: list[tuple[str, int]] = [
        ("/v1/runs/1/diff/77", 404),
        ("/v1/runs/x/diff/1", 404),
        ("/v1/runs/1/diff/1?change=x", 422),
    ]
    for path, status in cases:
        answer = service.client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


# Against the baseline


def test_results_say_how_alike_their_rankings_are_to_those_of_the_baseline(world: World) -> None:
    first = world.run()
    assert {result["rbo"] for result in world.results(first).values()} == {None}, "there is no baseline yet"
    for _ in range(21):
        world.run()
    world.probe.answers = {"c00": answered(hits("noise", "doc-c00")), "c01": failed(Outcome.TIMEOUT)}
    again = [canary("c02", min_relevance_score=0.4), canary("c03", query="another question")]
    world.apply(page([canary("c00"), canary("c01"), *again, canary("c04")], k=5, rules=[], hooks=[]))
    alike = {key: result["rbo"] for key, result in world.results(world.run()).items()}
    assert alike == {
        "c00": pytest.approx(rbo(["doc-c00", "noise"], ["noise", "doc-c00"]), abs=1e-6),
        "c01": None,
        "c02": 1.0,
        "c03": None,
        "c04": 1.0,
    }
