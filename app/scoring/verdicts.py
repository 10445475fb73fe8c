"""The verdict of a run with its reasons, its remarks, and its aggregates.

The numbers come from `measures` and the relevance of hits; what a verdict means for people is decided in `alerts`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.rules import ANSWERED_RATIO, DEGRADED_SHARE, NO_FACTS, RunFacts, condition
from app.base.texts import counted, outcome_word
from app.base.values import Aggregates, Category, Outcome, Rule, RuleKind, Slice, Verdict
from app.retrievers.domain.probes import FailureSummary

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Members = Mapping[str, NDArray[np.intp]]

BLOCK: Final = 64
"""Number of groups summed at once, which bounds memory for a thousand tags."""
UNSCORED: Final = "relevance could not be measured for"
"""Beginning of a remark that re-scoring keeps: no judgment can change it."""
LACKING: Final = "was found in none of the hits"
"""End of the remark on a mapped field that no hit has; re-scoring keeps it too."""
CACHED: Final = "came from a cache before the retriever"
"""Part of the remark on answers of a cache; re-scoring keeps it too."""
TOO_FEW_SCORED: Final = "relevance was measured for only"
"""Beginning of the reason of an unknown run that re-scoring keeps."""
NOT_CARRIED_OUT: Final = "the run was not carried out"
"""End of the reason of a run that was obsolete when its turn came; no rule evaluates such a run."""
ONE_THREAD: Final = 250_000
"""Multiplications up to which OpenBLAS uses one thread (4 x 65,536 in its interface/gemm.c)."""


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
    """Return the aggregates of a run of Q canaries in the suite's frozen order.

    All columns are (Q,), `scores` is (Q, M) with NaN = undefined and its M means named by `measures`; `top_scores`
    has NaN where there is none; `found` = any expected chunk in the top k. `categories` and `tags` map names to the
    positions of their canaries. Rows whose outcome is not `ok` are ignored.

    Means are over measured canaries that expect something and have the value; None where there is none. Every slice
    has `degraded_share` among its measures. The slice of the category `negative` also has `answered_ratio`: the share
    of `answered` ones among its measured canaries that are `answered` or have a relevance; absent with a scorer that
    does not measure relevance (`measures_relevance`).
    """
    ok = Outcome.OK
    failures = [(position, outcome) for position, outcome in enumerate(outcomes) if outcome != ok]
    measured = np.ones(len(outcomes), dtype=np.bool_)
    measured[[position for position, _ in failures]] = False
    counted = measured & expects
    groups = [*categories.values(), *tags.values()]
    with_relevance = negative & (answered | ~np.isnan(top_scores))
    tallies = np.column_stack([measured, counted, measured & degraded, measured & with_relevance, measured & answered])
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
    """Return the verdict of a run by the enabled rules of its check, with reasons: sentences without full stops.

    Unknown when the run was ended early, when fewer than half of its probes measured, or none of those that expect
    something, or `too_few_scored` says why relevance is missing; else degraded when the condition of at least one rule
    is true on this run; else healthy. Unknown runs list a bad embedder too: it may be the cause. `facts`: the inputs of
    rules besides the aggregates.
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
        conditions = [condition(rule, aggregates, unknown=True) for rule in rules if rule.kind is RuleKind.EMBEDDING]
        return Verdict.UNKNOWN, [*why, *(one.reason for one in conditions if one.severity is not None)]
    conditions = [
        condition(rule, aggregates, unknown=False, facts=facts) for rule in rules if rule.kind is not RuleKind.NO_DATA
    ]
    reasons = [one.reason for one in conditions if one.severity is not None]
    return (Verdict.DEGRADED if reasons else Verdict.HEALTHY), reasons


