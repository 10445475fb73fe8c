"""Comparison of two runs as before and now: every canary, every measure, and what is decided. It only reads."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from app.base.db.engine import Connection, Store
from app.base.values import Canary, Outcome, Ranking, Verdict
from app.comparison.documents.comparison_sentences import A_AND_B, BEFORE_AND_NOW
from app.comparison.domain.estimates import CONFIDENCE, Estimate
from app.comparison.domain.pairs import Exclusion
from app.comparison.domain.run_diff import Change, Pair, Side, pair_up
from app.comparison.domain.views import (
    CanaryDifference,
    CategoryDifference,
    MeasureDifference,
    PairedSides,
    RunDiff,
    SideResult,
    Sides,
)
from app.comparison.service.compared_runs import ComparedRun, Comparison, Floats, compare_runs, read_run, stored_columns
from app.comparison.service.decision_views import decision_shape
from app.comparison.service.run_differences import differences
from app.records.documents import number
from app.records.service.aggregates import stored_aggregates
from app.records.store import results
from app.records.store.canary_states import StateRow
from app.records.store.results import RunRow
from app.scoring.matching import Match
from app.scoring.rankings import rbo
from app.scoring.tally import unpack_reasons

_BY_DEPTH: Final = ("MRR", "MAP", "duplicate_ratio")
"""Measures of whole rankings, which depend on how many hits were asked for."""
_BY_K: Final = ("coverage", "degraded_share")
"""Numbers that depend on the k of a check."""


def diff(
    store: Store,
    before_id: str,
    now_id: str,
    *,
    changes: Collection[Change] = (),
    after: int = 0,
    limit: int = 50,
    version: str | None = None,
) -> tuple[RunDiff, int | None]:
    """Compare two runs, usually the older one first; returns the diff and the place of the next page, if any.

    Canaries come the worst first, only those with one of these `changes` where any is named. `version`: both by another
    measures version. Raises NotFoundError for a run that is not there, ConflictError for one that has not ended or was
    never carried out, InvalidInputError for a version that is not there.
    """
    with store.read() as connection:
        before, now = (read_run(connection, run_id, version) for run_id in (before_id, now_id))
        comparison = compare_runs(connection, before, now)
        scores = _ordering(comparison)
        rejudged = comparison.pairing.excluded.get(Exclusion.OTHER_JUDGMENTS, ())
        pairs = pair_up(_side(before, scores[0]), _side(now, scores[1]), rejudged=rejudged)
        matching = [pair for pair in pairs if not changes or pair.change in changes]
        shown = matching[after : after + limit]
        items = _items(connection, before, now, shown)
    found = differences(before, now)
    # Of two checks none is the earlier state of the other.
    names = BEFORE_AND_NOW if before.row.check_id == now.row.check_id else A_AND_B
    shape: RunDiff = {
        "before": before.outline,
        "now": now.outline,
        "comparable": not any(one.strict for one in found),
        "differences": [one.sentence for one in found],
        "changes": _counts(pairs),
        "decision": decision_shape(comparison.outcome, comparison.pairing, comparison.depth, names),
        "measures": _measures(comparison),
        "categories": _categories(before.row, now.row),
        "ordered_by": comparison.ordering,
        "items": items,
    }
    return shape, after + limit if len(matching) > after + limit else None


def _side(run: ComparedRun, ordering: Floats) -> Side:
    return Side(
        keys=[canary.key for canary in run.canaries],
        queries=[canary.query for canary in run.canaries],
        verdicts=[_verdict(state) for state in run.states],
        rankings=[None if state is None else state.ranking_id for state in run.states],
        scores=ordering,
    )


def _ordering(comparison: Comparison) -> tuple[Floats, Floats]:
    """Return the scores of both runs, by position, that canaries are ordered by; NaN = not compared."""
    sides = []
    for side, run in enumerate((comparison.a, comparison.b)):
        column = np.full(len(run.canaries), np.nan)
        places = [pair[side] for pair in comparison.pairing.places]
        column[places] = comparison.scores[side][comparison.ordering]
        sides.append(column)
    return sides[0], sides[1]


def _verdict(state: StateRow | None) -> Verdict:
    if state is None:
        return Verdict.UNKNOWN
    return Verdict.DEGRADED if state.reasons else Verdict.HEALTHY


def _counts(pairs: Sequence[Pair]) -> dict[Change, int]:
    counted = Counter(pair.change for pair in pairs)
    return {change: counted[change] for change in Change}


def _measures(comparison: Comparison) -> dict[str, MeasureDifference]:
    """Differences of measures: of the runs, and over the compared canaries with interval and p value.

    A measure that depends on how deep or how far down a run was judged has no difference where that differs: over the
    canaries it is there to the depth of both, if under another name.
    """
    before, now = comparison.a.row.aggregates, comparison.b.row.aggregates
    old, new = comparison.a.inputs.yardstick, comparison.b.inputs.yardstick
    unequal = set(_BY_DEPTH if old.fetch_k != new.fetch_k else ()) | set(_BY_K if old.k != new.k else ())
    estimates = {one.estimate.measure: one.estimate for one in comparison.outcome.decisions}
    estimates |= {one.measure: one for one in comparison.outcome.exploratory}
    names = [name for name in dict.fromkeys([*now, *before, *estimates]) if "/" not in name]
    return {
        name: {
            **_sides(before.get(name), now.get(name), comparable=name not in unequal),
            "paired": _paired(estimates[name]) if name in estimates else None,
        }
        for name in names
    }


def _paired(one: Estimate) -> PairedSides:
    return {
        "canaries": one.pairs,
        **_sides(one.a, one.b),
        "low": number(one.low),
        "high": number(one.high),
        "confidence": None if one.low is None else CONFIDENCE,
        "p": number(one.p),
    }


def _categories(before: RunRow, now: RunRow) -> dict[str, CategoryDifference]:
    old, new = stored_aggregates(before).categories, stored_aggregates(now).categories
    return {
        name: {
            "health_score": _sides(*(part[name].health_score if name in part else None for part in (old, new))),
            "coverage": _sides(*(part[name].coverage if name in part else None for part in (old, new))),
        }
        for name in dict.fromkeys([*new, *old])
    }


def _sides(before: float | None, now: float | None, *, comparable: bool = True) -> Sides:
    difference = None if before is None or now is None or not comparable else now - before
    return {"before": number(before), "now": number(now), "difference": number(difference)}


def _items(
    connection: Connection, before: ComparedRun, now: ComparedRun, pairs: Sequence[Pair]
) -> list[CanaryDifference]:
    """Canaries of one page with their ranks and the overlap of their rankings."""
    chosen = [(_state(before, pair.before), _state(now, pair.now)) for pair in pairs]
    differing = [
        state.ranking_id
        for old, new in chosen
        if old is not None and new is not None and old.ranking_id != new.ranking_id
        for state in (old, new)
    ]
    rankings = results.read_rankings(connection, sorted(set(differing)))
    scores = (
        _scores(connection, before, [old for old, _ in chosen]),
        _scores(connection, now, [new for _, new in chosen]),
    )
    return [
        {
            "key": pair.key,
            "query": canary.query,
            "category": canary.category,
            "tags": list(canary.tags),
            "change": pair.change,
            "difference": number(pair.difference),
            "rbo": number(_alike(rankings, old, new)),
            "before": _result(before, pair.before, old, was),
            "now": _result(now, pair.now, new, is_),
        }
        for pair, (old, new), was, is_ in zip(pairs, chosen, *scores, strict=True)
        for canary in (_canary(before, now, pair),)
    ]


def _state(read: ComparedRun, place: int | None) -> StateRow | None:
    return None if place is None else read.states[place]


def _canary(before: ComparedRun, now: ComparedRun, pair: Pair) -> Canary:
    read, place = (now, pair.now) if pair.now is not None else (before, pair.before)
    assert place is not None  # noqa: S101 - a pair is of one run at least
    return read.inputs.canaries[place]


def _alike(rankings: Mapping[int, Ranking], old: StateRow | None, new: StateRow | None) -> float | None:
    """Overlap of two rankings; None where either was not measured."""
    if old is None or new is None:
        return None
    if old.ranking_id == new.ranking_id:
        return 1.0
    return rbo(rankings[old.ranking_id].ids, rankings[new.ranking_id].ids)


def _scores(
    connection: Connection, run: ComparedRun, states: Sequence[StateRow | None]
) -> list[dict[str, float | None]]:
    """Return the measures of single canaries by their own names, `RR` and not `MRR`; None = undefined, not measured."""
    columns = stored_columns(connection, states)
    blank = np.full(len(states), np.nan)
    names = [str(measure) for measure in run.inputs.yardstick.measures]
    return [{name: number(float(columns.get(name, blank)[row])) for name in names} for row in range(len(states))]


def _result(
    read: ComparedRun, place: int | None, state: StateRow | None, measures: dict[str, float | None]
) -> SideResult | None:
    """Return a canary in one run; None where the run did not have it."""
    if place is None:
        return None
    failure = read.failures.get(place)
    fallback = Outcome.SKIPPED if state is None else Outcome.OK
    return {
        "verdict": _verdict(state),
        "outcome": fallback if failure is None else Outcome(failure.outcome),
        "reasons": [] if state is None else list(unpack_reasons(state.reasons)),
        "rank": None if state is None else Match.from_bytes(state.matched).first_relevant,
        "top_score": None if state is None else number(state.top_score),
        "measures": measures,
    }
