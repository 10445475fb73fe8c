"""The verdict of a run with its reasons, its remarks, its aggregates, and its drops since the baseline.

The numbers come from `measures` and the relevance of hits, the baseline from detection; what a verdict means for people
is decided in `alerts`. Drops, the paired differences that `drop` rules compare with their bounds, stand at the end.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.conditions import WarmUp
from app.alerts.domain.rules import (
    BETWEEN_RUNS,
    GATE_COVERAGE,
    NO_FACTS,
    Alarm,
    RunFacts,
    condition,
)
from app.base.texts import bound_text, change_text, counted, outcome_word, ratio_text
from app.base.values import (
    ANSWERED_RATIO,
    DEGRADED_SHARE,
    ROUNDING,
    Aggregates,
    Category,
    Outcome,
    Rule,
    RuleKind,
    Severity,
    Slice,
    Verdict,
    asdict,
)
from app.comparison.domain.estimates import FEWEST_PAIRS, Difference, Estimate, StoredDrop, estimate
from app.comparison.domain.outcomes import Decision, decide_family
from app.retrievers.domain.probes import FailureSummary
from app.scoring.measures import CUTOFFS, parse_measure

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
    is true on this run; else healthy. Unknown runs list a bad embedder too, which may be the cause, and what leaked.
    `facts`: the inputs of rules besides the aggregates.
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
        measured = [rule for rule in rules if rule.kind in {RuleKind.EMBEDDING, RuleKind.LEAK, RuleKind.INDEX}]
        conditions = [condition(rule, aggregates, unknown=True, facts=facts) for rule in measured]
        return Verdict.UNKNOWN, [*why, *(one.reason for one in conditions if one.severity is not None)]
    conditions = [
        condition(rule, aggregates, unknown=False, facts=facts) for rule in rules if rule.kind not in BETWEEN_RUNS
    ]
    reasons = [one.reason for one in conditions if one.severity is not None]
    return (Verdict.DEGRADED if reasons else Verdict.HEALTHY), reasons


def differs_from_gate(rules: Iterable[Rule], coverage: float | None, warm_up: WarmUp | None) -> str | None:
    """Sentence on a healthy run that `coalmine check` calls degraded, without its full stop; None = they agree.

    A check without rules has a bound of coverage there and none in a service, which knows no baseline yet.
    """
    guarded = any(rule.kind is RuleKind.GUARD for rule in rules)
    if not guarded or warm_up is None or warm_up.over or coverage is None or coverage >= GATE_COVERAGE - ROUNDING:
        return None
    owner = "the first run's" if warm_up.first is None else warm_up.first.owner
    return (
        f"no baseline yet: coverage {ratio_text(coverage)} is compared with {owner} only; "
        f"`coalmine check`, which has no history, requires {GATE_COVERAGE:g}"
    )


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


def lacking_fields(reasons: Iterable[str]) -> list[str]:
    """Return the mapped fields that no hit of a run has, from the remarks on them."""
    return [
        reason.split("`")[1].partition(":")[0]
        for reason in reasons
        if reason.startswith("`") and reason.endswith(LACKING)
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


Column = Callable[[str], Floats]
"""Returns a measure of every canary of the panel by the measure's name; NaN = undefined or not measured."""

_DIGITS: Final = 6
_DEEPEST: Final = 10
_NAMED: Final = 10
"""Canaries that a reason names."""
_EQUAL: Final = 1.5e-6
"""Scores that rounding took apart are at most 0.000001 apart."""
NO_BASELINE: Final = "there is no baseline to compare with yet"


def drops(
    rules: Sequence[Rule],
    *,
    k: int,
    categories: Mapping[str, NDArray[np.intp]],
    before: Column | None,
    now: Column,
    no_baseline_reason: str = NO_BASELINE,
) -> dict[str, Difference | str]:
    """Return the difference to the baseline for each `drop` rule, by rule key, or a sentence why there is none.

    `categories` maps names to positions of the panel. `before` is the mean of each canary over the runs of the
    baseline; None = there is none, because of `no_baseline_reason`. A canary counts if both sides have the measure.
    The engine of all comparisons decides them: its interval, and its p value corrected over these rules, which are the
    questions asked here, where a comparison of two runs asks for its primary measures.
    """
    drop_rules = [rule for rule in rules if rule.kind is RuleKind.DROP]
    if before is None:
        return {rule.key: no_baseline_reason for rule in drop_rules}
    estimates = {rule: _estimate(rule, k, categories, before, now) for rule in drop_rules}
    decided = _decide({rule: one for rule, one in estimates.items() if isinstance(one, Estimate)})
    return {rule.key: one if isinstance(one, str) else decided[rule.key] for rule, one in estimates.items()}


def watched_column(rule: Rule, k: int) -> str:
    """Return the vector name of the measure a `drop` rule watches: coverage is the mean of `Hit` at the check's k."""
    if rule.measure is None or rule.measure == "coverage":
        return f"Hit@{k}"
    return str(parse_measure(rule.measure))


def watches_whole_ranking(rule: Rule) -> bool:
    """Whether a `drop` rule watches a measure that depends on how many hits were asked for, as uncut MRR does."""
    if rule.kind is not RuleKind.DROP or rule.measure in {None, "coverage"}:
        return False
    return parse_measure(str(rule.measure)).k is None


