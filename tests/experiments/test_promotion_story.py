"""The story this area exists for: what wins offline loses with users, and the promotion stops it and says why."""

import pytest

from app.base.db.engine import Store
from app.comparison.domain.outcomes import ComparisonVerdict
from app.experiments.domain.experiments import ExperimentState
from app.experiments.domain.margins import GateResult
from app.experiments.domain.promotions import PromotionState
from tests.support.promotion_story import CANARIES, Story, tell_story


@pytest.fixture
def story(sqlite_store: Store) -> Story:
    return tell_story(sqlite_store)


def test_hybrid_wins_offline_loses_live_and_its_promotion_is_stopped(story: Story) -> None:
    assert story.comparison["verdict"] is ComparisonVerdict.BETTER
    assert story.comparison["canaries"] == CANARIES
    claimed = {one["measure"] for one in story.comparison["primary"] if one["winner"] == "b"}
    assert {"MRR@10", "NDCG@10"} <= claimed
    assert (story.experiment["state"], story.experiment["winner"]) == (ExperimentState.WINNER, "vector")
    assert [gate.result for gate in story.promotion["gates"]] == [GateResult.PASS, GateResult.WAIVED, GateResult.FAIL]
    assert story.promotion["state"] is PromotionState.STOPPED
    reason = story.promotion["reason"]
    assert reason.startswith("stopped by exposure, though offline passed: after ")
    assert "vector beats hybrid by 0." in reason
    assert "; what users do overrules the rest; judge decided nothing (" in reason
    assert "waived by ana: “over 100 answers the judge sees little difference" in reason
