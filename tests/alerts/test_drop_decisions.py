"""What drops claim: decided by the engine of all comparisons, corrected together, and kept for every release."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from app.alerts.domain.rules import RunFacts, condition
from app.base.values import Aggregates, Bound, Rule, RuleKind, replace
from app.comparison.domain.estimates import Difference, estimate
from app.comparison.domain.outcomes import Claim, compare
from app.scoring.verdicts import drop_as_json, drop_from_json, drops, p_values, watches_whole_ranking

RUN = Aggregates(total=10, measured=10, failed=0, undefined=0, degraded=0, expecting=10, health_score=1.0, coverage=1.0)
CANARIES = 12
EARLIER_FIELDS = {"pairs", "before", "now", "difference", "low", "high", "confidence"}
"""All that the release before this one reads; it refuses others."""


def drop_rule(measure: str, **more: Any) -> Rule:
    key = "-".join(["drop", measure, *([more["category"]] if "category" in more else [])])
    return Rule(key=key, kind=RuleKind.DROP, measure=measure, critical=Bound(by=0.05), **more)


def lost(*places: int, by: float = 1.0) -> list[float]:
    """Scores of canaries that had 1 each, of which these fell."""
    return [1.0 - by if place in places else 1.0 for place in range(CANARIES)]


def decide(now: Mapping[str, Sequence[float]], *rules: Rule, categories: Any = None) -> dict[str, Difference]:
    """Decide drops from a baseline in which every canary had 1."""
    columns = {name: np.asarray(scores, dtype=np.float64) for name, scores in now.items()}
    found = drops(
        rules, k=5, categories=categories or {}, before=lambda _: np.ones(CANARIES), now=lambda name: columns[name]
    )
    return {key: one for key, one in found.items() if isinstance(one, Difference)}


def severity_of(rule: Rule, found: Mapping[str, Difference]) -> str | None:
    severity = condition(rule, RUN, unknown=False, facts=RunFacts(drops=found)).severity
    return None if severity is None else str(severity)


def test_a_drop_that_is_claimed_alone_is_not_claimed_beside_another_test() -> None:
    """Six of twelve canaries fell: p is 2 of 64 ways, 0.031; corrected for two tests it is above 0.05."""
    recall, rank = drop_rule("R@5"), drop_rule("NDCG@10")
    now = {"R@5": lost(*range(6)), "NDCG@10": lost(2, 7, by=0.4)}
    alone, both = decide(now, recall), decide(now, recall, rank)
    assert (alone[recall.key].p, both[recall.key].p) == (0.03125, 0.0625)
    assert severity_of(recall, alone) == "critical"
    assert severity_of(recall, both) is None
    told = condition(recall, RUN, unknown=False, facts=RunFacts(drops=both)).reason
    assert told.endswith(
        "p 0.062 corrected over the drop rules of the check), over 12 canaries: "
        "the interval does not include zero, but p is too large, so it may be chance"
    )
    assert "p 0.031 corrected" in condition(recall, RUN, unknown=False, facts=RunFacts(drops=alone)).reason


def test_a_drop_has_the_interval_that_a_comparison_of_the_same_scores_has() -> None:
    now = {"R@5": lost(*range(6), by=0.7)}
    rule = drop_rule("R@5")
    found, compared = decide(now, rule)[rule.key], estimate("R@5", lost(), now["R@5"])
    assert (found.low, found.high, found.p) == (compared.low, compared.high, compared.p)


def test_an_interval_without_zero_claims_nothing_where_the_p_value_does_not() -> None:
    rule = drop_rule("R@5")
    found = decide({"R@5": lost(*range(5))}, rule)
    assert found[rule.key].high < 0
    assert found[rule.key].p == 0.0625
    assert severity_of(rule, found) is None


def test_the_confidence_of_a_rule_is_the_level_of_its_p_value_too() -> None:
    rule = drop_rule("R@5", confidence=0.9)
    found = decide({"R@5": lost(*range(5))}, rule)
    assert found[rule.key].p == 0.0625
    assert severity_of(rule, found) == "critical"


def test_measures_that_fall_in_proportion_are_one_test() -> None:
    now = {"R@5": lost(*range(6)), "P@5": lost(*range(6), by=0.2)}
    found = decide(now, drop_rule("R@5"), drop_rule("P@5"))
    assert [one.p for one in found.values()] == [0.03125, 0.03125]
    assert all(one.claimed for one in found.values())


def test_rules_of_categories_are_a_family_of_their_own() -> None:
    whole = drop_rule("R@5")
    parts = [drop_rule("R@5", category=name) for name in ("procedural", "simple_factual")]
    categories = {"procedural": np.arange(11), "simple_factual": np.arange(1, 12)}
    found = decide({"R@5": lost(*range(6))}, whole, *parts, categories=categories)
    # Six of eleven fell in the one and five of eleven in the other: 2 of 64 and 2 of 32 ways, times 2 and times 1.
    assert [found[rule.key].p for rule in (whole, *parts)] == [0.03125, 0.0625, 0.0625]
    assert [severity_of(rule, found) for rule in (whole, *parts)] == ["critical", None, None]


def test_drops_decide_as_a_comparison_of_the_same_scores_does() -> None:
    names = ["R@5", "NDCG@10", "RR"]
    now = {"R@5": lost(*range(6)), "NDCG@10": lost(*range(9), by=0.3), "RR": lost(1, 8, by=0.5)}
    rules = [drop_rule("R@5"), drop_rule("NDCG@10"), drop_rule("MRR")]
    found = decide(now, *rules)
    columns = {name: np.asarray(now[name]) for name in names}
    outcome = compare({name: np.ones(CANARIES) for name in names}, columns, primaries=names, categories=())
    assert [one.claimed for one in found.values()] == [one.claim is Claim.CLAIMED for one in outcome.decisions]
    assert {one.claimed for one in found.values()} == {True, False}
    assert [one.p for one in found.values()] == [one.corrected_p for one in outcome.decisions]


def test_what_the_baseline_loses_of_a_score_is_no_difference() -> None:
    """Baselines are kept in four bytes: a third comes back as 0.333333343, and that would be a rise on every canary."""
    rule = drop_rule("R@5")
    third, fifth = 1 / 3, 1 / 5
    kept = np.asarray([third] * 8 + [fifth] * 8, dtype=np.float32).astype(np.float64)
    now = np.asarray([third] * 8 + [fifth] * 8)
    now[:3] = 0.0
    found = drops([rule], k=5, categories={}, before=lambda _: kept, now=lambda _: now)[rule.key]
    assert isinstance(found, Difference)
    assert found.p == 0.25, "three of sixteen fell: 2 of 8 ways"


# What is kept


def test_an_earlier_release_reads_what_is_stored_and_the_p_values_stand_beside_it() -> None:
    rule = drop_rule("R@5")
    found = decide({"R@5": lost(*range(6))}, rule)
    stored = drop_as_json(found[rule.key])
    assert set(stored) == EARLIER_FIELDS
    assert p_values({**found, "other": "there is no baseline"}) == {rule.key: 0.03125}
    assert drop_from_json(stored, 0.03125) == found[rule.key]


@pytest.mark.parametrize(("p", "severity"), [(None, "critical"), (0.04, "critical"), (0.06, None)])
def test_a_drop_of_an_earlier_release_is_judged_by_its_interval_alone(p: float | None, severity: str | None) -> None:
    rule = drop_rule("R@5")
    stored = drop_as_json(decide({"R@5": lost(*range(6))}, rule)[rule.key])
    found = drop_from_json(stored, p)
    assert isinstance(found, Difference)
    assert severity_of(rule, {rule.key: found}) == severity


@pytest.mark.parametrize(
    ("measure", "whole"), [("MRR", True), ("MAP", True), ("MRR@5", False), ("R@5", False), ("coverage", False)]
)
def test_a_rule_of_whole_rankings_is_known(measure: str, *, whole: bool) -> None:
    assert watches_whole_ranking(drop_rule(measure)) is whole
    assert not watches_whole_ranking(replace(drop_rule(measure), kind=RuleKind.THRESHOLD))
