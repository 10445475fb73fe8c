"""The gates of a promotion: each result with its reason, waivers, and the last gate over the first."""

from collections.abc import Mapping

import pytest

from app.comparison.domain import ComparisonVerdict
from app.experiments.domain import (
    ExposureEvidence,
    Gate,
    GateName,
    GateResult,
    JudgeEvidence,
    Margin,
    OfflineEvidence,
    PromotionDecision,
    PromotionState,
    RateDifference,
    Waiver,
    decide_promotion,
)

NO_JUDGE = "no judge is set"
ABSENT = "no experiment is set"


def offline(
    low: float | None = 0.01,
    high: float | None = 0.05,
    *,
    canaries: int = 500,
    verdict: ComparisonVerdict = ComparisonVerdict.BETTER,
) -> OfflineEvidence:
    measures = {"MRR@10": Margin(low=0.02, high=0.06), "NDCG@10": Margin(low=low, high=high)}
    return OfflineEvidence(canaries=canaries, verdict=verdict, measures=measures)


def judge(low: float = -0.04, high: float = 0.04, *, answers: int = 100, calibrated: bool = True) -> JudgeEvidence:
    return JudgeEvidence(answers=answers, calibrated=calibrated, measures={"faithfulness": Margin(low=low, high=high)})


def exposure(low: float, high: float, *, mismatch: bool = False) -> ExposureEvidence:
    difference = RateDifference(value=(low + high) / 2, low=low, high=high)
    return ExposureEvidence(difference=difference, mismatch=mismatch, reason="users say so", power="it can show 0.07")


def decide(
    offline_: OfflineEvidence | str = ABSENT,
    judge_: JudgeEvidence | str = NO_JUDGE,
    exposure_: ExposureEvidence | str = ABSENT,
    waivers: Mapping[GateName, Waiver] | None = None,
) -> PromotionDecision:
    return decide_promotion(offline_, judge_, exposure_, waivers or {})


def gate(decision: PromotionDecision, name: GateName) -> Gate:
    return next(one for one in decision.gates if one.gate is name)


@pytest.mark.parametrize(
    ("evidence", "result"),
    [
        (offline(), GateResult.PASS),
        (offline(low=-0.019, high=0.01), GateResult.PASS),
        (offline(low=-0.02, high=0.01), GateResult.INCONCLUSIVE),
        (offline(low=-0.09, high=-0.021), GateResult.FAIL),
        (offline(canaries=499), GateResult.INCONCLUSIVE),
        (offline(verdict=ComparisonVerdict.TRADE), GateResult.FAIL),
        (offline(low=None, high=None), GateResult.INCONCLUSIVE),
    ],
)
def test_offline_asks_for_500_canaries_no_trade_and_no_loss_of_a_measure(
    evidence: OfflineEvidence, result: GateResult
) -> None:
    assert gate(decide(evidence), GateName.OFFLINE).result is result


@pytest.mark.parametrize(
    ("evidence", "result"),
    [
        (judge(), GateResult.PASS),
        (judge(low=-0.05), GateResult.INCONCLUSIVE),
        (judge(low=-0.2, high=-0.06), GateResult.FAIL),
        (judge(answers=99), GateResult.INCONCLUSIVE),
        (judge(calibrated=False), GateResult.INCONCLUSIVE),
        (judge(low=-0.2, high=-0.06, calibrated=False), GateResult.INCONCLUSIVE),
    ],
)
def test_the_judge_counts_only_where_it_is_calibrated(evidence: JudgeEvidence, result: GateResult) -> None:
    assert gate(decide(judge_=evidence), GateName.JUDGE).result is result


@pytest.mark.parametrize(
    ("evidence", "result"),
    [
        (exposure(0.001, 0.1), GateResult.PASS),
        (exposure(-0.1, -0.001), GateResult.FAIL),
        (exposure(-0.1, 0.1), GateResult.INCONCLUSIVE),
        (exposure(0.001, 0.1, mismatch=True), GateResult.INCONCLUSIVE),
    ],
)
def test_exposure_passes_above_zero_and_fails_below(evidence: ExposureEvidence, result: GateResult) -> None:
    assert gate(decide(exposure_=evidence), GateName.EXPOSURE).result is result


def test_an_inconclusive_exposure_says_its_power() -> None:
    assert "it can show 0.07" in gate(decide(exposure_=exposure(-0.1, 0.1)), GateName.EXPOSURE).reason


def test_exposure_stops_what_passed_before_and_says_so() -> None:
    decision = decide(offline(), judge(), exposure(-0.1, -0.01))
    assert decision.state is PromotionState.STOPPED
    assert decision.reason == (
        "stopped by exposure, though offline and judge passed: users say so; what users do overrules the rest"
    )


def test_exposure_promotes_what_failed_before_and_says_so() -> None:
    decision = decide(offline(low=-0.09, high=-0.03), judge(), exposure(0.01, 0.1))
    assert decision.state is PromotionState.PROMOTE
    assert "though offline failed" in decision.reason


def test_before_exposure_decides_a_failed_gate_stops_and_an_inconclusive_one_keeps_it_open() -> None:
    assert decide(offline(low=-0.09, high=-0.03), judge(), ABSENT).state is PromotionState.STOPPED
    waiting = decide(offline(), judge(calibrated=False), ABSENT)
    assert (waiting.state, waiting.reason.split(":")[0]) == (PromotionState.OPEN, "judge is inconclusive")
    assert decide(offline(), judge(), exposure(-0.1, 0.1)).state is PromotionState.OPEN


def test_a_waived_gate_names_who_and_why_and_keeps_what_it_would_be() -> None:
    waivers = {GateName.JUDGE: Waiver(by="ana", reason="no budget", at="2026-01-01T00:00:00Z")}
    decision = decide(offline(), judge(low=-0.2, high=-0.06), exposure(-0.1, 0.1), waivers)
    waived = gate(decision, GateName.JUDGE)
    assert (waived.result, waived.evidence) == (GateResult.WAIVED, GateResult.FAIL)
    assert waived.reason.startswith("waived by ana: no budget (without that fail:")
    assert decision.state is PromotionState.OPEN


def test_a_waived_exposure_promotes_without_users_and_says_so() -> None:
    waivers = {GateName.EXPOSURE: Waiver(by="ana", reason="internal tool", at="2026-01-01T00:00:00Z")}
    decision = decide(offline(), judge(), exposure(-0.1, -0.01), waivers)
    assert decision.state is PromotionState.PROMOTE
    assert "users were not asked" in decision.reason
