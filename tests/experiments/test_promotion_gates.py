"""The gates of a promotion: each result with its reason, waivers, and the last gate over the first."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.values import replace
from app.comparison.domain.outcomes import ComparisonVerdict, JudgmentsCaution, Side
from app.experiments.domain.experiments import RateDifference
from app.experiments.domain.margins import GateResult
from app.experiments.domain.promotion_evidence import (
    ExposureEvidence,
    GuardEvidence,
    JudgedQuestion,
    JudgeEvidence,
    Margin,
    OfflineEvidence,
)
from app.experiments.domain.promotions import (
    Gate,
    GateName,
    NextStep,
    PromotionDecision,
    PromotionState,
    Waiver,
    decide_promotion,
)
from app.experiments.service.promotions import compare_offline
from tests.support.fakes import answered, hits
from tests.support.world import CHECK, RETRIEVER, World, canary, page

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
    return judged({"faithfulness": Margin(low=low, high=high)}, answers=answers, calibrated=calibrated)


def judged(margins: Mapping[str, Margin], *, answers: int = 100, calibrated: bool = True) -> JudgeEvidence:
    return JudgeEvidence(
        measures={
            name: {name: JudgedQuestion(answers=answers, calibrated=calibrated, margin=one)}
            for name, one in margins.items()
        }
    )


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


def own(side: Side | None, *not_claimed: str) -> JudgmentsCaution:
    return JudgmentsCaution(favours=side, retriever=f"r-{side}", not_claimed=not_claimed)


EDITED = replace(own(None), edited=Side.B)
UNDECIDED = ComparisonVerdict.NO_DIFFERENCE_SHOWN


@pytest.mark.parametrize(
    ("evidence", "result"),
    [
        (replace(offline(verdict=UNDECIDED), judgments=(own(Side.B, "NDCG@10"),)), GateResult.INCONCLUSIVE),
        (replace(offline(), judgments=(own(Side.A),)), GateResult.PASS),
        (replace(offline(), judgments=(own(None),)), GateResult.PASS),
        (replace(offline(), judgments=(own(Side.A, "R@5"),)), GateResult.INCONCLUSIVE),
        (replace(offline(low=-0.09, high=-0.021), judgments=(own(Side.A),)), GateResult.INCONCLUSIVE),
        (replace(offline(), judgments=(replace(own(None), edited=Side.B),)), GateResult.INCONCLUSIVE),
        (replace(offline(), judgments=(replace(own(None), edited=Side.A),)), GateResult.INCONCLUSIVE),
        (
            replace(offline(low=-0.09, high=-0.021), judgments=(replace(own(None), edited=Side.B),)),
            GateResult.INCONCLUSIVE,
        ),
        (replace(offline(low=-0.09, high=-0.021), judgments=(own(Side.B),)), GateResult.FAIL),
        (replace(offline(low=-0.09, high=0.02), judgments=(own(Side.A),)), GateResult.INCONCLUSIVE),
        (replace(offline(), judgments=(own(Side.A), own(Side.B))), GateResult.INCONCLUSIVE),
        (
            replace(offline(verdict=ComparisonVerdict.WORSE), judgments=(own(Side.B, "MRR@10"),)),
            GateResult.FAIL,
        ),
    ],
)
def test_offline_decides_nothing_that_may_come_of_the_judgments_of_one_side(
    evidence: OfflineEvidence, result: GateResult
) -> None:
    found = gate(decide(evidence), GateName.OFFLINE)
    assert found.result is result
    assert f"much of what is expected was brought up by r-{evidence.judgments[0].favours} " in found.reason


def test_a_trade_names_what_is_gained_and_what_it_is_paid_with_and_a_waiver_covers_nothing_worse() -> None:
    def traded(low: float, high: float) -> OfflineEvidence:
        gained, paid = {"NDCG@10": Margin(low=0.01, high=0.05)}, {"R@5": Margin(low=low, high=high)}
        return replace(offline(verdict=ComparisonVerdict.TRADE), gained=gained, paid=paid)

    known = gate(decide(traded(-0.063, -0.008)), GateName.OFFLINE)
    assert known.reason == (
        "one measure is gained and another one paid with (trade) over 500 canaries: NDCG@10 +0.010 to +0.050, paid for "
        "by R@5 -0.063 to -0.008; beside that MRR@10 +0.020 to +0.060"
    )
    assert known.losses == {"R@5": (-0.063, -0.008)}
    waivers = {GateName.OFFLINE: replace(waiver(GateResult.FAIL), losses=known.losses)}
    assert gate(decide(traded(-0.07, -0.01), judge(), ABSENT, waivers), GateName.OFFLINE).result == "waived"
    worse = decide(traded(-0.169, -0.099), judge(), ABSENT, waivers)
    assert (gate(worse, GateName.OFFLINE).result, worse.state) == (GateResult.FAIL, PromotionState.STOPPED)
    untold = {GateName.OFFLINE: replace(waiver(GateResult.FAIL), losses={})}
    assert gate(decide(traded(-0.07, -0.01), judge(), ABSENT, untold), GateName.OFFLINE).result is GateResult.FAIL
    self_judged = replace(traded(-0.063, -0.008), verdict=ComparisonVerdict.WORSE, judgments=(own(Side.B, "NDCG@10"),))
    assert "NDCG@10 +0.010 to +0.050, paid for by R@5" in gate(decide(self_judged), GateName.OFFLINE).reason
    assert gate(decide(replace(self_judged, judgments=())), GateName.OFFLINE).losses == {}


def test_a_promotion_reads_what_a_comparison_claims_to_be_gained_and_paid_with(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    made = page([canary(f"c{number:02}", expected_chunks=["a", "b"]) for number in range(40)], rules=[], hooks=[])
    made["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other", "url": "http://b.example"}]
    made["checks"].append({**made["checks"][0], "slug": "candidate", "retriever": "other"})
    world.apply(made)
    world.probe.otherwise = lambda _: answered(hits("noise", "a", "b"))
    world.run()
    world.probe.otherwise = lambda _: answered(hits("a", "noise", "more"))
    world.run("candidate")
    evidence = compare_offline(sqlite_store, CHECK, "candidate")
    assert isinstance(evidence, OfflineEvidence)
    assert evidence.is_trade
    assert "MRR@10" in evidence.gained
    assert evidence.paid["R@5"] == Margin(low=-0.5, high=-0.5)


def test_a_gate_says_in_a_sentence_why_judgments_leave_it_undecided() -> None:
    evidence = replace(offline(verdict=UNDECIDED), judgments=(own(Side.B, "NDCG@10"),))
    assert gate(decide(evidence), GateName.OFFLINE).reason == (
        "no loss of more than 0.02 over 500 canaries: MRR@10 +0.020 to +0.060, NDCG@10 +0.010 to +0.050, but that may "
        "come of the judgments: much of what is expected was brought up by r-b itself, which favours the candidate in "
        "every measure and is against the current check: what only the current check finds may never have been judged; "
        "NDCG@10 is higher in the candidate, which is not claimed; to judge both alike, let people grade a task over "
        "the retrievers of both checks, and adopt it"
    )


def test_what_can_never_pass_is_not_said_to_have_decided_nothing_yet() -> None:
    own_judgments = replace(offline(verdict=UNDECIDED), judgments=(own(Side.B, "NDCG@10"),))
    assert decide(own_judgments, judge()).reason.startswith("offline cannot pass with these judgments: no loss of more")
    doubted = replace(offline(low=-0.09, high=-0.021), judgments=(own(Side.A),))
    says = decide(doubted, judge()).reason
    assert says.startswith("offline cannot pass with these judgments: a loss of more than 0.02 is shown over 500 can")
    assert "; to judge both alike, let people grade a task over the retrievers of both checks, and adopt it;" in says
    may_be_traded = replace(offline(), judgments=(own(Side.A, "R@5"),))
    assert decide(may_be_traded, judge()).reason.startswith("offline cannot pass with these judgments: no loss of more")
    may_be_ruled_out = replace(offline(low=-0.09, high=0.02), judgments=(own(Side.A),))
    assert decide(may_be_ruled_out, judge()).reason.startswith("offline has decided nothing yet: a loss of more than")
    no_judge = JudgeEvidence(measures={"faithfulness": {"faithfulness": "no judge rates them"}})
    assert decide(offline(), no_judge).reason.startswith(
        "judge cannot pass as answers are judged now: no judge rates them"
    )
    dealt_otherwise = decide(offline(), judge(), exposure(0.01, 0.1, mismatch=True))
    assert dealt_otherwise.reason == "exposure decided nothing, as the shares mismatch: users say so"


@pytest.mark.parametrize(
    ("name", "evidence", "step"),
    [
        (GateName.OFFLINE, offline(), None),
        (GateName.OFFLINE, offline(low=-0.09, high=-0.021), NextStep.CHANGE_CANDIDATE),
        (GateName.OFFLINE, offline(canaries=499), NextStep.MEASURE_MORE),
        (GateName.OFFLINE, replace(offline(canaries=480), unanswered=20), NextStep.MEND_ANSWERS),
        (GateName.OFFLINE, replace(offline(canaries=480), unanswered=19), NextStep.MEASURE_MORE),
        (GateName.OFFLINE, replace(offline(), unanswered=100), NextStep.MEND_ANSWERS),
        (GateName.OFFLINE, replace(offline(), judgments=(own(Side.A, "R@5"),)), NextStep.GRADE_TASK),
        (GateName.JUDGE, "check 'docs' has no run with results", NextStep.MEASURE_MORE),
        (GateName.JUDGE, JudgeEvidence(measures={"faithfulness": {"faithful": "not asked"}}), NextStep.ASK_JUDGE),
        (GateName.JUDGE, judge(answers=99), NextStep.LABEL_ANSWERS),
        (GateName.JUDGE, judge(calibrated=False), NextStep.LABEL_ANSWERS),
        (GateName.JUDGE, judge(-0.2, -0.1), NextStep.CHANGE_CANDIDATE),
        (GateName.EXPOSURE, ABSENT, NextStep.AWAIT_USERS),
        (GateName.EXPOSURE, exposure(-0.1, 0.1), NextStep.AWAIT_USERS),
        (GateName.EXPOSURE, exposure(0.01, 0.1, mismatch=True), NextStep.MEND_SHARES),
        (GateName.EXPOSURE, replace(exposure(-0.1, 0.1), ended=True), NextStep.BEGIN_AGAIN),
        (GateName.EXPOSURE, replace(exposure(-0.01, 0.01), ended=True, within=0.04), NextStep.BEGIN_AGAIN),
        (GateName.EXPOSURE, exposure(-0.1, -0.01), NextStep.CHANGE_CANDIDATE),
        (GateName.EXPOSURE, exposure(0.01, 0.1), None),
    ],
)
def test_a_gate_that_has_not_passed_says_what_to_do(name: GateName, evidence: Any, step: NextStep | None) -> None:
    found: dict[GateName, Any] = {
        GateName.OFFLINE: offline(),
        GateName.JUDGE: judge(),
        GateName.EXPOSURE: exposure(0.01, 0.1),
        name: evidence,
    }
    decision = decide(found[GateName.OFFLINE], found[GateName.JUDGE], found[GateName.EXPOSURE])
    assert gate(decision, name).next is step


def test_users_who_are_served_better_wait_for_guard_rails_and_not_for_more_users() -> None:
    rail = GuardEvidence(name="experiment cost", allowed_loss=0.05, found="too few units")
    found = decide_promotion(offline(), judge(), exposure(0.01, 0.1), {}, guards=[rail])
    assert gate(found, GateName.EXPOSURE).next is NextStep.AWAIT_GUARDS
    waiver = Waiver(by="Ann", reason="r", at="2026-01-01T00:00:00Z", finding=GateResult.INCONCLUSIVE, found="")
    waived = decide_promotion(offline(), judge(), exposure(0.01, 0.1), {GateName.EXPOSURE: waiver}, guards=[rail])
    assert gate(waived, GateName.EXPOSURE).next is None


def test_harm_is_told_of_what_the_candidate_was_where_it_was_changed_since() -> None:
    changed = replace(exposure(-0.1, -0.04), changed="check 'b' asked retriever 'r' before its url changed")
    found = gate(decide(offline(), judge(), changed), GateName.EXPOSURE)
    says = "check 'b' asked retriever 'r' before its url changed: users were asked about what it was before, so begin"
    assert (found.result, found.reason.startswith(says), found.reason.endswith("; users say so")) == (
        GateResult.FAIL,
        True,
        True,
    )


def test_harm_of_an_earlier_epoch_is_told_and_hinders_until_users_are_served_better() -> None:
    again = replace(exposure(-0.1, 0.1), harm_before="epoch 1 had shown: users are served worse")
    found = decide(offline(), judge(), again)
    assert found.harm_before
    assert gate(found, GateName.EXPOSURE).reason.endswith("; epoch 1 had shown: users are served worse")
    waiver = Waiver(by="Ann", reason="r", at="2026-01-01T00:00:00Z", finding=GateResult.INCONCLUSIVE, found="")
    waived = decide(offline(), judge(), again, {GateName.EXPOSURE: waiver})
    assert "a person decided so, although it had been shown that users are served worse" in waived.reason
    better = decide(offline(), judge(), replace(exposure(0.01, 0.1), harm_before="epoch 1 had shown: worse"))
    assert (better.state, better.harm_before) == (PromotionState.PROMOTE, False)
    assert gate(better, GateName.EXPOSURE).reason.endswith("; though epoch 1 had shown: worse")


KEPT = Margin(low=-0.04, high=0.04)
OPEN = Margin(low=-0.06, high=0.03)
LOST = Margin(low=-0.2, high=-0.06)
FORMS: list[tuple[Margin | str, Margin | str, int, bool, GateResult, str]] = [
    (KEPT, KEPT, 150, True, GateResult.PASS, "no loss of more than 0.05 over 150 judged answers: faithfulness -0.040"),
    (KEPT, OPEN, 150, True, GateResult.PASS, "over 150 judged answers: faithfulness -0.040 to +0.040"),
    (OPEN, KEPT, 150, True, GateResult.INCONCLUSIVE, "is not ruled out over 150 judged answers: faithfulness -0.060"),
    (KEPT, LOST, 150, True, GateResult.FAIL, "is shown over at least 100 judged answers: faithful -0.200 to -0.060;"),
    (LOST, KEPT, 150, True, GateResult.FAIL, "is shown over 150 judged answers: faithfulness -0.200 to -0.060"),
    (
        LOST,
        KEPT,
        150,
        False,
        GateResult.PASS,
        "; the judge is uncalibrated: too few labels of people confirm",
    ),
    (
        LOST,
        KEPT,
        99,
        True,
        GateResult.PASS,
        "; 99 judged answers of at least 100 (faithfulness)",
    ),
    ("not asked", KEPT, 0, False, GateResult.PASS, "over 100 judged answers: faithful -0.040 to +0.040; not asked"),
    ("not asked", LOST, 0, False, GateResult.FAIL, "faithful -0.200 to -0.060; not asked"),
    ("not asked", "nor this", 0, False, GateResult.INCONCLUSIVE, "not asked; nor this"),
]


@pytest.mark.parametrize(("claims", "word", "answers", "calibrated", "result", "says"), FORMS)
def test_of_two_forms_of_a_question_the_first_decides_of_which_enough_is_known_and_either_shows_a_loss(
    claims: Margin | str, word: Margin | str, answers: int, *, calibrated: bool, result: GateResult, says: str
) -> None:
    def of(margin: Margin | str, number: int, *, known: bool) -> JudgedQuestion | str:
        return margin if isinstance(margin, str) else JudgedQuestion(answers=number, calibrated=known, margin=margin)

    asked = {"faithfulness": of(claims, answers, known=calibrated), "faithful": of(word, 100, known=True)}
    found = gate(decide(judge_=JudgeEvidence(measures={"faithfulness": asked})), GateName.JUDGE)
    assert (found.result, says in found.reason) == (result, True), found.reason
    rail = GuardEvidence(name="faithfulness", allowed_loss=0.05, found=asked)
    held = gate(decide_promotion(offline(), judge(), BETTER, {}, guards=[rail]), GateName.EXPOSURE).guards[0]
    assert held.result is result
    assert held.reason.startswith("nothing is known of faithfulness: ") is (word == "nor this")


BY_LABELS = Margin(
    low=-0.608, high=0.022, basis="corrected by 109 and 105 labels of people", uncorrected=Margin(low=-0.3, high=-0.2)
)
ASIDE = "(faithfulness); known, though it decides nothing: faithfulness"
UNCONFIRMED = (
    "the judge is uncalibrated: too few labels of people confirm what it says, and its page says what to do "
    f"{ASIDE} (uncalibrated)"
)
UNCERTAIN = [
    (
        JudgedQuestion(answers=150, calibrated=False, margin=BY_LABELS, corrected=True),
        f"{UNCONFIRMED} -0.608 to +0.022 (corrected by 109 and 105 labels of people)",
        "not enough is known of faithfulness: ",
    ),
    (
        JudgedQuestion(answers=150, calibrated=False, margin=LOST),
        f"{UNCONFIRMED} -0.200 to -0.060",
        "not enough is known of faithfulness: ",
    ),
    (
        JudgedQuestion(answers=99, calibrated=True, margin=LOST),
        f"99 judged answers of at least 100 {ASIDE} -0.200 to -0.060",
        "not enough is known of faithfulness: ",
    ),
    (
        JudgedQuestion(answers=0, calibrated=True, margin=Margin(low=None, high=None)),
        "0 judged answers of at least 100 (faithfulness)",
        "nothing is known of faithfulness: ",
    ),
]


@pytest.mark.parametrize(("one", "says", "rail_says"), UNCERTAIN)
def test_what_is_known_is_told_although_it_decides_nothing(one: JudgedQuestion, says: str, rail_says: str) -> None:
    asked = {"faithfulness": one}
    rail = GuardEvidence(name="faithfulness", allowed_loss=0.05, found=asked)
    found = decide_promotion(offline(), JudgeEvidence(measures={"faithfulness": asked}), BETTER, {}, guards=[rail])
    held = gate(found, GateName.EXPOSURE).guards[0]
    assert (found.gates[1].result, found.gates[1].reason) == (GateResult.INCONCLUSIVE, says)
    assert (held.result, held.reason) == (GateResult.INCONCLUSIVE, f"{rail_says}{says}")


def test_labels_show_a_loss_whatever_the_judge_that_they_correct() -> None:
    lost = replace(BY_LABELS, high=-0.06)
    one = JudgedQuestion(answers=150, calibrated=False, margin=lost, corrected=True)
    rail = GuardEvidence(name="faithfulness", allowed_loss=0.05, found={"faithfulness": one})
    evidence = JudgeEvidence(measures={"faithfulness": {"faithfulness": one}})
    found = decide_promotion(offline(), evidence, BETTER, {}, guards=[rail])
    for result, reason in (
        (found.gates[1].result, found.gates[1].reason),
        (found.gates[2].guards[0].result, found.gates[2].guards[0].reason),
    ):
        assert result is GateResult.FAIL
        assert reason == (
            "a loss of more than 0.05 is shown over 150 judged answers: faithfulness (uncalibrated) -0.608 to -0.060 "
            "(corrected by 109 and 105 labels of people); the judge is uncalibrated: too few labels of people confirm "
            "what it says, and its page says what to do (faithfulness)"
        )
    kept = replace(one, margin=replace(BY_LABELS, low=-0.04, high=0.04, uncorrected=None))
    evidence = JudgeEvidence(measures={"faithfulness": {"faithfulness": kept}})
    assert decide(judge_=evidence).gates[1].result is GateResult.INCONCLUSIVE, "it passes by a confirmed judge alone"
    few = JudgeEvidence(measures={"faithfulness": {"faithfulness": replace(one, answers=99)}})
    assert decide(judge_=few).gates[1].result is GateResult.INCONCLUSIVE


def test_a_promotion_reads_whose_judgments_its_comparison_rests_on(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    expected = [{"id": "c1", "source": "retriever:other"}]
    made = page([canary(f"c{number}", expected_chunks=expected) for number in range(20)], rules=[], hooks=[])
    made["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other", "url": "http://b.example"}]
    made["checks"].append({**made["checks"][0], "slug": "candidate", "retriever": "other"})
    world.apply(made)
    world.probe.otherwise = lambda _: answered(hits("noise"))
    world.run()
    world.probe.otherwise = lambda _: answered(hits("c1"))
    world.run("candidate")
    evidence = compare_offline(sqlite_store, CHECK, "candidate")
    assert isinstance(evidence, OfflineEvidence)
    [one] = evidence.judgments
    assert (one.favours, one.retriever, len(one.not_claimed)) == (Side.B, "other", 5)
    assert evidence.verdict is UNDECIDED


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
    assert "they are served better, users say so; offline failed: a loss of more than 0.02 is shown" in decision.reason


def test_before_exposure_decides_a_failed_gate_stops_and_an_inconclusive_one_keeps_it_open() -> None:
    assert decide(offline(low=-0.09, high=-0.03), judge(), ABSENT).state is PromotionState.STOPPED
    waiting = decide(offline(), judge(calibrated=False), ABSENT)
    assert (waiting.state, waiting.reason.split(":")[0]) == (PromotionState.OPEN, "judge has decided nothing yet")
    assert decide(offline(), judge(), exposure(-0.1, 0.1)).state is PromotionState.OPEN


def waiver(finding: GateResult = GateResult.INCONCLUSIVE, *, by: str = "ana") -> Waiver:
    reason = "an internal tool with ten users"
    return Waiver(by=by, reason=reason, at="2026-01-01T00:00:00Z", finding=finding, found="what it had found")


def guard(low: float, high: float) -> GuardEvidence:
    return GuardEvidence(name="faithfulness", allowed_loss=0.05, found=Margin(low=low, high=high))


BAD_JUDGE = judge(low=-0.2, high=-0.06)
WORSE = exposure(-0.1, -0.01)
BETTER = exposure(0.01, 0.1)


def test_a_waived_gate_keeps_what_it_found_beside_who_and_why() -> None:
    decision = decide(offline(), BAD_JUDGE, exposure(-0.1, 0.1), {GateName.JUDGE: waiver(GateResult.FAIL)})
    waived = gate(decision, GateName.JUDGE)
    assert (waived.result, waived.evidence) == (GateResult.WAIVED, GateResult.FAIL)
    assert waived.reason.startswith("a loss of more than 0.05 is shown over 100 judged answers")
    assert waived.waiver == waiver(GateResult.FAIL)
    assert decision.state is PromotionState.OPEN


def test_a_waiver_covers_no_loss_that_lies_below_the_one_it_was_given_for_nor_one_of_something_else() -> None:
    known = replace(waiver(GateResult.FAIL), losses={"NDCG@10": (-0.081, -0.043)})
    waivers = {GateName.OFFLINE: known}
    assert gate(decide(offline(low=-0.07, high=-0.03), judge(), ABSENT, waivers), GateName.OFFLINE).result == "waived"
    worse = decide(offline(low=-0.607, high=-0.53), judge(), ABSENT, waivers)
    assert gate(worse, GateName.OFFLINE).result is GateResult.FAIL
    assert worse.state is PromotionState.STOPPED
    assert "the waiver of offline by ana does not cover that: it was given before that was found" in worse.reason
    older = {GateName.OFFLINE: replace(known, losses=None)}
    assert gate(decide(offline(low=-0.607, high=-0.53), judge(), ABSENT, older), GateName.OFFLINE).result == "waived"
    other = {GateName.OFFLINE: replace(known, losses={"MRR@10": (-0.7, -0.5)})}
    assert gate(decide(offline(low=-0.07, high=-0.03), judge(), ABSENT, other), GateName.OFFLINE).result == "fail"


def test_a_waiver_of_one_broken_guard_rail_covers_no_other_and_no_harm_to_users() -> None:
    broken = guard(-0.2, -0.1)
    first = decide_promotion(offline(), judge(), BETTER, {}, guards=[broken])
    known = replace(waiver(GateResult.FAIL), losses=gate(first, GateName.EXPOSURE).losses)
    assert known.losses == {"faithfulness": (-0.2, -0.1)}
    waivers = {GateName.EXPOSURE: known}
    assert decide_promotion(offline(), judge(), BETTER, waivers, guards=[broken]).state is PromotionState.PROMOTE
    second = replace(guard(-0.305, -0.091), name="experiment other")
    both = decide_promotion(offline(), judge(), BETTER, waivers, guards=[broken, second])
    assert both.state is PromotionState.NEEDS_DECISION
    assert decide_promotion(offline(), judge(), WORSE, waivers, guards=[broken]).state is PromotionState.STOPPED


def test_a_promotion_is_by_waiver_only_where_it_needs_one() -> None:
    waivers = {GateName.OFFLINE: waiver(GateResult.FAIL), GateName.JUDGE: waiver()}
    passed = decide(offline(low=-0.09, high=-0.03), judge(calibrated=False), BETTER, waivers)
    assert (passed.state, passed.by_waiver) == (PromotionState.PROMOTE, False), "users overrule the gates before"
    needed = decide(offline(), BAD_JUDGE, BETTER, {GateName.JUDGE: waiver(GateResult.FAIL)})
    assert (needed.state, needed.by_waiver) == (PromotionState.PROMOTE, True)


def test_a_waived_exposure_is_told_with_who_waived_it_where_the_judge_failed_as_well() -> None:
    waivers = {GateName.EXPOSURE: waiver(GateResult.FAIL)}
    decision = decide_promotion(offline(), BAD_JUDGE, BETTER, waivers, guards=[guard(-0.2, -0.1)])
    assert decision.state is PromotionState.NEEDS_DECISION
    assert decision.reason.startswith("users are served better, but the judge failed: ")
    assert decision.reason.count("users are served better (") == 1
    assert "exposure failed (users are served better (users say so), but " in decision.reason
    assert "waived by ana: “an internal tool with ten users”" in decision.reason


def test_a_promotion_by_waivers_says_of_each_what_it_had_found_who_waived_it_and_why() -> None:
    waivers = {GateName.JUDGE: waiver(GateResult.FAIL, by="bo"), GateName.EXPOSURE: waiver(GateResult.FAIL)}
    decision = decide(offline(), BAD_JUDGE, WORSE, waivers)
    assert decision.state is PromotionState.PROMOTE
    why = "“an internal tool with ten users”"
    assert decision.reason == (
        "it may go to all users: a person decided so, against what exposure showed; judge failed (a loss of more than "
        f"0.05 is shown over 100 judged answers: faithfulness -0.200 to -0.060), waived by bo: {why}; exposure failed "
        f"(users say so), waived by ana: {why}"
    )
    assert "not asked" not in decision.reason


@pytest.mark.parametrize(
    ("evidence", "says"),
    [
        (ABSENT, "without asking users; exposure decided nothing (no experiment is set), waived by ana"),
        (exposure(0.01, 0.1, mismatch=True), "although what users showed cannot be believed; exposure decided nothing"),
        (
            exposure(-0.1, 0.1),
            "before users showed a difference; exposure decided nothing (users say so; it can",
        ),
    ],
)
def test_a_waived_exposure_tells_whether_users_were_asked(evidence: ExposureEvidence | str, says: str) -> None:
    decision = decide(offline(), judge(), evidence, {GateName.EXPOSURE: waiver()})
    assert decision.state is PromotionState.PROMOTE
    assert decision.reason.startswith(f"it may go to all users: a person decided so, {says}")


@pytest.mark.parametrize("name", list(GateName))
def test_who_waived_what_was_unknown_has_not_waived_a_loss_that_is_shown_later(name: GateName) -> None:
    decision = decide(offline(low=-0.09, high=-0.03), BAD_JUDGE, WORSE, {name: waiver()})
    assert gate(decision, name).result is GateResult.FAIL
    assert decision.state is PromotionState.STOPPED


def test_a_gate_that_passes_needs_no_waiver() -> None:
    decision = decide(offline(), judge(), BETTER, {GateName.OFFLINE: waiver(), GateName.EXPOSURE: waiver()})
    assert [one.result for one in decision.gates] == [GateResult.PASS] * 3
    assert decision.reason == "it may go to all users: they are served better, users say so"


def test_a_judge_that_failed_and_users_who_are_happier_are_a_decision_for_a_person() -> None:
    decision = decide(offline(), BAD_JUDGE, BETTER)
    assert decision.state is PromotionState.NEEDS_DECISION
    assert decision.reason.startswith("users are served better (users say so), but the judge failed: a loss of more")
    assert decision.reason.endswith("a person decides: keep what is current, or waive judge")
    signed = decide(offline(), BAD_JUDGE, BETTER, {GateName.JUDGE: waiver(GateResult.FAIL)})
    assert signed.state is PromotionState.PROMOTE
    assert "; judge failed (a loss of more than 0.05 is shown" in signed.reason


@pytest.mark.parametrize(
    ("rail", "result", "state"),
    [
        (guard(-0.04, 0.03), GateResult.PASS, PromotionState.PROMOTE),
        (guard(-0.06, 0.03), GateResult.INCONCLUSIVE, PromotionState.OPEN),
        (guard(-0.20, -0.05), GateResult.FAIL, PromotionState.NEEDS_DECISION),
        (
            GuardEvidence(name="faithfulness", allowed_loss=0.05, found="no answers"),
            GateResult.INCONCLUSIVE,
            PromotionState.OPEN,
        ),
    ],
)
def test_exposure_passes_only_where_its_guard_rails_hold(
    rail: GuardEvidence, result: GateResult, state: PromotionState
) -> None:
    decision = decide_promotion(offline(), judge(), BETTER, {}, guards=[rail])
    last = gate(decision, GateName.EXPOSURE)
    assert (last.result, last.guards[0].result, decision.state) == (result, result, state)
    assert last.guards[0].reason in decision.reason
    undecided = decide_promotion(offline(), judge(), exposure(-0.1, 0.1), {}, guards=[rail])
    assert undecided.state is (PromotionState.STOPPED if result is GateResult.FAIL else PromotionState.OPEN)


def test_a_broken_guard_rail_is_waived_like_harm_and_stays_named() -> None:
    broken = [guard(-0.20, -0.06)]
    waivers = {GateName.EXPOSURE: waiver(GateResult.FAIL)}
    decision = decide_promotion(offline(), judge(), BETTER, waivers, guards=broken)
    assert decision.state is PromotionState.PROMOTE
    assert "with users who are served better, although a guard rail is broken; exposure failed" in decision.reason
    assert "but a loss of more than 0.05 is shown: faithfulness -0.200 to -0.060" in decision.reason


def test_an_open_critical_alert_stops_whatever_else_but_harm_is_found() -> None:
    alert = ["check docs has 1 open critical alert"]
    stopped = decide_promotion(offline(), judge(), BETTER, {}, stopping=alert)
    assert (stopped.state, stopped.reason.split(":")[0]) == (
        PromotionState.STOPPED,
        "stopped while check docs has 1 open critical alert",
    )
    assert decide_promotion(offline(), judge(), WORSE, {}, stopping=alert).reason.startswith("stopped by exposure")


def test_no_finding_is_left_out_of_the_conclusion() -> None:
    stopped = decide(offline(), BAD_JUDGE, WORSE)
    assert "; what users do overrules the rest; judge failed: a loss of more than 0.05 is shown" in stopped.reason
    unasked = decide(offline(canaries=212), judge(calibrated=False), BETTER)
    assert unasked.state is PromotionState.PROMOTE
    few = "212 canaries that both newest runs measured, of at least 500: add canaries to the suite"
    assert f"; offline decided nothing: {few}; judge decided nothing: the judge" in unasked.reason
    waived = decide(offline(canaries=212), judge(), exposure(-0.1, 0.1), {GateName.OFFLINE: waiver()})
    assert f"; offline decided nothing ({few}), waived by ana" in waived.reason
    late = decide(offline(), judge(), WORSE, {GateName.EXPOSURE: waiver()})
    assert late.reason.endswith("the waiver of exposure by ana does not cover that: it was given before that was found")
    both = decide_promotion(offline(), judge(), WORSE, {}, stopping=["check docs has 1 open critical alert"])
    assert "; and check docs has 1 open critical alert: what was measured meanwhile may be caused by" in both.reason


CHANGED = "check 'b' was of k 5, which is 10 by now"


def test_a_waiver_that_a_change_of_a_check_voids_says_so_and_one_of_that_change_counts() -> None:
    changed = replace(exposure(-0.1, 0.1), changed=CHANGED)
    given = {name: waiver() for name in GateName}
    before = decide(offline(), judge(), changed, given)
    assert before.state is PromotionState.OPEN
    assert before.reason.endswith(
        "waiver of exposure by ana does not cover that: it was given before a check was changed"
    )
    found = gate(before, GateName.EXPOSURE)
    assert found.reason.startswith(f"{CHANGED}: users were asked about what it was before, so begin a new epoch; users")
    assert found.next is NextStep.BEGIN_AGAIN
    again = {**given, GateName.EXPOSURE: replace(waiver(), found=found.reason)}
    assert decide(offline(), judge(), changed, again).state is PromotionState.PROMOTE


def test_who_waived_before_users_showed_anything_is_not_said_to_have_known_it() -> None:
    found = replace(exposure(-0.05, 0.05), ended=True, within=0.06, ended_since=1_767_225_600_000_000)
    given = {GateName.EXPOSURE: waiver()}
    rail = GuardEvidence(name="experiment cost", allowed_loss=0.02, found=Margin(low=-0.038, high=0.011))
    says = {}
    for at in ("2025-12-31T23:59:59Z", "2026-01-01T00:00:00.5Z"):
        given = {GateName.EXPOSURE: replace(waiver(), at=at)}
        reason = decide_promotion(offline(), judge(), found, given, guards=[rail]).reason
        says[at[:4]] = reason.partition("a person decided so, ")[2].partition(";")[0]
        assert "; a loss of more than 0.02 is not ruled out: experiment cost -0.038 to +0.011), waived by ana" in reason
    assert says == {
        "2025": "before users showed a difference",
        "2026": "where users showed no difference larger than 0.06",
    }


def test_what_lost_is_told_apart_from_what_did_not() -> None:
    measures = {"faithfulness": Margin(low=-0.2, high=-0.06), "answer_relevance": Margin(low=-0.01, high=0.02)}
    found = judged(measures)
    assert gate(decide(judge_=found), GateName.JUDGE).reason == (
        "a loss of more than 0.05 is shown over 100 judged answers: faithfulness -0.200 to -0.060; "
        "no loss of more than 0.05 over 100 judged answers: answer_relevance -0.010 to +0.020"
    )


@pytest.mark.parametrize(
    ("own", "result"),
    [((-0.21, -0.07), GateResult.FAIL), ((-0.06, 0.02), GateResult.INCONCLUSIVE)],
)
def test_a_loss_that_the_judge_shows_is_not_undone_by_labels_that_are_too_few(
    own: tuple[float, float], result: GateResult
) -> None:
    corrected = Margin(low=-0.37, high=-0.01, basis="corrected", uncorrected=Margin(low=own[0], high=own[1]))
    found = judged({"faithfulness": corrected}, answers=200)
    decision = decide_promotion("no runs", found, "no experiment is set", {})
    assert decision.gates[1].result is result
    whose = "(corrected, which shows it, and labels do not rule it out)"
    assert (whose in decision.gates[1].reason) is (result is GateResult.FAIL)
    refuted = replace(corrected, low=-0.04, high=0.1)
    found = judged({"faithfulness": refuted}, answers=200)
    rail = GuardEvidence(name="faithfulness", allowed_loss=0.05, found=found.measures["faithfulness"])
    gates = decide_promotion("no runs", found, BETTER, {}, guards=[rail]).gates
    assert (gates[1].result, gates[2].guards[0].result) == (GateResult.PASS, GateResult.PASS)
    assert (gates[1].losses, gates[2].losses) == ({}, {}), "what labels rule out is no loss that was shown"


NAME = "(?:offline|judge|exposure)"
ADVICE = re.compile(
    rf"or waive (?P<waive>{NAME}(?:(?:, | and ){NAME})*)"
    rf"(?:, and also (?P<also>{NAME}(?:(?:, | and ){NAME})*) unless (?:it passes|they pass) first)?(?:;|$)"
)
OFFLINES: tuple[OfflineEvidence | str, ...] = (
    offline(),
    offline(low=-0.09, high=-0.03),
    offline(canaries=212),
    replace(offline(), judgments=(own(Side.B),)),
    replace(offline(low=-0.09, high=-0.03), judgments=(own(Side.A),)),
    ABSENT,
)
JUDGES: tuple[JudgeEvidence | str, ...] = (
    judge(),
    judge(low=-0.2, high=-0.06),
    judge(calibrated=False),
    JudgeEvidence(measures={"faithfulness": {"faithfulness": "no judge rates them"}}),
    NO_JUDGE,
)
EXPOSURES: tuple[ExposureEvidence | str, ...] = (
    exposure(0.01, 0.1),
    exposure(-0.1, -0.01),
    exposure(-0.1, 0.1),
    exposure(0.01, 0.1, mismatch=True),
    ABSENT,
    replace(exposure(-0.1, 0.1), ended=True),
    replace(exposure(-0.01, 0.01), ended=True, within=0.06),
    replace(exposure(0.01, 0.1), ended=True),
)
RAILS: tuple[tuple[GuardEvidence, ...], ...] = (
    (),
    (guard(-0.04, 0.03),),
    (guard(-0.2, -0.06),),
    (guard(-0.06, 0.03),),
    (replace(guard(-0.06, 0.03), ended=True),),
)
WAIVED = (None, GateResult.INCONCLUSIVE, GateResult.FAIL)

Evidence = tuple[
    OfflineEvidence | str,
    JudgeEvidence | str,
    ExposureEvidence | str,
    tuple[GuardEvidence, ...],
    dict[GateName, Waiver],
]


def every_combination() -> Iterator[Evidence]:
    signatures = tuple(product(WAIVED, WAIVED, WAIVED))
    for first, second, third, rails, given in product(OFFLINES, JUDGES, EXPOSURES, RAILS, signatures):
        waivers = {name: waiver(one) for name, one in zip(GateName, given, strict=True) if one is not None}
        yield first, second, third, rails, waivers


def followed(evidence: Evidence, waive: Sequence[GateName], *, passing: Sequence[GateName] = ()) -> PromotionState:
    """Return the state once these gates are waived as they stand, and those pass."""
    first, second, third, rails, given = evidence
    gates = decide_promotion(first, second, third, given, guards=rails).gates
    signed = given | {one.gate: waiver(one.evidence) for one in gates if one.gate in waive}
    return decide_promotion(
        OFFLINES[0] if GateName.OFFLINE in passing else first,
        JUDGES[0] if GateName.JUDGE in passing else second,
        EXPOSURES[0] if GateName.EXPOSURE in passing else third,
        signed,
        guards=RAILS[1] if GateName.EXPOSURE in passing else rails,
    ).state


def test_waiving_what_a_decision_names_leads_to_the_promotion_and_nothing_less_does() -> None:
    seen = 0
    for first, second, third, rails, given in every_combination():
        decision = decide_promotion(first, second, third, given, guards=rails)
        advice = ADVICE.search(decision.reason)
        assert (advice is not None) is ("or waive" in decision.reason), decision.reason
        needed = decision.state is PromotionState.NEEDS_DECISION
        assert needed or decision.state is PromotionState.OPEN or advice is None, decision.reason
        assert advice is not None or not needed, decision.reason
        assert ("more units change nothing for exposure" in decision.reason) is (advice is not None and not needed)
        if advice is None:
            continue
        seen += 1
        waive, also = ([GateName(one) for one in re.findall(NAME, advice[part] or "")] for part in ("waive", "also"))
        named = [*waive, *also]
        assert ("an admin decides" in decision.reason) is (decision.gates[-1].result is GateResult.FAIL)

        evidence = (first, second, third, rails, given)
        assert followed(evidence, named) is PromotionState.PROMOTE, decision.reason
        assert followed(evidence, waive, passing=also) is PromotionState.PROMOTE, decision.reason
        for left_out in named:
            fewer = [name for name in named if name is not left_out]
            assert followed(evidence, fewer) is not PromotionState.PROMOTE, (
                f"{left_out} need not be named: {decision.reason}"
            )
    assert seen > 100


@pytest.mark.parametrize(
    ("first", "second", "rails", "says"),
    [
        (
            "no runs",
            BAD_JUDGE,
            RAILS[2],
            "or waive judge and exposure, and also offline unless it passes first",
        ),
        (offline(), NO_JUDGE, RAILS[2], "waive exposure, and also judge unless it passes first"),
        (OFFLINES[3], JUDGES[3], RAILS[2], "or waive offline, judge and exposure"),
        (offline(low=-0.09, high=-0.03), BAD_JUDGE, RAILS[2], "waive offline, judge and exposure"),
        ("no runs", BAD_JUDGE, RAILS[3], "waive judge, and also offline and exposure unless they pass first"),
        ("no runs", BAD_JUDGE, RAILS[0], "a person decides: keep what is current, or waive judge"),
    ],
)
def test_a_decision_names_every_gate_that_is_in_the_way(
    first: OfflineEvidence | str, second: JudgeEvidence | str, rails: tuple[GuardEvidence, ...], says: str
) -> None:
    decision = decide_promotion(first, second, BETTER, {}, guards=rails)
    assert f"{says};" in f"{decision.reason};"


@pytest.mark.parametrize(
    ("within", "says"),
    [
        (None, "exposure ended without a decision: users say so; it can show 0.07"),
        (0.06, "exposure ended: no difference larger than 0.06: users say so"),
    ],
)
def test_an_exposure_that_ended_undecided_says_so_and_what_follows(within: float | None, says: str) -> None:
    ended = replace(exposure(-0.05, 0.05), ended=True, within=within)
    alone = decide(offline(), judge(), ended)
    assert (alone.state, alone.gates[-1].result) == (PromotionState.OPEN, GateResult.INCONCLUSIVE)
    assert alone.reason == (
        f"{says}; more units change nothing for exposure: keep what is current, begin a new epoch, or waive exposure"
    )
    others = decide("no runs", judge(calibrated=False), ended)
    assert f"; {says}; more units" in others.reason
    assert others.reason.endswith("or waive exposure, and also offline and judge unless they pass first")
    stopped = decide(offline(low=-0.09, high=-0.03), judge(), ended)
    assert stopped.reason.endswith(says)
    waived = decide(offline(), judge(), ended, {GateName.EXPOSURE: waiver()})
    how = "although exposure ended without" if within is None else "where users showed no difference larger than 0.06"
    assert how in waived.reason
    for one in (alone, others, stopped, waived):
        assert "exposure has decided nothing" not in one.reason
        assert "exposure decided nothing" not in one.reason


def test_a_waived_rail_that_is_broken_is_named_where_users_showed_no_difference() -> None:
    ended = replace(exposure(-0.05, 0.05), ended=True, within=0.06)
    rail = GuardEvidence(name="experiment calm", allowed_loss=0.02, found=Margin(low=-0.2, high=-0.1))
    given = {GateName.EXPOSURE: waiver(GateResult.FAIL)}
    found = decide_promotion(offline(), judge(), ended, given, guards=[rail])
    how = "where users showed no difference larger than 0.06, although a guard rail is broken"
    assert (found.state, how in found.reason) == (PromotionState.PROMOTE, True)


def test_an_exposure_whose_guard_rail_ended_unknown_cannot_pass_any_more() -> None:
    decision = decide_promotion(offline(), judge(), BETTER, {}, guards=RAILS[-1])
    assert decision.reason.startswith(
        "exposure cannot pass any more: users are served better (users say so), but a loss"
    )
    assert ", and no more units come; more units change nothing for exposure: keep what" in decision.reason
    assert decision.reason.endswith("or waive exposure")
    failed = decide_promotion(offline(), BAD_JUDGE, BETTER, {}, guards=RAILS[-1])
    assert failed.reason.endswith("a person decides: keep what is current, or waive judge and exposure")
    assert failed.reason.startswith("users are served better (users say so), but a loss")
    assert failed.reason.count("users are served better") == 1, "and not within brackets of the same words"
