"""What canaries rule out: counted in both runs, decided with the measures, and told wherever a comparison is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from app.base.db.engine import Store
from app.base.values import Outcome, replace
from app.comparison.domain.outcomes import (
    ComparisonVerdict,
    Side,
    ViolationKind,
    Violations,
    compare,
    count_violations,
)
from app.comparison.domain.sentences import A_AND_B, headline
from app.comparison.service import comparisons
from app.experiments.domain.margins import GateResult
from app.experiments.domain.promotions import GateName, PromotionState, Waiver
from app.experiments.service.promotions import compare_offline
from tests.experiments.test_promotion_gates import decide, exposure, gate, judge
from tests.support.fakes import answered, failed, hits
from tests.support.pages_service import site
from tests.support.world import CHECK, RETRIEVER, World, canary, page

ASKED = [canary(f"q{number:02}") for number in range(20)]
SECRET: list[dict[str, Any]] = [
    {
        "key": f"s{number:02}",
        "query": f"s{number:02}",
        "category": "negative",
        "forbidden_chunks": [f"payroll-{number}"],
    }
    for number in range(12)
]
OTHER = "second"


def got(kind: ViolationKind, a: Sequence[int], b: Sequence[int], of: int = 60) -> Violations:
    """Count canaries that got what they rule out, named by number."""
    found = count_violations(
        kind, [f"n{number}" for number in range(of)], [number in a for number in range(of)],
        [number in b for number in range(of)],
    )  # fmt: skip
    assert found is not None
    return found


def decided(*violations: Violations, up: float = 0.0, canaries: int = 40) -> Any:
    column = np.array([up, 0.0] * (canaries // 2))
    return compare(
        {"NDCG@10": np.zeros(canaries)},
        {"NDCG@10": column},
        primaries=["NDCG@10"],
        categories=(),
        violations=violations,
    )


def test_forbidden_chunks_are_no_gain_however_much_measures_rise() -> None:
    found = decided(got(ViolationKind.FORBIDDEN, (), range(60)), up=0.2)
    assert (found.verdict, found.winner) == (ComparisonVerdict.TRADE, None)
    assert headline(found, A_AND_B) == (
        "a trade from A to B: NDCG@10 up 0.100 (95 % between +0.068 and +0.132), paid for by forbidden chunks for 60 "
        "of 60 canaries in B, for 0 in A, over 40 canaries"
    )
    assert decided(got(ViolationKind.FORBIDDEN, (), range(60))).verdict is ComparisonVerdict.WORSE
    assert decided(got(ViolationKind.FORBIDDEN, (), [3])).verdict is ComparisonVerdict.WORSE, "one leak is a leak"
    assert decided(got(ViolationKind.FORBIDDEN, range(60), ())).verdict is ComparisonVerdict.BETTER
    assert decided(got(ViolationKind.FORBIDDEN, [3], ())).verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN
    assert decided(got(ViolationKind.FORBIDDEN, [3], [4])).verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN


def test_answers_that_should_not_be_there_are_claimed_by_a_test_with_the_measures() -> None:
    few, many = (got(ViolationKind.ANSWERED, (), range(number)) for number in (5, 7))
    assert (few.is_tested, many.is_tested) == (False, True)
    assert many.p == pytest.approx(2 * 0.5**7)
    assert decided(few).verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN
    found = decided(many)
    assert (found.verdict, found.tests) == (ComparisonVerdict.WORSE, 2)
    assert found.violations[0].corrected_p == pytest.approx(2 * many.p), "by Holm over both"
    six = decided(got(ViolationKind.ANSWERED, (), range(6)))
    assert six.verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN, "significant alone, and not with a measure beside it"
    assert decided(few).decisions[0].corrected_p == decided().decisions[0].corrected_p, "no test corrects no other"


def test_canaries_that_only_rule_something_out_are_enough_for_a_verdict() -> None:
    found = decided(got(ViolationKind.FORBIDDEN, (), ()), canaries=2)
    assert found.verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN
    assert headline(found, A_AND_B) == (
        "no difference shown between A and B: forbidden chunks for 0 of 60 canaries in B, for 0 in A"
    )
    assert decided(canaries=2).verdict is ComparisonVerdict.TOO_FEW
    assert headline(decided(got(ViolationKind.FORBIDDEN, (), [1]), canaries=2), A_AND_B).startswith(
        "B scores worse than A: forbidden chunks for 1 of 60 canaries in B, for 0 in A"
    )


def leaking(store: Store, leaks: int, *, second: Any = None) -> World:
    """Run two checks: the second one finds all it should, which the first does not, and returns forbidden chunks."""
    world = World(store=store)
    plain: dict[str, Any] = {"k": 5, "rules": [], "hooks": []}
    described = page([*ASKED, *SECRET], **plain)
    described["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    described["checks"] += page([], **plain, slug=OTHER, retriever="other", **(second or {}))["checks"]
    world.apply(described)
    quiet = {one["key"]: answered(hits("noise", scores=[0.1])) for one in SECRET}
    world.probe.answers = {**quiet, **{one["key"]: answered(hits("noise", "x")) for one in ASKED[:10]}}
    world.run()
    leaked = {f"s{number:02}": answered(hits(f"payroll-{number}", scores=[0.1])) for number in range(leaks)}
    world.probe.answers = {**quiet, **leaked}
    world.run(OTHER)
    return world


def test_a_comparison_counts_the_forbidden_chunks_of_canaries_that_expect_nothing(store: Store) -> None:
    world = leaking(store, 2)
    found, _ = comparisons.compare_references(world.store, f"check:{CHECK}", f"check:{OTHER}")
    assert found["verdict"] == "trade"
    assert "paid for by forbidden chunks for 2 of 12 canaries in B, for 0 in A" in found["sentence"]
    [forbidden, answers] = found["violations"]
    assert (forbidden["kind"], forbidden["canaries"], forbidden["a"], forbidden["b"]) == ("forbidden", 12, 0, 2)
    assert (forbidden["only_b"], forbidden["winner"], forbidden["corrected_p"]) == (["s00", "s01"], "a", None)
    assert (answers["kind"], answers["canaries"], answers["b"]) == ("answered", 12, 0)
    says = [one["sentence"] for one in found["cautions"] if one["kind"] == "violations"]
    assert says == ["B returns forbidden chunks for 2 canaries for which A does not: s00, s01"]
    assert [one["sentence"][:31] for one in found["excluded"]] == ["12 canaries expect no chunk: s0"]
    back, _ = comparisons.compare_references(world.store, f"check:{OTHER}", f"check:{CHECK}")
    assert back["verdict"] == "worse"
    assert [one["kind"] for one in back["cautions"]] == ["alert"], "what leaked is open, of the check that lets it"


def test_only_what_is_ruled_out_alike_and_measured_to_the_same_depth_counts(sqlite_store: Store) -> None:
    world = leaking(sqlite_store, 2, second={"fetch_k": 20})
    deep = [f"noise-{number}" for number in range(15)]
    world.probe.answers = {
        "s00": answered(hits(*deep, "payroll-0", scores=[0.1] * 16)),
        "s01": answered(hits("payroll-1", scores=[0.1])),
        "s02": failed(Outcome.TIMEOUT),
    }
    world.probe.otherwise = lambda item: answered(hits(f"doc-{item.query}", scores=[0.1]))
    world.run(OTHER)
    found, _ = comparisons.compare_references(world.store, f"check:{CHECK}", f"check:{OTHER}")
    [forbidden, *_] = found["violations"]
    assert (forbidden["canaries"], forbidden["only_b"]) == (11, ["s01"]), "the rank of s00 is below what A asked for"


def test_a_page_shows_what_is_ruled_out(sqlite_store: Store) -> None:
    world = leaking(sqlite_store, 3)
    shown = site(world.store).page(f"/compare?a=check:{CHECK}&b=check:{OTHER}")
    [row] = [one.text for one in shown.all("tr") if one.text.startswith("Forbidden chunks")]
    assert "12 0 3" in row
    assert row.endswith("more in B")
    assert "returns forbidden chunks for 3 canaries for which A does not: s00, s01, s02" in shown.text


def test_the_offline_gate_fails_a_candidate_that_returns_forbidden_chunks(sqlite_store: Store) -> None:
    evidence = compare_offline(leaking(sqlite_store, 2).store, CHECK, OTHER)
    found = gate(decide(evidence), GateName.OFFLINE)
    assert found.result is GateResult.FAIL, "however few canaries there are"
    assert found.reason.startswith(
        "forbidden chunks for 2 of 12 canaries in the candidate, for 0 in the current check; 20 canaries that"
    )
    assert not isinstance(evidence, str)
    leaks = [f"forbidden: {key}" for key in evidence.violations[0].only_b]
    assert found.losses == {"forbidden": (-2.0, -2.0), **dict.fromkeys(leaks, (-1.0, -1.0))}
    assert len(leaks) == 2
    assert "trade" not in found.reason
    assert [one.winner for one in evidence.broken] == [Side.A]
    served = decide(evidence, judge(), exposure(0.02, 0.06))
    assert served.state is PromotionState.NEEDS_DECISION, "what users do says nothing of a leak"
    assert "but offline failed: forbidden chunks for 2 of 12 canaries" in served.reason
    assert served.reason.endswith("a person decides: keep what is current, or waive offline")
    unjudged = decide(evidence, "no judge", exposure(0.02, 0.06))
    assert unjudged.reason.partition("or waive offline")[2] == "; judge decided nothing: no judge"
    waiver = Waiver(
        by="ana", reason="r", at="2026-01-01T00:00:00Z", finding=GateResult.FAIL, found="", losses=found.losses
    )
    waived = {GateName.OFFLINE: waiver}
    assert gate(decide(evidence, waivers=waived), GateName.OFFLINE).result is GateResult.WAIVED
    leaked = evidence.violations[0]
    for other in (
        replace(leaked, only_b=("other", leaked.only_b[0])),
        replace(leaked, b=3, only_b=(*leaked.only_b, "x")),
    ):
        more = decide(replace(evidence, violations=(other,)), waivers=waived)
        assert gate(more, GateName.OFFLINE).result is GateResult.FAIL, "nobody has looked at that one"
    even = replace(leaked, a=2, only_a=("s10", "s11"))
    told = gate(decide(replace(evidence, canaries=600, violations=(even,))), GateName.OFFLINE)
    assert "returns forbidden chunks for 2 canaries for which the current check does not: " in told.reason
    few = decide(replace(evidence, violations=()), judge(), exposure(0.02, 0.06))
    assert few.state is PromotionState.PROMOTE
