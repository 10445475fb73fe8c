"""Verdicts: why a canary is degraded, what a run amounts to, and whether it was healthy.

The numbers come from measures and relevance; what follows for people is decided in alerting.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.alerts.rule_facts import NO_FACTS, RunFacts
from app.domain.alerts.rules import ANSWERED_RATIO, DEGRADED_SHARE, condition
from app.domain.counts import counted
from app.domain.model import ROUNDING, Aggregates, Canary, Category, Outcome, Reason, Rule, RuleKind, Slice, Verdict
from app.domain.probing.probe_failures import FailureSummary, outcome_word

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Members = Mapping[str, NDArray[np.intp]]

BLOCK: Final = 64
"""How many groups are summed at once, so that a thousand tags cost time but no memory."""
UNSCORED: Final = "relevance could not be measured for"
"""How the remark begins that no judgment can change: whoever judges a run anew takes it over."""
LACKING: Final = "was found in none of the hits"
"""How the remark ends on a mapped field that is nowhere; no judgment can change that either."""
TOO_FEW_SCORED: Final = "relevance was measured for only"
"""The same of the reason for which a run is unknown."""
NOT_CARRIED_OUT: Final = "the run was not carried out"
"""How the reason ends of a run that nobody wanted any more when it was its turn; no rule looks at such a run."""
ONE_THREAD: Final = 250_000
"""Multiplications up to which OpenBLAS does not call in other threads (4 x 65,536 in its interface/gemm.c)."""


def judge_canary(
    canary: Canary,
    *,
    top_score: float | None,
    found_in_k: bool,
    forbidden_returned: bool,
    scores: Mapping[str, float | None],
    first_is_allowed: bool,
    empty: bool,
    scorer_measures_relevance: bool,
) -> tuple[Reason, ...]:
    """Say why the ranking of an answered canary degrades it, in the order of `Reason`; () = it does not.

    `forbidden_returned`: one of its forbidden chunks is in the ranking. To a canary that must get nothing every hit
    is forbidden, and how relevant it is does not matter. `scores` holds the canary's measures by name; one that is
    undefined or absent breaks no floor. A negative canary is `answered` unless its top score stays below its maximum,
    the answer is empty, or the one exact match it allows is first. A scorer that does not measure relevance can show
    neither low relevance nor confidence: under `judged` no canary is `low_relevance` and none `answered`, since a
    retriever always returns something. `stale` and `slow` are about the moment, see `judge_timing`; `regressed` takes
    more than one run and is added by detection.
    """
    relevance = top_score if scorer_measures_relevance and not canary.expect_empty else None
    too_low = not canary.negative and relevance is not None and relevance < canary.min_relevance_score
    confident = canary.negative and relevance is not None and relevance >= canary.max_relevance_score
    wrong = {
        Reason.LOW_RELEVANCE: too_low,
        Reason.MISSING: canary.expects and not found_in_k,
        Reason.BELOW_FLOOR: any(_below(scores.get(name), floor) for name, floor in canary.floors.items()),
        Reason.FORBIDDEN: forbidden_returned or (canary.expect_empty and not empty),
        Reason.ANSWERED: confident and not empty and not first_is_allowed,
    }
    return tuple(reason for reason, holds in wrong.items() if holds)


def judge_timing(
    canary: Canary, *, age_seconds: float | None, latency_seconds: float | None, empty: bool = False
) -> tuple[Reason, ...]:
    """Say what was wrong with the moment of an answer, whatever its ranking: `stale`, `slow`; () = nothing.

    `age_seconds` is the age of the newest of the top k hits. None = no hit says how old it is: then it is not known
    whether the canary is stale, and it is not called so. An `empty` answer has nothing that is new enough, so it is
    stale, unless no good answer exists to the query. Latencies are compared as exactly as runs keep them, to half
    a thousandth: so what is called slow is always shown to be.
    """
    nothing_new = empty and canary.max_age_seconds is not None and not canary.negative
    wrong = {
        Reason.STALE: nothing_new or _above(age_seconds, canary.max_age_seconds),
        Reason.SLOW: _above(_kept(latency_seconds), _kept(canary.max_latency_seconds)),
    }
    return tuple(reason for reason, holds in wrong.items() if holds)


def aggregate(  # noqa: PLR0913 - the columns of a run
    *,
    outcomes: Sequence[Outcome],
    expects: Bools,
    negative: Bools,
    degraded: Bools,
    answered: Bools,
    top_scores: Floats,
    found: Bools,
    scores: Floats,
    measures: Sequence[str],
    categories: Members,
    tags: Members,
    measures_relevance: bool = True,
) -> Aggregates:
    """Amount a run of Q canaries, in the suite's frozen order, to its aggregates.

    All columns are (Q,), `scores` is (Q, M) with NaN = undefined and its M means named by `measures`; `top_scores`
    has NaN where none could be told; `found` = any expected chunk in the top k. `categories` and `tags` map names to
    the positions of their canaries. Rows whose outcome is not `ok` are ignored, whatever they hold.

    Means are over measured canaries that expect something and have the value; None where there is none. Every slice
    carries `degraded_share` among its measures. The slice of the category `negative` also carries `answered_ratio`:
    of its measured canaries that were `answered` or whose relevance is known, those that were; absent with a scorer
    that cannot tell (`measures_relevance`). One whose relevance could not be measured is not one that was not answered.
    """
    failures = [(position, outcome) for position, outcome in enumerate(outcomes) if outcome != Outcome.OK]
    measured = np.ones(len(outcomes), dtype=np.bool_)
    measured[[position for position, _ in failures]] = False
    counted = measured & expects
    groups = [*categories.values(), *tags.values()]
    told = negative & (answered | ~np.isnan(top_scores))
    tallies = np.column_stack([measured, counted, measured & degraded, measured & told, measured & answered])
    values = np.column_stack([top_scores, found, scores])
    means, totals = _tabulate(values, counted, tallies, [np.arange(len(outcomes)), *groups])
    names = [*categories, *tags]
    rows = [[None if number != number else number for number in row] for row in means.tolist()]  # noqa: PLR0124 - NaN
    slices = [
        _slice(name, len(group), measures, row, total, answers=measures_relevance and place < len(categories))
        for place, (name, group, row, total) in enumerate(zip(names, groups, rows[1:], totals[1:], strict=True))
    ]
    n_measured, n_counted, n_degraded, _, _ = totals[0]
    probes: dict[Outcome, int] = {Outcome.OK: n_measured, **Counter(outcome for _, outcome in failures)}
    return Aggregates(
        total=len(outcomes),
        measured=n_measured,
        failed=len(outcomes) - n_measured,
        undefined=n_measured - n_counted,
        degraded=n_degraded,
        expecting=int(expects.sum()),
        health_score=rows[0][0],
        coverage=rows[0][1],
        measures=dict(zip(measures, rows[0][2:], strict=True)),
        categories=dict(zip(categories, slices[: len(categories)], strict=True)),
        tags=dict(zip(tags, slices[len(categories) :], strict=True)),
        probes={outcome.value: count for outcome in Outcome if (count := probes.get(outcome, 0))},
    )


def run_verdict(
    aggregates: Aggregates,
    rules: Sequence[Rule],
    *,
    ended_early: str | None = None,
    too_few_scored: str | None = None,
    facts: RunFacts = NO_FACTS,
) -> tuple[Verdict, list[str]]:
    """Judge a run by the enabled rules of its check; the reasons are sentences without full stops, for people.

    Unknown when it was ended early for the reason given, however much had been measured by then, when fewer than half
    of its probes measured, or none of those that expect something, or relevance could be measured for
    `too_few_scored`; else degraded when the condition of at least one rule is true on this run; else healthy. What is
    wrong with the embedder is said of unknown runs too: it may be why. `facts`: what the rules look at besides.
    """
    unknown = is_unknown(
        total=aggregates.total,
        measured=aggregates.measured,
        expecting=aggregates.expecting,
        undefined=aggregates.undefined,
    )
    unmeasured = ended_early or (_why_unknown(aggregates, facts.failure) if unknown else None)
    failed = str(facts.failure) if ended_early is not None and facts.failure is not None else None
    why = [reason for reason in (unmeasured, failed, too_few_scored) if reason is not None]
    if why:
        asked = [rule for rule in rules if rule.kind is RuleKind.EMBEDDING]
        found = [condition(rule, aggregates, unknown=True) for rule in asked]
        return Verdict.UNKNOWN, [*why, *(one.reason for one in found if one.severity is not None)]
    asked = [rule for rule in rules if rule.kind is not RuleKind.NO_DATA]
    judged = [condition(rule, aggregates, unknown=False, facts=facts) for rule in asked]
    reasons = [one.reason for one in judged if one.severity is not None]
    return (Verdict.DEGRADED if reasons else Verdict.HEALTHY), reasons


def too_few_scored(*, scored: int, unscored: int, why_unscored: str | None) -> str | None:
    """Say that a scorer outside the retriever gave a relevance to fewer than half of the answers with hits; None = not.

    Such a run is unknown: canaries nobody scored are neither irrelevant nor answered, so that it would look healthy.
    """
    if scored >= unscored:
        return None
    why = f": {why_unscored}" if why_unscored else ""
    return f"{TOO_FEW_SCORED} {scored} of {counted(scored + unscored, 'canary')} that got hits{why}"


def remarks(
    total: int, *, unscored: int = 0, why_unscored: str | None = None, undated: int = 0, lacking: Sequence[str] = ()
) -> list[str]:
    """Say what a run of `total` canaries could not tell though its probes measured, beside its reasons.

    They are sentences without full stops. `unscored` canaries have no relevance, for one of them because of
    `why_unscored`; `undated` ones have a maximum age and hits that do not say how old they are; no hit of the run had
    any of the mapped fields `lacking`.
    """
    why = f": {why_unscored}" if why_unscored else ""
    of = f"of {counted(total, 'canary')}"
    said = {
        f"{UNSCORED} {unscored} {of}{why}": unscored,
        f"whether they are stale could not be told for {undated} {of}: none of their top hits has a date": undated,
    }
    return [
        *(f"`{field}` {LACKING}" for field in lacking),
        *(sentence for sentence, count in said.items() if count),
    ]


def is_unknown(*, total: int, measured: int, expecting: int, undefined: int) -> bool:
    """Whether too little was measured to say anything: under half, or of those that expect something nothing.

    `undefined` are the measured canaries that expect nothing.
    """
    return total == 0 or 2 * measured < total or (expecting > 0 and measured == undefined)


def _kept(latency: float | None) -> float | None:
    return None if latency is None else float(np.float16(latency))


def _above(value: float | None, most: float | None) -> bool:
    return value is not None and most is not None and value > most + ROUNDING


def _below(score: float | None, floor: float) -> bool:
    return score is not None and score < floor - ROUNDING


def _tabulate(
    values: Floats, counted: Bools, tallies: Bools, groups: Sequence[NDArray[np.intp]]
) -> tuple[Floats, list[list[int]]]:
    """Average (Q, W) values over the counted rows of each group, and count the tallies over all its rows.

    Returns (groups, W) means, NaN where no counted row has the value, and (groups, T) counts. Overwrites `values`.
    """
    missing = np.isnan(values)
    np.copyto(values, 0.0, where=missing)
    lacking = np.count_nonzero(missing[counted], axis=0)
    # Most columns are defined everywhere or nowhere; only of the others it is counted where they are.
    partial = np.flatnonzero((lacking > 0) & (lacking < np.count_nonzero(counted)))
    present, marks = (~missing[:, partial]).astype(np.float64), tallies.astype(np.float64)
    blocks: list[tuple[Floats, Floats, Floats, Floats]] = []
    for start in range(0, len(groups), BLOCK):
        block = groups[start : start + BLOCK]
        belongs = np.zeros((len(block), len(values)))
        for place, positions in enumerate(block):
            belongs[place, positions] = 1.0
        weighing = belongs * counted
        columns = (_product(weighing, values), _product(weighing, present), _product(belongs, marks))
        blocks.append((*columns, weighing.sum(axis=1, keepdims=True)))
    sums, defined, counts, rows = (np.vstack(parts) for parts in zip(*blocks, strict=True))
    sizes = np.where(lacking == 0, rows, 0.0)
    sizes[:, partial] = defined
    means = np.divide(sums, sizes, out=np.full_like(sizes, np.nan), where=sizes > 0)
    totals: list[list[int]] = counts.astype(np.int64).tolist()
    return means, totals


def _product(weights: Floats, values: Floats) -> Floats:
    """Compute `weights @ values` in pieces that BLAS keeps on this thread: its others would spin on a busy machine."""
    product = np.zeros((len(weights), values.shape[1]))
    step = max(1, ONE_THREAD // max(1, product.size))
    for start in range(0, len(values), step):
        product += weights[:, start : start + step] @ values[start : start + step]
    return product


def _slice(
    name: str,
    canaries: int,
    measures: Sequence[str],
    row: Sequence[float | None],
    totals: Sequence[int],
    *,
    answers: bool,
) -> Slice:
    """Name the numbers of one category or tag; `answers`: it may be the one that has an answered ratio."""
    measured, _, degraded, negatives, answered = totals
    named = dict(zip(measures, row[2:], strict=True))
    named[DEGRADED_SHARE] = degraded / measured if measured else None
    if name == Category.NEGATIVE and answers:
        named[ANSWERED_RATIO] = answered / negatives if negatives else None
    return Slice(canaries=canaries, measured=measured, health_score=row[0], coverage=row[1], measures=named)


def _why_unknown(aggregates: Aggregates, failure: FailureSummary | None) -> str:
    if not aggregates.total:
        return "there were no probes, so nothing is known"
    failures = [
        f"{count} {outcome_word(outcome)}" for outcome, count in aggregates.probes.items() if outcome != Outcome.OK
    ]
    listed = f": {failure or ', '.join(failures)}" if failures else ""
    if 2 * aggregates.measured >= aggregates.total:
        if aggregates.expecting == 1:
            return f"the one canary that expects something did not measure{listed}"
        return f"none of the {counted(aggregates.expecting, 'canary')} that expect something measured{listed}"
    return f"only {aggregates.measured} of {counted(aggregates.total, 'probe')} measured{listed}"
