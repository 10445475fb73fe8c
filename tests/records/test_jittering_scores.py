"""Scores that move in their last digits are no news: what an answer was holds until it has moved by more than that."""

from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from app.base.db.engine import Store
from app.base.values import Ranking, replace
from app.records.tables import rankings
from app.scoring.rankings import Scores, round_ranking, scores_hold
from tests.records.test_store_run_endings import any_rankings
from tests.support.fakes import answered, hits
from tests.support.world import RETRIEVER, World, canary, page


@pytest.fixture
def world(store: Store) -> World:
    """Give a world of one canary, over a retriever as a newcomer has it."""
    world = World(store=store)
    world.apply(page([canary("ant")]))
    return world


def _run(world: World, *scores: float | None, text: str = "as it was") -> dict[str, Any]:
    ranking = hits("doc-ant", "noise", scores=scores, texts={"noise": text})
    world.probe.answers["ant"] = answered(ranking)
    return world.results(world.run())["ant"]


def _shown(result: dict[str, Any]) -> list[float]:
    return [hit["score"] for hit in result["ranking"]]


@pytest.mark.both
def test_scores_that_jitter_write_nothing_and_are_shown_as_they_were(world: World) -> None:
    first = _run(world, 0.9, 0.8)
    before = world.count("states", "rankings", "scores")
    for scores in ((0.9009, 0.7991), (0.8991, 0.8009), (0.9, 0.8)):
        again = _run(world, *scores)
        assert _shown(again) == [0.9, 0.8]
        assert again["since_run"] == first["since_run"]
    assert world.count("states", "rankings", "scores") == before


def test_a_score_that_moved_by_more_is_news(sqlite_store: Store) -> None:
    moves = {"first": (0.9019, 0.8), "second": (0.9, 0.7981), "gone": (0.9, None), "first-gone": (None, 0.8)}
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in moves]))
    for key in moves:
        world.probe.answers[key] = answered(hits(f"doc-{key}", "noise", scores=(0.9, 0.8)))
    world.run()
    for key, moved in moves.items():
        world.probe.answers[key] = answered(hits(f"doc-{key}", "noise", scores=moved))
    results = world.results(world.run())
    assert {key: tuple(_shown(result)) for key, result in results.items()} == moves
    assert world.count("states", "rankings") == {"states": 8, "rankings": 8}


def test_a_drift_in_small_steps_is_news_once_it_has_come_to_that_much(world: World) -> None:
    shown = [_shown(_run(world, 0.9 + step * 0.0007, 0.8))[0] for step in range(5)]
    assert shown == [0.9, 0.9, 0.9, 0.9021, 0.9021]


def test_another_text_or_order_is_news_whatever_the_scores(world: World) -> None:
    _run(world, 0.9, 0.8)
    _run(world, 0.9001, 0.8, text="written anew")
    world.probe.answers["ant"] = answered(hits("noise", "doc-ant", scores=(0.9, 0.8), texts={"noise": "written anew"}))
    world.run()
    assert world.count("states", "rankings") == {"states": 3, "rankings": 3}


@pytest.mark.databases
def test_an_answer_that_flaps_and_jitters_is_stored_once_for_each_order(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary(key) for key in ("ant", "bee", "cat", "dog", "eel")]))
    jitter = (0.0004, -0.0003, 0.0, 0.0005, -0.0006, 0.0002)
    for number, moved in enumerate(jitter):
        order = ("doc-ant", "near", "far") if number % 2 else ("near", "doc-ant", "far")
        scores = (0.9 + moved, 0.9 + moved, 0.5 - moved)
        world.probe.answers["ant"] = answered(hits(*order, scores=scores))
        shown = world.results(world.run())["ant"]["ranking"]
        assert [hit["id"] for hit in shown] == list(order)
        assert shown[0]["score"] == 0.9 + jitter[number % 2]
    assert world.count("rankings") == {"rankings": 6}
    assert world.count("states") == {"states": 4 + len(jitter)}


def test_whoever_wants_every_move_gets_it(store: Store) -> None:
    world = World(store=store)
    world.apply({**page([canary("ant")]), "retrievers": [{**RETRIEVER, "score_tolerance": 0}]})
    assert [_shown(_run(world, score, 0.8))[0] for score in (0.9, 0.900001)] == [0.9, 0.900001]


@pytest.mark.databases
def test_rankings_of_an_earlier_release_learn_what_they_hold_from_the_next_equal_answer(world: World) -> None:
    _run(world, 0.9, 0.8)
    with world.store.write() as connection:
        connection.execute(sa.update(rankings).values(content_hash=None))
    _run(world, 0.9, 0.8)
    assert _shown(_run(world, 0.9003, 0.8)) == [0.9, 0.8]
    assert world.count("states", "rankings") == {"states": 1, "rankings": 1}


@pytest.mark.parametrize("scale", [1.0, 1e-3, 40.0, -1.0])
def test_the_tolerance_is_a_share_of_the_largest_score(scale: float) -> None:
    before = Scores(of_hits=(1.0 * scale, 0.1 * scale), relevance=None)
    within = Scores(of_hits=(1.0 * scale, (0.1 + 0.0019) * scale), relevance=None)
    beyond = Scores(of_hits=(1.0 * scale, (0.1 + 0.0021) * scale), relevance=None)
    assert scores_hold(before, within, 0.002)
    assert not scores_hold(before, beyond, 0.002)


def test_relevance_has_a_scale_of_its_own() -> None:
    before = Scores(of_hits=(5.0,), relevance=0.5)
    assert scores_hold(before, replace(before, relevance=0.501), 0.002)
    assert not scores_hold(before, replace(before, relevance=0.503), 0.002)
    assert not scores_hold(before, replace(before, relevance=None), 0.002)


@given(one=any_rankings(), other=any_rankings())
def test_content_is_equal_exactly_where_all_but_the_scores_is(one: Ranking, other: Ranking) -> None:
    contents = [round_ranking(ranking, 6).content_fingerprint for ranking in (one, other)]
    silent = [replace(ranking, scores=(None,) * len(ranking.ids), relevance=None) for ranking in (one, other)]
    assert (contents[0] == contents[1]) == (silent[0] == silent[1])
    assert contents[0] == round_ranking(silent[0], 6).content_fingerprint


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.data())
def test_without_a_tolerance_only_equal_scores_hold(before: list[float], data: st.DataObject) -> None:
    now = data.draw(st.permutations(before))
    held = scores_hold(Scores(of_hits=tuple(before), relevance=0.1), Scores(of_hits=tuple(now), relevance=0.1), 0.0)
    assert held == (before == now)
