"""Two runs or checks compared as A and B: over real runs, and over REST."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.errors import ConflictError, NotFoundError
from app.base.values import Judgment, Outcome, replace
from app.comparison.domain.outcomes import ComparisonVerdict
from app.comparison.service import comparisons
from app.comparison.service.compared_runs import differences, read_run
from app.comparison.service.comparisons import compare_runs
from app.scoring.rankings import Match, match, prepare
from tests.support.api_service import CHECK as API_CHECK
from tests.support.api_service import Api, api
from tests.support.fakes import answered, failed, hits
from tests.support.world import CHECK, RETRIEVER, World, canary, page

KEYS = tuple(f"c{number:02}" for number in range(30))
OTHER = "second"


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
    world.apply(two_checks())
    return world


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        opened.docs()
        yield opened


def two_checks(
    first: Mapping[str, Any] | None = None, second: Mapping[str, Any] | None = None, keys: Sequence[str] = KEYS
) -> dict[str, Any]:
    """Make a page of two checks over one suite and two retrievers."""
    canaries = [canary(key, category="procedural" if key > "c14" else "simple_factual") for key in keys]
    plain: dict[str, Any] = {"k": 5, "rules": [], "hooks": []}
    one = page(canaries, **{**plain, **(first or {})})
    two = page(canaries, **{**plain, "slug": OTHER, "retriever": "other", **(second or {})})
    one["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    one["checks"] += two["checks"]
    return one


def compare(world: World, a: str, b: str, **more: Any) -> dict[str, Any]:
    found, _ = comparisons.compare_references(world.store, a, b, **more)
    return {**found, "next": None if found["next"] is None else int(found["next"])}


def primary(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["measure"]: one for one in found["primary"]}


def test_a_check_stands_for_its_newest_ended_run(any_world: World) -> None:
    any_world.run()
    newest = any_world.run()
    other = any_world.run(OTHER)
    any_world.wish(OTHER)
    found = compare(any_world, f"check:{CHECK}", f"check:{OTHER}")
    assert (found["a"]["id"], found["b"]["id"]) == (str(newest.id), str(other.id))
    assert (found["a"]["reference"], found["a"]["check"], found["b"]["retriever"]) == (f"check:{CHECK}", CHECK, "other")
    assert compare(any_world, f"run:{newest.id}", f"run:{other.id}")["sentence"] == found["sentence"]


def test_a_worse_retriever_is_said_to_be_worse_and_its_losses_are_named(world: World) -> None:
    world.run()
    world.probe.answers = {key: answered(hits("noise")) for key in KEYS[:12]} | {
        "c28": failed(Outcome.TIMEOUT),
        "c29": answered(hits("noise", "doc-c29")),
    }
    world.run(OTHER)
    found = compare(world, f"check:{CHECK}", f"check:{OTHER}", limit=13)
    assert (found["verdict"], found["canaries"]) == ("worse", 29)
    assert found["sentence"].startswith("B scores worse than A: NDCG@10 down 0.4")
    assert {(one["claim"], one["winner"]) for one in found["primary"]} == {("claimed", "a")}
    assert list(primary(found)) == ["NDCG@10", "R@5", "P@5", "MRR@10", "coverage"]
    assert found["wins"] == {"a": 13, "b": 0, "ties": 16}
    assert [one["key"] for one in found["items"]] == [*KEYS[:12], "c29"], "the largest losses first"
    assert (found["items"][0]["rank_a"], found["items"][0]["rank_b"]) == (1, None)
    assert (found["items"][-1]["rank_b"], found["items"][-1]["winner"]) == (2, "a")
    assert found["next"] == 13
    assert [one["sentence"] for one in found["excluded"]] == ["1 canary was not measured in B: c28"]
    assert found["differences"][0] == f"the runs are of different checks, {CHECK} and {OTHER}"
    parts = {one["category"]: one for one in found["by_category"]}
    assert (parts["simple_factual"]["winner"], parts["simple_factual"]["canaries"]) == ("a", 15)
    assert (parts["procedural"]["winner"], parts["procedural"]["verdict"]) == (None, "no_difference_shown")


def test_the_measure_of_the_use_of_the_first_check_leads(world: World) -> None:
    world.apply(two_checks({"use": "single_answer"}, {"use": "completeness"}))
    world.run()
    world.probe.answers = {key: answered(hits("noise", f"doc-{key}")) for key in KEYS[:12]}
    world.run(OTHER)
    found = compare(world, f"check:{CHECK}", f"check:{OTHER}")
    assert list(primary(found)) == ["MRR@10", "NDCG@10", "R@5", "P@5", "coverage"]
    assert found["sentence"].startswith("B scores worse than A: MRR@10 down 0.2")
    assert (found["ordered_by"], found["items"][0]["difference"]) == ("MRR@10", -0.5)
    other = compare(world, f"check:{OTHER}", f"check:{CHECK}")
    assert (next(iter(primary(other))), other["verdict"]) == ("R@5", "better")


def test_one_retriever_asked_for_5_and_for_20_hits_is_not_said_to_differ(world: World) -> None:
    """Half of the canaries find what they expect at rank 8: uncut, the deeper check has the better MRR and MAP."""
    deep = {key: [*(f"n{rank}" for rank in range(7)), f"doc-{key}"] for key in KEYS[:15]}
    world.apply(two_checks({"fetch_k": 5}, {"fetch_k": 20}))
    world.probe.answers = {key: answered(hits(*ids[:5])) for key, ids in deep.items()}
    world.run()
    world.probe.answers = {key: answered(hits(*ids)) for key, ids in deep.items()}
    world.run(OTHER)
    found = compare(world, f"check:{CHECK}", f"check:{OTHER}")
    assert (found["k"], found["depth"], found["verdict"]) == (5, 5, "no_difference_shown")
    assert {one["difference"] for one in found["primary"]} == {0.0}
    assert list(primary(found)) == ["NDCG@5", "R@5", "P@5", "MRR@5", "coverage"]
    shown = {one["measure"] for one in found["exploratory"]}
    assert {"MAP@5", "MRR@1"} <= shown
    assert not shown & {"MAP", "MRR", "duplicate_ratio", "NDCG@10"}, "measures of unequal depth"
    assert "fetch_k differs, 5 and 20: compared by 5 hits" in found["differences"]
    # The diff of the runs says the same, and tells no difference of what depends on the depth.
    diff = comparisons.diff(world.store, found["a"]["id"], found["b"]["id"])
    assert diff["decision"]["verdict"] == "no_difference_shown"
    uncut = [diff["measures"]["MRR"][side] or 0.0 for side in ("before", "now")]
    assert uncut[1] > uncut[0] + 0.05
    assert (diff["measures"]["MRR"]["difference"], diff["measures"]["MRR"]["paired"]) == (None, None)
    paired = diff["measures"]["MRR@5"]["paired"]
    assert paired is not None
    assert paired["difference"] == 0


def test_at_equal_depth_whole_rankings_are_compared_as_they_are(world: World) -> None:
    world.run()
    world.run(OTHER)
    shown = {one["measure"] for one in compare(world, "run:1", "run:2")["exploratory"]}
    assert {"MAP", "MRR", "duplicate_ratio", "health_score", "NDCG_exp@10"} <= shown
    assert "MAP@10" not in shown


def test_checks_of_unequal_k_are_compared_at_the_smaller_one(world: World) -> None:
    world.apply(two_checks({"k": 3}, {"k": 5}))
    fourth = {key: answered(hits("n1", "n2", "n3", f"doc-{key}")) for key in KEYS}
    world.probe.answers = dict(fourth)
    world.run()
    world.run(OTHER)
    found = compare(world, f"check:{CHECK}", f"check:{OTHER}")
    assert found["k"] == 3
    assert (primary(found)["coverage"]["a"], primary(found)["coverage"]["b"]) == (0.0, 0.0)
    assert found["verdict"] == "no_difference_shown", "though coverage of the runs is 0 and 1"
    diff = comparisons.diff(world.store, found["a"]["id"], found["b"]["id"])
    assert (diff["measures"]["coverage"]["now"], diff["measures"]["coverage"]["difference"]) == (1.0, None)


def test_canaries_that_expect_something_else_are_left_out_and_named(world: World) -> None:
    world.run()
    changed = two_checks()
    changed["canaries"][0]["expected_chunks"] = ["noise"]
    changed["canaries"][1]["query"] = "another question"
    del changed["canaries"][2]
    world.apply(changed)
    world.probe.answers = {"c00": answered(hits("doc-c00"))}
    later = world.run()
    found = compare(world, "run:1", f"run:{later.id}")
    assert (found["canaries"], found["verdict"]) == (27, "no_difference_shown")
    assert {one["reason"]: one["keys"] for one in found["excluded"]} == {
        "only_in_a": ["c02"],
        "other_query": ["c01"],
        "other_judgments": ["c00"],
    }
    diff = comparisons.diff(world.store, "1", str(later.id))
    changes = {item["key"]: item["change"] for item in diff["items"]}
    assert (changes["c00"], changes["c01"], changes["c02"]) == ("rejudged", "rewritten", "removed")


def test_runs_that_have_no_canary_in_common_are_compared_without_an_error(world: World) -> None:
    world.run()
    world.probe.all_fail()
    silent = world.run(OTHER)
    found = compare(world, "run:1", f"run:{silent.id}")
    assert (found["verdict"], found["canaries"], found["items"]) == ("too_few", 0, [])
    assert found["sentence"].startswith("nothing to compare between A and B")


def test_runs_of_different_measures_versions_are_matched_anew(world: World) -> None:
    """What an older version matched is not read: of a run whose stored matches say nothing, nothing is lost."""
    world.run()
    world.run(OTHER)
    with world.store.read() as connection:
        old, new = (read_run(connection, run) for run in ("1", "2"))
        blank = Match.from_bytes(match(prepare([Judgment(id="none")]), hits()).to_bytes()).to_bytes()
        states = [None if state is None else replace(state, matched=blank) for state in old.states]
        same = compare_runs(connection, replace(old, states=states), new)
        older = replace(old, states=states, row=replace(old.row, measures_version="1"))
        found = compare_runs(connection, older, new)
    assert same.outcome.verdict is ComparisonVerdict.BETTER, "the stored matches of one version are read"
    assert found.outcome.verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN
    assert "MAP" not in found.scores[0], "stored vectors are of the older version too"
    assert "the numbers are of measures versions 1 and 2" in [one.sentence for one in differences(older, new)]


def test_a_rescored_run_is_of_the_version_that_matched_it(any_world: World) -> None:
    any_world.run()
    with any_world.store.read() as connection:
        run = read_run(connection, "1")
    assert replace(run, row=replace(run.row, measures_version="2.r7")).base_version == "2" == run.base_version


def test_what_is_not_there_or_has_not_ended_cannot_be_compared(world: World) -> None:
    world.run()
    with pytest.raises(NotFoundError, match="there is no run '99'"):
        compare(world, "run:1", "run:99")
    with pytest.raises(NotFoundError, match="there is no check 'nowhere'"):
        compare(world, "check:nowhere", "run:1")
    with pytest.raises(ConflictError, match=f"check '{OTHER}' has no run with results"):
        compare(world, "run:1", f"check:{OTHER}")
    queued = world.wish(OTHER)
    with pytest.raises(ConflictError, match="has not ended yet"):
        compare(world, "run:1", f"run:{queued}")


# Over REST


def test_a_comparison_is_shown_over_rest_in_full_shape(service: Api) -> None:
    service.put("/v1/checks/bare", {**API_CHECK, "hooks": []})
    service.run()
    service.retriever.found = {"How long is data kept?": ["c9"]}
    service.run("bare")
    found = service.get("/v1/compare", a="check:docs", b="check:bare", limit=1)
    assert set(found) == {
        "a", "b", "verdict", "sentence", "cautions", "canaries", "excluded", "k", "depth", "primary", "exploratory",
        "by_category", "violations", "differences", "ordered_by", "wins", "answers", "items", "next",
    }  # fmt: skip
    assert set(found["primary"][0]) == {
        "measure", "canaries", "a", "b", "difference", "low", "high", "p", "corrected_p", "claim", "winner",
    }  # fmt: skip
    assert (found["verdict"], found["canaries"], found["wins"]) == ("too_few", 2, {"a": 1, "b": 0, "ties": 1})
    assert set(found["items"][0]) == {
        "key", "query", "category", "tags", "winner", "a", "b", "difference", "rank_a", "rank_b",
    }  # fmt: skip
    more = service.get("/v1/compare", a="check:docs", b="check:bare", after=found["next"])
    assert [one["key"] for one in more["items"]] == ["oauth"]


def test_a_comparison_that_cannot_be_is_a_problem(service: Api) -> None:
    service.run()
    cases: list[tuple[str, int]] = [
        ("a=run:1&b=run:77", 404),
        ("a=run:1&b=check:bare", 404),
        ("a=run:1&b=1", 422),
        ("a=run:1", 422),
        ("a=run:1&b=run:1&winner=c", 422),
        ("a=run:1&b=run:1&version=2", 422),
    ]
    for query, status in cases:
        answer = service.client.get(f"/v1/compare?{query}")
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