def regression_rules(fetch_k: int) -> tuple[Rule, ...]:
    """Rules whose drops decide a regression since a saved report: coverage, then the order of the top hits."""
    deepest = max(cut for cut in CUTOFFS if cut <= min(fetch_k, _DEEPEST))
    return tuple(
        Rule(key=f"regression-{measure}", kind=RuleKind.DROP, measure=measure)
        for measure in ("coverage", f"NDCG@{deepest}")
    )


def alarm_since_report(
    differences: Sequence[Difference | str], measures: Sequence[str], *, lost: Sequence[str], confirmed: Sequence[str]
) -> Alarm:
    """Alarm of a run beside a saved report, which is all the history that a single run can have.

    `differences`: those of `measures`, coverage first, then the order. `lost`: keys of the canaries that found
    something in the report and nothing now; `confirmed`: those of them that found nothing when asked again either, so
    that their loss is no chance. Critical where coverage fell by more than chance or a loss is confirmed; a warning
    where the order became worse by more than chance.
    """
    coverage, order = (_fall(one, name) for one, name in zip(differences, measures, strict=True))
    if coverage is not None:
        return Alarm(open=True, good=False, reason=f"{_named(lost, 'lost since the baseline')}; {coverage}")
    if confirmed:
        again = "lost since the baseline, and when asked again"
        return Alarm(open=True, good=False, reason=_named(confirmed, again))
    if order is not None:
        return Alarm(open=True, good=False, severity=Severity.WARNING, reason=f"worse than the baseline: {order}")
    return Alarm(open=False, good=True, reason="no canary is lost since the baseline by more than chance")


def _fall(difference: Difference | str, measure: str) -> str | None:
    """Clause on a mean that fell by more than chance; None = it did not, or too few canaries tell."""
    if isinstance(difference, str) or not difference.claimed or difference.difference >= 0:
        return None
    return (
        f"{measure} {ratio_text(difference.now, difference.before)} against "
        f"{ratio_text(difference.before, difference.now)}, {bound_text(100 * difference.confidence)} % between "
        f"{change_text(difference.low)} and {change_text(difference.high)}"
    )


def _named(keys: Sequence[str], what: str) -> str:
    shown = ", ".join(keys[:_NAMED]) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")
    return f"{counted(len(keys), 'canary')} {what}: {shown}"


def drop_as_json(drop: Difference | str) -> StoredDrop:
    """Return a drop as stored JSON, without its p value: an earlier release, which may still run, reads no other field.

    The p values are kept beside the drops, see `p_values`.
    """
    if isinstance(drop, str):
        return {"unknown": drop}
    return cast("StoredDrop", {name: value for name, value in asdict(drop).items() if name != "p"})


def p_values(found: Mapping[str, Difference | str]) -> dict[str, float]:
    """Return the corrected p values of drops by rule key, those that have one."""
    return {key: drop.p for key, drop in found.items() if not isinstance(drop, str) and drop.p is not None}


def drop_from_json(stored: StoredDrop, p: float | None = None) -> Difference | str:
    """Return a drop from its stored JSON and its corrected p value; None = an earlier release stored none."""
    if "unknown" in stored:
        return stored["unknown"]
    return Difference(**cast("dict[str, Any]", stored), p=p)


def _estimate(
    rule: Rule, k: int, categories: Mapping[str, NDArray[np.intp]], before: Column, now: Column
) -> Estimate | str:
    name = watched_column(rule, k)
    old, new = before(name), now(name)
    if rule.category is not None:
        members = categories.get(rule.category)
        if members is None:
            return f"no canary is of the category {rule.category}"
        old, new = old[members], new[members]
    # Baselines are kept in four bytes and reports to six digits: what is lost of a score there is no difference.
    old, new = np.round(old, _DIGITS), np.round(new, _DIGITS)
    new = np.where(np.abs(new - old) < _EQUAL, old, new)
    found = estimate(name, old, new, confidence=rule.confidence)
    if found.p is not None:
        return found
    return (
        f"only {counted(found.pairs, 'canary')} can be compared with the baseline; "
        f"it takes {FEWEST_PAIRS} to tell a drop from chance"
    )


def _decide(estimates: Mapping[Rule, Estimate]) -> dict[str, Difference]:
    """Decide the drops of rules together: those of all canaries as one family, those of categories as another."""
    found: dict[str, Difference] = {}
    for of_all in (True, False):
        groups: dict[str | None, list[Rule]] = {}
        for rule in estimates:
            if (rule.category is None) is of_all:
                groups.setdefault(rule.category, []).append(rule)
        decided = decide_family([[estimates[rule] for rule in group] for group in groups.values()])
        for group, decisions in zip(groups.values(), decided, strict=True):
            found |= {rule.key: _difference(one) for rule, one in zip(group, decisions, strict=True)}
    return found


def _difference(decision: Decision) -> Difference:
    """Return a decided estimate as a difference between baseline and run."""
    one = decision.estimate
    if one.a is None or one.b is None or one.difference is None or one.lower is None or one.upper is None:
        raise ValueError(f"{one.measure} has too few pairs to be decided")
    return Difference(
        pairs=one.pairs,
        before=one.a,
        now=one.b,
        difference=one.difference,
        low=one.lower,
        high=one.upper,
        confidence=one.confidence,
        p=decision.corrected_p,
    )
