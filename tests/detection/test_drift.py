"""Score drift: what moved, scores or rankings, against the baseline; on both databases where rows are read."""

from collections.abc import Sequence

import numpy as np
import pytest

from app.base.db.engine import Store
from app.base.values import Ranking
from app.detection.domain.decision import score_drift, top_overlap
from app.detection.domain.views import DriftKind, StoredDrift
from app.detection.service import detectors
from app.records.service.plans import Planner
from app.records.store import ranking_rows
from app.records.store.open_runs import ClaimedRun
from app.scoring.rankings import round_ranking
from tests.support.fakes import answered, hits
from tests.support.world import World, canary, page, statements

KEYS = [f"q{number}" for number in range(8)]


def test_unmoved_scores_are_no_drift() -> None:
    drift = score_drift([0.8, 0.7, 0.6], [0.0, 0.0, 0.0], [0.8, 0.7, 0.6], 1.0)
    assert drift["kind"] is DriftKind.NONE
    assert drift["median_z"] == 0


def test_rescaled_scores_are_a_drift_of_scores_alone() -> None:
    drift = score_drift([0.8, 0.7, 0.6], [0.0, 0.0, 0.0], [0.64, 0.56, 0.48], [1.0, 1.0, 1.0])
    assert drift["kind"] is DriftKind.SCORES
    assert drift["median_z"] == pytest.approx(40)  # 20 % away, with half a percent for a deviation
    assert "what is found did not" in drift["reason"]


def test_another_model_is_a_drift_of_scores_and_rankings() -> None:
    drift = score_drift([0.8, 0.7, 0.6], [0.01, 0.01, 0.01], [0.9, 0.8, 0.75], [0.6, 0.4, 1.0])
    assert drift["kind"] is DriftKind.RANKINGS
    assert drift["overlap"] == pytest.approx(2 / 3, abs=1e-4)


def test_ninety_five_percent_of_the_top_in_common_are_the_same_rankings() -> None:
    kinds = [score_drift([1.0] * 4, [0.0] * 4, [2.0] * 4, overlap)["kind"] for overlap in (0.95, 0.9499)]
    assert kinds == [DriftKind.SCORES, DriftKind.RANKINGS]


def test_half_of_the_canaries_must_have_moved() -> None:
    assert score_drift([1.0] * 5, [0.0] * 5, [1.0, 1.0, 1.0, 9.0, 9.0], 1.0)["kind"] is DriftKind.NONE
    assert score_drift([1.0] * 5, [0.0] * 5, [1.0, 1.0, 9.0, 9.0, 9.0], 1.0)["kind"] is DriftKind.SCORES


def test_noise_that_was_there_before_is_no_drift() -> None:
    assert score_drift([0.8] * 3, [0.05] * 3, [0.9] * 3, 1.0)["kind"] is DriftKind.NONE


def test_drift_of_unknown_scores_is_unknown_and_not_none() -> None:
    drift = score_drift([np.nan, 0.7, 0.6], [np.nan, 0.0, 0.0], [0.8, 0.7, np.nan], 1.0)
    assert drift["kind"] is DriftKind.UNKNOWN
    assert drift["median_z"] is None
    assert drift["canaries"] == 1


@pytest.mark.parametrize("mean", [0.0, -2.0])
def test_scores_around_and_below_zero_have_distances_too(mean: float) -> None:
    drift = score_drift([mean] * 3, [0.0] * 3, [mean + 1] * 3, 1.0)
    assert drift["kind"] is DriftKind.SCORES
    assert drift["median_z"] is not None
    assert np.isfinite(drift["median_z"])


def test_overlap_is_the_share_of_the_longer_top() -> None:
    assert top_overlap("abcde", "edcba") == 1
    assert top_overlap("abcdex", "abcdey") == 1
    assert top_overlap("abcde", "ab") == pytest.approx(0.4)
    assert top_overlap("", "") == 1
    assert top_overlap("", "a") == 0


def _answer(world: World, scale: float, *, others: bool = False) -> None:
    for number, key in enumerate(KEYS):
        ids = (f"doc-{key}", *[f"{'new' if others else 'old'}-{rank}" for rank in range(4)])
        scores = [round((0.9 - 0.02 * number - 0.1 * rank) * scale, 4) for rank in range(5)]
        world.probe.answers[key] = answered(hits(*ids, scores=scores))


