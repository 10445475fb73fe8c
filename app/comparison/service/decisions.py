"""Decision of a comparison as a view, and that of two reports of the gate. It reads no database.

Pages, API, CLI and diffs share the view. Reports, a saved one and that of now, hold scores and no matches: both are
compared at the deepest cut-off, up to 10, that both were computed for.
"""

import json
import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import numpy as np

from app.base.values import COVERAGE, Canary, Category, Judgment, Outcome, Reason
from app.base.views import view_of
from app.catalog.domain import Use
from app.comparison.domain.estimates import Estimate
from app.comparison.domain.outcomes import (
    CautionKind,
    ComparisonOutcome,
    Decided,
    Decision,
    Depth,
    Members,
    Pairing,
    ViolationKind,
    Violations,
    compare,
    count_violations,
    missing_canaries,
    pair_canaries,
    primary_measures,
)
from app.comparison.domain.sentences import (
    BEFORE_AND_NOW,
    SideNames,
    caution_sentence,
    exclusion_sentence,
    headline,
    judgments_sentence,
    violations_sentence,
    violations_text,
)
from app.comparison.views import (
    ComparedCategory,
    ComparedMeasure,
    ComparedViolations,
    ComparisonCaution,
    ComparisonDecision,
)
from app.scoring.measures import CUTOFFS, mean_name, parse_measure

Report = Mapping[str, Any]

_DEEPEST: Final = 10
_DIGITS: Final = 16


def expectation_digest(canary: Canary) -> str:
    """Return a digest of what a canary asks and expects; "" where nothing is expected. The order does not matter."""
    if not canary.expects:
        return ""
    judgments = sorted(json.dumps([one.id, one.document, one.text, one.grade]) for one in canary.judgments)
    return sha256(json.dumps([canary.query, judgments]).encode()).hexdigest()[:_DIGITS]


def decide_reports(before: Report, now: Report, use: Use = Use.GENERAL) -> ComparisonDecision | None:
    """Decide what changed between two reports of one check; None where they cannot be compared at all.

    `use` is that of the check, whose measure comes first.

    They cannot where the measures are of other versions, where no cut-off is in both, where the suite changed and the
    older report does not say what its canaries expected, and where its results are not those of a report.
    """
    if not all(map(_is_result, before["results"])):
        return None
    if before["run"].get("measures_version") != now["run"].get("measures_version"):
        return None
    digests = _digests(before), _digests(now)
    if before["run"].get("suite_hash") == now["run"].get("suite_hash"):
        digests = digests[1] or digests[0], digests[1] or digests[0]
    elif None in digests:
        return None
    depth = _depth(before["results"], now["results"])
    if depth is None:
        return None
    names = _names(now["results"], depth)
    pairing = pair_canaries(_members(before, digests[0]), _members(now, digests[1]))
    old, new = (
        {
            mean: np.array([_score(report["results"][pair[side]], name) for pair in pairing.places], dtype=np.float64)
            for mean, name in names.items()
        }
        for side, report in enumerate((before, now))
    )
    outcome = compare(
        old,
        new,
        primaries=primary_measures(depth, use),
        categories=[now["results"][place]["category"] for _, place in pairing.places],
        self_judged=bool(before["run"].get("self_judged") or now["run"].get("self_judged")),
        violations=_violations(before, now, depth),
    )
    return decision_shape(outcome, pairing, depth, BEFORE_AND_NOW)


def _violations(before: Report, now: Report, depth: Depth) -> list[Violations]:
    """Count the canaries that got what they rule out; of unlike suites reports do not say what that is."""
    if before["run"].get("suite_hash") != now["run"].get("suite_hash"):
        return []
    old = {one["key"]: one for one in before["results"] if one["outcome"] == Outcome.OK}
    pairs = [(old[one["key"]], one) for one in now["results"] if one["outcome"] == Outcome.OK and one["key"] in old]
    forbidding = [pair for pair in pairs if pair[1].get("forbidden_chunks") or pair[1].get("expect_empty")]
    leaks = [
        [min(pair[side].get("forbidden_ranks") or [math.inf]) <= depth.m for pair in forbidding] for side in (0, 1)
    ]
    refusing = [
        pair
        for pair in pairs
        if pair[1]["category"] == Category.NEGATIVE
        and not pair[1].get("expect_empty")
        and None not in {pair[0].get("top_score"), pair[1].get("top_score")}
    ]
    answers = [[Reason.ANSWERED in pair[side].get("reasons", ()) for pair in refusing] for side in (0, 1)]
    found = (
        count_violations(ViolationKind.FORBIDDEN, [one["key"] for _, one in forbidding], *leaks),
        count_violations(ViolationKind.ANSWERED, [one["key"] for _, one in refusing], *answers),
    )
    return [one for one in found if one is not None]


def same_expectations(before: Report, now: Mapping[str, str]) -> set[str] | None:
    """Return the keys of canaries that a saved report expects the same of as `now`; None = the report does not say."""
    digests = _digests(before)
    return None if digests is None else {key for key, digest in digests.items() if now.get(key) == digest}


def _digests(report: Report) -> Mapping[str, str] | None:
    """Return the digests of a report's canaries by key; None = it was saved by a release that wrote none."""
    found = report.get("expectations")
    return found if isinstance(found, Mapping) and all(isinstance(one, str) for one in found.values()) else None


