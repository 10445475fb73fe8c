"""What the offline gate rests on: the runs that it compares, and the canaries that a side did not answer."""

from typing import Any

import pytest

from app.answers.domain.generated import AnswerCounts
from app.base.db.engine import Store
from app.base.errors import InvalidInputError
from app.base.values import Answer, Outcome, replace
from app.comparison.domain.outcomes import ComparisonVerdict
from app.experiments.domain.margins import GateResult
from app.experiments.domain.promotion_evidence import (
    CategoryLosses,
    GuardEvidence,
    JudgedQuestion,
    JudgeEvidence,
    Margin,
    OfflineEvidence,
)
from app.experiments.domain.promotions import NextStep, decide_promotion
from app.experiments.service.promotions import compare_offline
from tests.support.fakes import answered, hits
from tests.support.user_traffic import Users
from tests.support.world import CHECK, RETRIEVER, World, canary, page

FOUND = OfflineEvidence(
    canaries=531,
    verdict=ComparisonVerdict.BETTER,
    measures={"MRR@10": Margin(low=0.02, high=0.06), "NDCG@10": Margin(low=0.01, high=0.05)},
)
KEPT = "no loss of more than 0.02 over 531 canaries: MRR@10 +0.020 to +0.060, NDCG@10 +0.010 to +0.050"
OLD = "run 7 of check 'candidate' asked retriever 'r1', and the check asks 'r2' by now"


EDITED = "since run 8 of check 'candidate' 32 canaries of suite 's' were archived, and still count here"
UNANSWERED = "are not compared, more than 10 %: see why, and run it again"
FEW = "440 canaries that both newest runs measured, of at least 500"
NOT_MANY = "420 canaries that both newest runs measured, of at least 500"
NONE = "0 canaries that both newest runs measured, of at least 500"
TOO_MANY = "are not compared, more than 10 %"
CURRENT_TOO = "20 canaries have no answer of what is current, also not compared"
LOST = "a loss of more than 0.02 is shown over 531 canaries: MRR@10 -0.200 to -0.100"


def mend(number: int) -> str:
    return f"see why {number} canaries were not measured, and run again: with these there are enough"


@pytest.mark.parametrize(
    ("evidence", "result", "says"),
    [
        (FOUND, GateResult.PASS, KEPT),
        (
            replace(FOUND, unanswered=59),
            GateResult.PASS,
            f"{KEPT}; 59 of 590 canaries have no answer of the candidate, and are not compared",
        ),
        (
            replace(FOUND, unanswered_now=1),
            GateResult.PASS,
            f"{KEPT}; 1 canary has no answer of what is current, also not compared",
        ),
        (
            replace(FOUND, unanswered=69),
            GateResult.INCONCLUSIVE,
            f"{KEPT}; 69 of 600 canaries have no answer of the candidate, and {UNANSWERED}",
        ),
        (
            replace(FOUND, canaries=440, unanswered=160),
            GateResult.INCONCLUSIVE,
            f"{FEW}: {mend(160)}; 160 of 600 canaries have no answer of the candidate, and {TOO_MANY}",
        ),
        (
            replace(FOUND, canaries=440, unanswered=50, unanswered_now=20, unanswered_by_both=10),
            GateResult.INCONCLUSIVE,
            f"{FEW}: {mend(60)}; 50 of 490 canaries have no answer of the candidate, and {TOO_MANY}; {CURRENT_TOO}",
        ),
        (
            replace(FOUND, canaries=440, unanswered=59),
            GateResult.INCONCLUSIVE,
            f"{FEW}: add canaries to the suite; 59 of 499 canaries have no answer of the candidate, and {UNANSWERED}",
        ),
        (
            replace(FOUND, canaries=0, unanswered=505),
            GateResult.INCONCLUSIVE,
            f"{NONE}: {mend(505)}; 505 of 505 canaries have no answer of the candidate, and {TOO_MANY}",
        ),
        (
            replace(FOUND, canaries=420, unlike=100),
            GateResult.INCONCLUSIVE,
            f"{NOT_MANY}: 100 canaries differ between these runs, so run both checks again",
        ),
        (
            replace(FOUND, canaries=0, without_judgments=40),
            GateResult.INCONCLUSIVE,
            f"{NONE}: 40 canaries expect nothing, so say what each is to find",
        ),
        (
            replace(FOUND, shared="the same retriever, 'r1'"),
            GateResult.PASS,
            f"{KEPT}; the checks ask the same retriever, 'r1': nothing else is compared",
        ),
        (replace(FOUND, edits=(EDITED,), archived=31), GateResult.PASS, f"{KEPT}; {EDITED}"),
        (
            replace(FOUND, edits=(EDITED,), archived=32),
            GateResult.INCONCLUSIVE,
            f"{KEPT}; 32 canaries of these were archived, and 499 are left; {EDITED}",
        ),
        (replace(FOUND, outdated=(OLD,)), GateResult.INCONCLUSIVE, f"{OLD}: run it again; {KEPT}"),
        (
            replace(FOUND, outdated=(OLD,), measures={"MRR@10": Margin(low=-0.2, high=-0.1)}),
            GateResult.FAIL,
            f"{OLD}: run it again; {LOST}",
        ),
    ],
)
def test_nothing_passes_by_runs_of_something_else_or_with_a_tenth_unanswered(
    evidence: OfflineEvidence, result: GateResult, says: str
) -> None:
    found = decide_promotion(evidence, "no runs", "no experiment", {}).gates[0]
    assert (found.result, found.reason) == (result, says)
    assert (found.next is NextStep.RUN_AGAIN) == (result is GateResult.INCONCLUSIVE and bool(evidence.outdated))