def _drift(world: World, first: int, last: int, now: Sequence[Ranking]) -> StoredDrift | None:
    """Look at rankings as a run does before it ends: claimed, planned and staged."""
    run = world.wish()
    claimed = world.claim()
    assert isinstance(claimed, ClaimedRun)
    assert claimed.id == run
    plan = Planner(world.store, world.vault).plan(claimed, world.clock())
    with world.store.write() as connection:
        settled = [round_ranking(one, plan.inputs.decimals) for one in now]
        ids = ranking_rows.save_rankings(
            connection, plan.inputs.decimals, {one.fingerprint or b"": one for one in settled}
        )
        ranking_ids = [ids[one.fingerprint or b""] for one in settled]

        def held_since(position: int) -> int | None:
            state = plan.held[plan.inputs.canary_ids[position]]
            return state.first_run if plan.still_holds(state, ranking_ids[position], position) else None

        return detectors.drift_of(
            connection, claimed.check_id, plan.inputs, ranking_ids, held_since, first_run=first, last_run=last
        )


def _now(world: World) -> list[Ranking]:
    found = [world.probe.answers[key].ranking for key in KEYS]
    assert all(one is not None for one in found)
    return [one for one in found if one is not None]


def _begun(store: Store) -> World:
    made = World(store=store)
    made.apply(page([canary(key) for key in KEYS]))
    _answer(made, 1.0)
    return made


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give it on SQLite, for what does not depend on the database."""
    return _begun(sqlite_store)


@pytest.fixture
def anywhere(store: Store) -> World:
    """Give it on each kind of store."""
    return _begun(store)


def test_a_run_like_its_baseline_has_no_drift_to_tell_of(world: World) -> None:
    first, last = [world.run().id for _ in range(2)]
    assert _drift(world, first, last, _now(world)) is None


def test_rankings_that_have_held_since_the_baseline_need_no_look(world: World) -> None:
    """That of a canary may have changed meanwhile, as long as most have not."""
    first, last = [world.run().id for _ in range(2)]
    world.probe.answers[KEYS[0]] = answered(hits("other", scores=[0.1]))
    world.run()
    read = list[str]()
    with statements(world.store, read.append):
        assert _drift(world, first, last, _now(world)) is None
    assert not [one for one in read if "states.first_run <=" in one]


@pytest.mark.both
def test_a_run_whose_scores_were_rescaled_tells_of_it(anywhere: World) -> None:
    first, last = [anywhere.run().id for _ in range(2)]
    _answer(anywhere, 0.8)
    drift = _drift(anywhere, first, last, _now(anywhere))
    assert drift is not None
    assert drift["kind"] == "scores"
    assert drift["median_z"] == pytest.approx(40, rel=0.01)
    assert drift["canaries"] == len(KEYS)
    assert drift["overlap"] == 1


def test_a_drift_is_told_against_the_baseline_however_long_it_has_lasted(world: World) -> None:
    first, last = [world.run().id for _ in range(2)]
    _answer(world, 0.8, others=True)
    for _ in range(2):
        world.run()
    drift = _drift(world, first, last, _now(world))
    assert drift is not None
    assert drift["kind"] == "scores_and_rankings"
    assert drift["overlap"] == pytest.approx(0.2)


def test_scores_that_move_as_they_always_did_are_no_drift(world: World) -> None:
    runs = []
    for number in range(6):
        _answer(world, 1 + 0.03 * (number % 3))
        runs.append(world.run().id)
    _answer(world, 1.035)
    assert _drift(world, runs[0], runs[-1], _now(world)) is None


def test_without_scores_there_is_no_drift_to_tell_of(world: World) -> None:
    for key in KEYS:
        world.probe.answers[key] = answered(hits(f"doc-{key}", "x", scores=[None, None]))
    first, last = [world.run().id for _ in range(2)]
    assert _drift(world, first, last, [hits(f"doc-{key}", "y", scores=[None, None]) for key in KEYS]) is None


def test_canaries_that_ask_something_else_by_now_are_left_out(world: World) -> None:
    first, last = [world.run().id for _ in range(2)]
    world.apply(page([canary(key, query=f"{key} anew") for key in KEYS]))
    assert _drift(world, first, last, [hits("other", scores=[0.1]) for _ in KEYS]) is None