def _depth(before: Sequence[Report], now: Sequence[Report]) -> Depth | None:
    """Return the depth both reports were computed for: the deepest NDCG that some canary has in each."""
    common = [
        cut
        for cut in CUTOFFS
        if cut <= _DEEPEST
        and all(any(_score(one, f"NDCG@{cut}") is not None for one in side) for side in (before, now))
    ]
    ks = [one["k"] for side in (before, now) for one in side[:1]]
    if not common or len(ks) < 2:  # noqa: PLR2004 - one of each
        return None
    m = max(common)
    return Depth(k=min(*ks, m), m=m, equal=False)


def _members(report: Report, digests: Mapping[str, str] | None) -> Members:
    """Return the canaries of a report; one judgment, equal where they are, stands for all of a canary's."""
    canaries = []
    for one in report["results"]:
        digest = one["key"] if digests is None else digests.get(one["key"], "")
        canaries.append(
            Canary(
                key=one["key"],
                query=one["query"],
                category=Category(one["category"]),
                judgments=(Judgment(id=digest),) if digest else (),
            )
        )
    return Members(canaries=canaries, measured=[one["outcome"] == Outcome.OK for one in report["results"]])


def _is_result(result: Any) -> bool:
    """Whether a saved result has what a comparison reads."""
    known = isinstance(result, Mapping) and isinstance(result.get("measures"), Mapping)
    return (
        known
        and isinstance(result.get("query"), str)
        and isinstance(result.get("k"), int)
        and result.get("outcome") in list(Outcome)
        and result.get("category") in list(Category)
    )


def _names(results: Sequence[Report], depth: Depth) -> Mapping[str, str]:
    """Return the measures of the top hits down to a depth: names of single canaries by the names of their means."""
    measures = [parse_measure(name) for name in dict.fromkeys(name for one in results for name in one["measures"])]
    cut = {mean_name(measure): str(measure) for measure in measures if measure.k is not None and measure.k <= depth.m}
    return {**cut, COVERAGE: f"Hit@{depth.k}"}


def _score(result: Report, name: str) -> float | None:
    score = result.get("measures", {}).get(name)
    return float(score) if isinstance(score, int | float) and math.isfinite(score) else None


_KEYS: Final = 20
"""Number of canaries that are named for each reason why they are not compared."""


def decision_shape(outcome: ComparisonOutcome, pairing: Pairing, depth: Depth, names: SideNames) -> ComparisonDecision:
    """Return the view of a comparison's decision."""
    return {
        "verdict": outcome.verdict,
        "sentence": headline(
            outcome,
            names,
            missing_canaries({reason: len(keys) for reason, keys in pairing.excluded.items()}, outcome.pairs),
        ),
        "cautions": [
            *(
                view_of(ComparisonCaution, one, _NO_LOSS, sentence=judgments_sentence(one, names))
                for one in outcome.judgments
            ),
            *_recall_losses(outcome, depth, names),
            *(
                view_of(ComparisonCaution, _OF_VIOLATIONS, sentence=violations_sentence(one, names))
                for one in outcome.violations
                if one.only_b
            ),
        ],
        "canaries": outcome.pairs,
        "excluded": [
            {
                "reason": reason,
                "canaries": len(keys),
                "keys": list(keys[:_KEYS]),
                "sentence": exclusion_sentence(reason, keys, names),
            }
            for reason, keys in pairing.excluded.items()
        ],
        "k": depth.k,
        "depth": depth.m,
        "primary": _decided(outcome.decisions),
        "exploratory": [_measure(one) for one in outcome.exploratory],
        "violations": [
            view_of(
                ComparedViolations,
                one,
                rounding=True,
                only_a=list(one.only_a[:_KEYS]),
                only_b=list(one.only_b[:_KEYS]),
                sentence=violations_text(one, names),
            )
            for one in outcome.violations
        ],
        "by_category": [
            view_of(
                ComparedCategory,
                one,
                canaries=one.pairs,
                measures=_decided(one.decisions),
                cautions=_recall_losses(one, depth, names),
            )
            for one in outcome.categories
        ],
    }


_NO_LOSS: Final = {"kind": CautionKind.JUDGMENTS, **dict.fromkeys(("measure", "winner", "recall", "loss", "alert_id"))}
_OF_NEITHER: Final = {"favours": None, "retriever": None, "not_claimed": (), "alert_id": None}
_OF_VIOLATIONS: Final = {**_NO_LOSS, **_OF_NEITHER, "kind": CautionKind.VIOLATIONS}
_OF_LOSS: Final = {**_OF_NEITHER, "kind": CautionKind.RECALL_LOSS}


def plain_caution(kind: CautionKind, sentence: str, *, alert_id: str | None = None) -> ComparisonCaution:
    """Return a caution that is neither of a measure nor of judgments; of an alert, with its id."""
    of_kind = {**_NO_LOSS, **_OF_NEITHER, "kind": kind, "alert_id": alert_id}
    return view_of(ComparisonCaution, of_kind, sentence=sentence)


def _recall_losses(outcome: Decided, depth: Depth, names: SideNames) -> list[ComparisonCaution]:
    return [
        view_of(ComparisonCaution, one, _OF_LOSS, rounding=True, sentence=caution_sentence(one, names))
        for one in outcome.cautions(depth)
    ]


def _decided(decisions: Sequence[Decision]) -> list[ComparedMeasure]:
    return [_measure(one.estimate, one) for one in decisions]


def _measure(estimate: Estimate, decision: Decision | None = None) -> ComparedMeasure:
    decided = decision or dict.fromkeys(("corrected_p", "claim", "winner"))
    return view_of(ComparedMeasure, estimate, decided, rounding=True, canaries=estimate.pairs)