OVER = "over 531 canaries"
R_LOST = Margin(low=-0.195, high=-0.111)
PROCEDURAL = "category procedural (180 canaries)"
R_LOWER = Margin(low=-0.063, high=-0.008)


@pytest.mark.parametrize(
    ("paid", "result", "says"),
    [
        ({"R@5": R_LOST}, GateResult.FAIL, f"a loss of more than 0.02 is shown {OVER}: R@5 -0.195 to -0.111; {KEPT}"),
        (
            {"R@5": R_LOWER},
            GateResult.INCONCLUSIVE,
            f"a loss of more than 0.02 is not ruled out {OVER}: R@5 -0.063 to -0.008; {KEPT}",
        ),
        ({"P@5": Margin(low=-0.015, high=-0.005)}, GateResult.PASS, f"{KEPT}, P@5 -0.015 to -0.005"),
    ],
)
def test_no_loss_is_said_of_no_measure_that_is_claimed_to_be_lower(
    paid: dict[str, Margin], result: GateResult, says: str
) -> None:
    evidence = replace(FOUND, verdict=ComparisonVerdict.WORSE, paid=paid)
    found = decide_promotion(evidence, "no runs", "no experiment", {}).gates[0]
    assert (found.result, found.reason) == (result, says)
    lost = {name: (one.low, one.high) for name, one in paid.items()}
    assert found.losses == (lost if result is GateResult.FAIL else {})


@pytest.mark.parametrize(
    ("lost", "result", "says"),
    [
        (
            {"R@5": R_LOST, "P@5": R_LOWER},
            GateResult.FAIL,
            (
                f"a loss of more than 0.02 is shown in {PROCEDURAL}: R@5 -0.195 to -0.111; a loss of more than 0.02 is "
                f"not ruled out in {PROCEDURAL}: P@5 -0.063 to -0.008; {KEPT}"
            ),
        ),
        (
            {"R@5": R_LOWER},
            GateResult.INCONCLUSIVE,
            f"a loss of more than 0.02 is not ruled out in {PROCEDURAL}: R@5 -0.063 to -0.008; {KEPT}",
        ),
        ({"P@5": Margin(low=-0.015, high=-0.005)}, GateResult.PASS, KEPT),
    ],
)
def test_a_category_that_loses_is_named_and_lets_nothing_pass_whatever_the_whole_gains(
    lost: dict[str, Margin], result: GateResult, says: str
) -> None:
    evidence = replace(FOUND, categories=(CategoryLosses(category="procedural", canaries=180, paid=lost),))
    found = decide_promotion(evidence, "no runs", "no experiment", {}).gates[0]
    assert (found.result, found.reason) == (result, says)
    fails = result is GateResult.FAIL
    assert found.losses == ({"procedural: R@5": (-0.195, -0.111)} if fails else {})
    assert (found.next is NextStep.CHANGE_CANDIDATE) is fails