def too_few_scored(*, scored: int, unscored: int, why_unscored: str | None) -> str | None:
    """Return why a run is unknown if fewer than half of its answers with hits got a relevance; else None.

    Unscored canaries are neither `low_relevance` nor `answered`, so the run would otherwise appear healthy.
    """
    if scored >= unscored:
        return None
    why = f": {why_unscored}" if why_unscored else ""
    return f"{TOO_FEW_SCORED} {scored} of {counted(scored + unscored, 'canary')} that got hits{why}"


def remarks(
    total: int, *, unscored: int = 0, why_unscored: str | None = None, undated: int = 0, lacking: Sequence[str] = ()
) -> list[str]:
    """Return remarks on values that a run of `total` canaries is missing: sentences without full stops.

    `unscored` canaries have no relevance, one of them because of `why_unscored`; `undated` ones have a maximum age and
    hits without a date; no hit of the run has any of the mapped fields `lacking`.
    """
    why = f": {why_unscored}" if why_unscored else ""
    of = f"of {counted(total, 'canary')}"
    counts_by_sentence = {
        f"{UNSCORED} {unscored} {of}{why}": unscored,
        f"staleness is not known for {undated} {of}: none of their top hits has a date": undated,
    }
    return [
        *(f"`{field}` {LACKING}" for field in lacking),
        *(sentence for sentence, count in counts_by_sentence.items() if count),
    ]


def cache_remarks(total: int, *, cached: int, sign: str | None) -> tuple[str, ...]:
    """Return the remark on a run of which `cached` of `total` answers were a cache's, as the header line `sign` says.

    Such a run measures the cache: it goes on finding what the index has lost until the cache forgets.
    """
    named = f" ({sign})" if sign else ""
    sentence = f"{cached} of {counted(total, 'answer')} {CACHED}{named}: what the index answers now was not measured"
    return (sentence,) if cached else ()


def is_unknown(*, total: int, measured: int, expecting: int, undefined: int) -> bool:
    """Whether too little was measured for a verdict: under half, or no canary that expects something.

    `undefined` are the measured canaries that expect nothing.
    """
    return total == 0 or 2 * measured < total or (expecting > 0 and measured == undefined)


def _tabulate(
    values: Floats, counted: Bools, tallies: Bools, groups: Sequence[NDArray[np.intp]]
) -> tuple[Floats, list[list[int]]]:
    """Return the (groups, W) means of values over the counted rows of each group, and (groups, T) counts of tallies.

    A mean is NaN where no counted row has the value; tallies count over all rows of a group. Overwrites `values`.
    """
    missing = np.isnan(values)
    np.copyto(values, 0.0, where=missing)
    lacking = np.count_nonzero(missing[counted], axis=0)
    # Most columns are defined everywhere or nowhere; rows are counted only for the others.
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
    """Return `weights @ values`, computed in pieces that BLAS keeps on this thread: its others would spin."""
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
    """Return the aggregates of one category or tag; `answers`: the category `negative` gets an answered ratio."""
    measured, _, degraded, negatives, answered = totals
    named = dict(zip(measures, row[2:], strict=True))
    named[DEGRADED_SHARE] = degraded / measured if measured else None
    if name == Category.NEGATIVE and answers:
        named[ANSWERED_RATIO] = answered / negatives if negatives else None
    return Slice(canaries=canaries, measured=measured, health_score=row[0], coverage=row[1], measures=named)


def _why_unknown(aggregates: Aggregates, failure: FailureSummary | None) -> str:
    if not aggregates.total:
        return "there were no probes"
    failures = [
        f"{count} {outcome_word(outcome)}" for outcome, count in aggregates.probes.items() if outcome != Outcome.OK
    ]
    listed = f": {failure or ', '.join(failures)}" if failures else ""
    if 2 * aggregates.measured >= aggregates.total:
        if aggregates.expecting == 1:
            return f"the one canary that expects something did not measure{listed}"
        return f"none of the {counted(aggregates.expecting, 'canary')} that expect something measured{listed}"
    return f"only {aggregates.measured} of {counted(aggregates.total, 'probe')} measured{listed}"