def test_a_promotion_reads_the_categories_that_its_comparison_claims_to_lose(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    made = definitions(retriever="other")
    kinds = ["simple_factual"] * 60 + ["procedural"] * 20
    made["canaries"] = [
        canary(f"c{number:02}", expected_chunks=["c1"], category=kind) for number, kind in enumerate(kinds)
    ]
    world.apply(made)
    world.probe.otherwise = lambda one: answered(hits(*(["c1"] if one.query >= "c60" else ["noise", "c1"])))
    world.run()
    world.probe.otherwise = lambda one: answered(hits("noise" if one.query >= "c60" else "c1"))
    world.run("candidate")
    [lost] = compare(sqlite_store).categories
    assert (lost.category, lost.canaries, lost.paid["R@5"]) == ("procedural", 20, Margin(low=-1.0, high=-1.0))
    assert "R@5" in compare(sqlite_store).paid, "and so does the whole"


def test_a_judge_passes_nothing_by_runs_of_something_else() -> None:
    one = {"faithfulness": JudgedQuestion(answers=150, calibrated=True, margin=Margin(low=-0.01, high=0.01))}
    rail = GuardEvidence(name="faithfulness", allowed_loss=0.05, found=one, outdated=(OLD,))
    evidence = JudgeEvidence(measures={"faithfulness": one}, outdated=(OLD,))
    gates = decide_promotion(FOUND, evidence, "no experiment", {}, guards=[rail]).gates
    for result, reason in ((gates[1].result, gates[1].reason), (gates[2].guards[0].result, gates[2].guards[0].reason)):
        assert (result, reason.startswith(f"{OLD}: run it again; no loss of")) == (GateResult.INCONCLUSIVE, True)
    assert gates[1].next is NextStep.RUN_AGAIN


AGAIN = ", more than 10 %: see why, and run it again"
UNRATED: list[tuple[AnswerCounts, GateResult, str]] = [
    (
        AnswerCounts(asked=363, silent=15),
        GateResult.PASS,
        "the judge did not rate 15 of 363 answers of SIDE (faithful)",
    ),
    (
        AnswerCounts(asked=600, silent=252),
        GateResult.INCONCLUSIVE,
        f"the judge did not rate 252 of 600 answers of SIDE (faithful){AGAIN}",
    ),
    (
        AnswerCounts(asked=400, missing=31),
        GateResult.PASS,
        "31 of 400 answers of SIDE did not come, and are not compared",
    ),
    (
        AnswerCounts(asked=400, missing=41),
        GateResult.INCONCLUSIVE,
        f"41 of 400 answers of SIDE did not come, and are not compared{AGAIN}",
    ),
    (
        AnswerCounts(asked=400, missing=21, silent=20),
        GateResult.INCONCLUSIVE,
        (
            "21 of 400 answers of SIDE did not come, and are not compared; "
            f"the judge did not rate 20 of 400 answers of SIDE (faithful){AGAIN}"
        ),
    ),
]


@pytest.mark.parametrize(("counts", "result", "says"), UNRATED)
@pytest.mark.parametrize(("side", "name"), [("current", "the current check"), ("candidate", "the candidate")])
def test_answers_without_a_rating_are_told_and_many_of_them_of_either_side_let_nothing_pass(
    side: str, name: str, counts: AnswerCounts, result: GateResult, says: str
) -> None:
    kept = Margin(low=-0.01, high=0.01)
    sides: Any = {side: counts}
    one = JudgedQuestion(answers=348, calibrated=True, margin=kept, **sides)
    rail = GuardEvidence(name="faithful", allowed_loss=0.05, found={"faithful": one})
    evidence = JudgeEvidence(measures={"faithful": {"faithful": one}})
    gates = decide_promotion(FOUND, evidence, "no experiment", {}, guards=[rail]).gates
    for found in (gates[1], gates[2].guards[0]):
        assert (found.result, found.reason.endswith(f"; {says.replace('SIDE', name)}")) == (result, True), found.reason
    assert gates[1].next is (None if result is GateResult.PASS else NextStep.MEASURE_MORE)
    lost = JudgedQuestion(answers=348, calibrated=True, margin=Margin(low=-0.2, high=-0.1), **sides)
    again = JudgeEvidence(measures={"faithful": {"faithful": lost}})
    failed = decide_promotion(FOUND, again, "no experiment", {}).gates[1]
    assert failed.result is GateResult.FAIL, "a loss that the others show stays"


def definitions(**candidate: Any) -> dict[str, Any]:
    made = page([canary(f"c{number:02}", expected_chunks=["c1"]) for number in range(20)], rules=[], hooks=[])
    made["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    made["checks"].append({**made["checks"][0], "slug": "candidate", **candidate})
    return made


def compare(store: Store) -> OfflineEvidence:
    found = compare_offline(store, CHECK, "candidate")
    assert isinstance(found, OfflineEvidence), found
    return found


def test_a_run_of_another_retriever_or_configuration_is_told(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(definitions())
    world.probe.otherwise = lambda _: answered(hits("c1"))
    first, second = world.run(), world.run("candidate")
    found = compare(sqlite_store)
    assert (found.outdated, found.shared) == ((), f"the same retriever, '{RETRIEVER['slug']}'")
    assert [(one.check, one.run_id) for one in found.runs] == [(CHECK, str(first.id)), ("candidate", str(second.id))]
    run, slug = f"run {second.id} of check 'candidate'", RETRIEVER["slug"]
    world.apply(definitions(retriever="other"))
    asked = f"{run} asked retriever '{slug}', and the check asks 'other' by now"
    assert compare(sqlite_store).outdated == (asked,)
    world.apply(definitions(k=2, fetch_k=10))
    assert compare(sqlite_store).outdated == (f"{run} was of k 5, which is 2 by now",)
    changed = definitions()
    changed["retrievers"][0] = {**RETRIEVER, "url": "http://127.0.0.1:1/other"}
    world.apply(changed)
    assert compare(sqlite_store).outdated == (
        f"run {first.id} of check '{CHECK}' asked retriever '{slug}' before its url changed",
        f"{run} asked retriever '{slug}' before its url changed",
    )
    world.run()
    world.run("candidate")
    assert compare(sqlite_store).shared == f"the same retriever, '{RETRIEVER['slug']}'"
    changed["retrievers"][0]["timeout"] = 3
    changed["checks"][1]["hooks"] = []
    world.apply(changed)
    assert compare(sqlite_store).outdated == (), "how it is asked changes no answer"
    gone = {**changed, "canaries": changed["canaries"][:-1]}
    world.apply(gone)
    evidence = compare(sqlite_store)
    says = "of check 'candidate' 1 canary of suite 'suite' was archived, and still counts here: run both checks again"
    assert evidence.edits == (f"since run {second.id + 2} {says}",)
    assert evidence.archived == 1
    world.apply(changed)
    for edited, told in ((2, False), (3, True)):
        other = [{**one, "expected_chunks": ["c9"]} for one in changed["canaries"][:edited]]
        world.apply({**changed, "canaries": [*other, *changed["canaries"][edited:]]})
        outdated = compare(sqlite_store).outdated
        before = "was before 3 of 20 canaries were edited or added"
        assert [one.endswith(before) for one in outdated] == [True, True] * told


def test_canaries_that_a_side_did_not_answer_are_counted(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(definitions())
    world.probe.otherwise = lambda _: answered(hits("c1"))
    world.run()
    asked = iter(range(20))
    failed = Answer(outcome=Outcome.REFUSED, latency_seconds=0.1, http_status=500)
    world.probe.otherwise = lambda _: failed if next(asked) < 3 else answered(hits("c1"))
    world.run("candidate")
    found = compare(sqlite_store)
    assert (found.canaries, found.unanswered, found.unanswered_now) == (17, 3, 0)
    assert found.lacks_answers


def test_canaries_that_expect_something_else_in_each_run_are_counted(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    made = definitions()
    world.apply(made)
    world.probe.otherwise = lambda _: answered(hits("c1"))
    world.run()
    made["canaries"][:4] = [canary(f"c{number:02}", expected_chunks=["c2"]) for number in range(4)]
    world.apply(made)
    world.run("candidate")
    assert (compare(sqlite_store).canaries, compare(sqlite_store).unlike) == (16, 4)
    del made["canaries"][:4]
    world.apply(made)
    world.run("candidate")
    assert (compare(sqlite_store).canaries, compare(sqlite_store).unlike) == (16, 0), "no run brings what is archived"
    made["canaries"] += [canary("new", expected_chunks=["c1"])]
    world.apply(made)
    world.run()
    assert (compare(sqlite_store).canaries, compare(sqlite_store).unlike) == (16, 1)


def test_checks_over_different_suites_are_no_promotion(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    made = definitions(suite="second")
    world.apply(made, {"suite": "second", "canaries": made["canaries"]})
    with pytest.raises(InvalidInputError, match="the checks are over different suites"):
        Users(sqlite_store).promote(current=CHECK, candidate="candidate")
    world.probe.otherwise = lambda _: answered(hits("c1"))
    world.run()
    world.run("candidate")
    assert str(compare_offline(sqlite_store, CHECK, "candidate")).startswith("the checks are over different suites, ")
