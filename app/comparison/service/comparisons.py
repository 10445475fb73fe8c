"""Comparisons as pages and API show them: two runs, checks or retrievers as A and B, or two runs as before and now.

It compares runs with their results; `decisions` gives the view of what is decided.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from app.annotation.store.judgment_rows import what_is_asked
from app.base.db.engine import Connection, Store, cached_of_run
from app.base.statistics import CONFIDENCE
from app.base.values import COVERAGE, DEGRADED_SHARE, ROUNDING, Outcome, Value, Verdict, replace
from app.base.views import rounded_or_none, view_of
from app.catalog.domain import MOST_OWN, POOLED_FRAME, judgment_lines, pooled_at, pooled_lines, unlike_tasks_lines
from app.catalog.service.judges import find_judges, pooled_share
from app.comparison.domain.estimates import Floats
from app.comparison.domain.outcomes import (
    BroughtUp,
    Change,
    ComparisonOutcome,
    Depth,
    Exclusion,
    Pair,
    Pairing,
    RunSide,
    Side,
    common_depth,
    compare,
    pair_canaries,
    pair_up,
    primary_measures,
)
from app.comparison.domain.sentences import A_AND_B, BEFORE_AND_NOW, SideNames
from app.comparison.service.answers import answer_cautions, compare_answers
from app.comparison.service.compared_runs import ComparedRun, differences, find_run_ids, read_run, violations_of
from app.comparison.service.decisions import decision_shape
from app.comparison.service.outdated import cautions_since
from app.comparison.views import (
    CanaryDifference,
    CategoryDifference,
    ComparedAnswers,
    ComparedCanary,
    ComparedRunOutline,
    ComparisonCaution,
    ComparisonDecision,
    ComparisonPage,
    MeasureDifference,
    PairedSides,
    RunDiffPage,
    SideResult,
    Sides,
)
from app.records.service.past_runs import stored_aggregates
from app.records.store import ranking_rows
from app.records.store.run_rows import RunRow
from app.records.store.state_rows import StateRow
from app.scoring.evaluation import unpack_reasons
from app.scoring.measures import Measure, mean_name, parse_measure, scores_at_depth
from app.scoring.rankings import Match, match, rbo

HEALTH_SCORE: Final = "health_score"
_WHOLE: Final = {"MRR": "RR", "MAP": "AP", "duplicate_ratio": "duplicate_ratio"}
"""Measures of whole rankings, by the names of their means: they depend on how many hits were asked for."""


class Comparison(Value):
    """Two runs compared: pairs, depth, what is decided, and the scores it is decided by."""

    a: ComparedRun
    b: ComparedRun
    pairing: Pairing
    depth: Depth
    outcome: ComparisonOutcome
    scores: tuple[Mapping[str, Floats], Mapping[str, Floats]]
    """Columns of both by the names of means, a row for each pair; NaN = undefined."""

    @property
    def ordering(self) -> str:
        """The measure that canaries are ordered by: the first primary one."""
        return primary_measures(self.depth, self.a.use)[0]

    @property
    def names(self) -> SideNames:
        """What the two are called: of two checks neither is the earlier state of the other."""
        return BEFORE_AND_NOW if self.a.row.check_id == self.b.row.check_id else A_AND_B


class _KeptComparison(Value):
    """A comparison with what is derived of all its canaries."""

    comparison: Comparison
    pairs: Sequence[Pair]
    """As a page shows them: of two checks by scores, whatever their rules say."""
    ranks: "Sequence[RankPair]"
    """Of the canaries that are compared."""


_BYTES_PER_CANARY: Final = 1_500
"""A compared canary in memory: its two states, its pair and its scores."""


def _compare_ended(connection: Connection, ids: Sequence[str], version: str | None = None) -> _KeptComparison:
    """Compare two runs by their ids, or give what is kept of that: the results of ended runs do not change."""
    heads = [read_run(connection, one, version, with_states=False) for one in ids]
    of_runs = [(one.row.id, one.row.measures_version, one.outline["self_judged"], one.use) for one in heads]
    judged = _brought_up(connection, heads[0], heads[1])

    def make() -> tuple[_KeptComparison, int]:
        first, second = (_shared(read_run(connection, one, version)) for one in ids)
        found = compare_runs(connection, first, second)
        canaries = [second.canaries[new] for _, new in found.pairing.places]
        ranks = [
            RankPair(key=one.key, query=one.query, a=_rank(first.states[old]), b=_rank(second.states[new]))
            for one, (old, new) in zip(canaries, found.pairing.places, strict=True)
        ]
        kept = _KeptComparison(comparison=found, pairs=_pairs(found, by_scores=found.names is A_AND_B), ranks=ranks)
        return kept, _BYTES_PER_CANARY * max(len(first.states), len(second.states))

    kept = cached_of_run(connection, ("compared", *of_runs, judged), make)
    a, b = (
        replace(head, states=run.states)
        for head, run in zip(heads, (kept.comparison.a, kept.comparison.b), strict=True)
    )
    return replace(kept, comparison=replace(kept.comparison, a=a, b=b))


def _shared(run: ComparedRun) -> ComparedRun:
    """Return a run whose states share the bytes that are alike, as those of most healthy canaries are."""
    known: dict[bytes, bytes] = {}
    return replace(
        run,
        states=[
            one
            and replace(
                one, matched=known.setdefault(one.matched, one.matched), vector=known.setdefault(one.vector, one.vector)
            )
            for one in run.states
        ],
    )


def compare_runs(connection: Connection, a: ComparedRun, b: ComparedRun) -> Comparison:
    """Compare two runs over the canaries that both measured and that expect the same, to the depth both have."""
    old, new = a.inputs.yardstick, b.inputs.yardstick
    depth = common_depth(k=(old.k, new.k), fetch_k=(old.fetch_k, new.fetch_k))
    pairing = pair_canaries(a.members, b.members)
    read = partial(
        _columns,
        connection,
        depth=depth,
        cutoffs=sorted({one.k for one in (*old.measures, *new.measures) if one.k} | {depth.k, depth.ndcg}),
        anew=a.base_version != b.base_version,
        with_relevance=old.scorer == new.scorer,
    )
    first, second = (read(one, [pair[side] for pair in pairing.places]) for side, one in enumerate((a, b)))
    outcome = compare(
        first,
        second,
        primaries=primary_measures(depth, a.use),
        categories=[b.canaries[place].category for _, place in pairing.places],
        brought_up=_with_unjudged_hits(_brought_up(connection, a, b), first, second, depth.k),
        self_judged=a.outline["self_judged"] or b.outline["self_judged"],
        violations=violations_of(connection, a, b, depth),
    )
    return Comparison(a=a, b=b, pairing=pairing, depth=depth, outcome=outcome, scores=(first, second))


def _brought_up(connection: Connection, a: ComparedRun, b: ComparedRun) -> tuple[BroughtUp, ...]:
    """Return the retrievers that alone brought up much of what is expected, with their sides, None = neither.

    There are none where both sides are one retriever, or ask the same, since that is as good for either. What is
    compared expects the same in both runs, so what was brought up in either was so in both. One that was edited since
    is left out where the other side asks what it asked then: that one stands for it.
    """
    sides = {a.retriever: Side.A, b.retriever: Side.B}
    versions = {one.retriever: one.retriever_version for one in (a, b)}
    asked = {
        side: what_is_asked(connection, one.retriever, version_id=one.retriever_version)
        for side, one in ((Side.A, a), (Side.B, b))
    }
    if asked[Side.A] == asked[Side.B]:
        return ()
    if a.retriever == b.retriever:
        return _pooled_alone(connection, a, b, asked)
    found = {
        BroughtUp(retriever=one.retriever, side=sides.get(one.retriever), edited_since=one.edited_since)
        for run in (a, b)
        for one in find_judges(connection, run.inputs.suite.judgment_shares, versions, suite=run.outline["suite"])
        if not (one.edited_since and one.asked in asked.values())
    }
    return (
        *sorted(found, key=lambda one: (one.side or "z", one.retriever, one.edited_since)),
        *(() if found else _pooled_alone(connection, a, b, asked)),
    )


def _pooled_alone(
    connection: Connection, a: ComparedRun, b: ComparedRun, asked: Mapping[Side, str]
) -> tuple[BroughtUp, ...]:
    """Return the side among whose hits much of what is expected was judged, and not among those of the other one."""
    pooled = {
        side: pooled_share(connection, one.inputs.suite.judgment_shares, asked[side], suite=one.outline["suite"])
        for side, one in ((Side.A, a), (Side.B, b))
    }
    side = max(pooled, key=pooled.__getitem__)
    if max(pooled.values()) - min(pooled.values()) <= MOST_OWN:
        return ()
    return (BroughtUp(retriever={Side.A: a, Side.B: b}[side].retriever, side=side, pooled=True),)


def _with_unjudged_hits(
    judges: Collection[BroughtUp], a: Mapping[str, Floats], b: Mapping[str, Floats], k: int
) -> tuple[BroughtUp, ...]:
    """Leave out who was pooled without the other side where that one's first hits were judged about as often."""
    name = f"Judged@{k}"
    if name not in a or name not in b:
        return tuple(judges)
    gain = float(np.nansum(a[name] - b[name])) / max(len(a[name]), 1)
    apart = {Side.A: gain, Side.B: -gain, None: 0.0}
    return tuple(one for one in judges if not one.pooled or apart[one.side] > _JUDGED_APART)


_JUDGED_APART: Final = 0.1
"""Share of the first k hits by which one side is judged more often, that may make a difference of the measures."""


def stored_columns(connection: Connection, states: Sequence[StateRow | None]) -> dict[str, Floats]:
    """Return the columns of stored vectors by the names of canaries' measures; those of an older layout may lack some.

    NaN = undefined or not measured.
    """
    columns: dict[str, Floats] = {}
    places: dict[int, list[int]] = {}
    for place, state in enumerate(states):
        if state is not None:
            places.setdefault(state.layout_id, []).append(place)
    for layout, positions in sorted(places.items()):
        names = ranking_rows.layout_names(connection, layout)
        packed = b"".join(state.vector for place in positions if (state := states[place]) is not None)
        table = np.frombuffer(packed).reshape(len(positions), len(names))
        for name, values in zip(names, table.T, strict=True):
            columns.setdefault(name, np.full(len(states), np.nan))[positions] = values
    return columns


def _columns(
    connection: Connection,
    run: ComparedRun,
    places: Sequence[int],
    *,
    depth: Depth,
    cutoffs: Sequence[int],
    anew: bool,
    with_relevance: bool,
) -> dict[str, Floats]:
    """Return the scores of these canaries of a run, by the names of means.

    `anew`: rankings are matched again, since those of the two runs were matched by different versions of the measures.
    """
    states = [state for place in places if (state := run.states[place]) is not None]
    prepared = [run.inputs.panel.prepared(place) for place in places]
    if anew:
        rankings = ranking_rows.load_rankings(connection, sorted({state.ranking_id for state in states}))
        matches = [match(one, rankings[state.ranking_id]) for one, state in zip(prepared, states, strict=True)]
    else:  # many canaries are matched alike, such as all whose one chunk comes first
        known = {packed: Match.from_bytes(packed) for packed in {state.matched for state in states}}
        matches = [known[state.matched] for state in states]
    cut = scores_at_depth(matches, prepared, cutoffs=cutoffs, depth=depth.m)
    columns = {
        f"M{name}" if name.startswith("AP@") else mean_name(parse_measure(name)): column for name, column in cut.items()
    }
    columns[COVERAGE] = cut[str(Measure("Hit", depth.k))]
    if depth.equal and not anew:
        stored = stored_columns(connection, states)
        columns |= {mean: stored[name] for mean, name in _WHOLE.items() if name in stored}
        del columns[f"MAP@{depth.m}"]
    if with_relevance:
        columns[HEALTH_SCORE] = np.array([np.nan if one.top_score is None else one.top_score for one in states])
    return columns


def compare_references(
    store: Store, a: str, b: str, *, winner: Side | None = None, after: int = 0, limit: int = 50
) -> tuple[ComparisonPage, Comparison]:
    """Compare two things: `run:ID`, or `check:SLUG` or `retriever:SLUG`, which stand for their newest ended run.

    Canaries come by what B loses, the most first; only those that score higher in `winner` if one is named, the largest
    difference first. Raises
    InvalidInputError for another reference, NotFoundError for what is not there, ConflictError for a run that has not
    ended or was never carried out, for a check or retriever without one that has, and for retrievers that no two checks
    of one suite ask.
    """
    with store.read() as connection:
        comparison = _compare_ended(connection, find_run_ids(connection, a, b)).comparison
        answers, of_judges = compare_answers(connection, comparison.a.row.id, comparison.b.row.id)
        since = cautions_since(connection, [(a, comparison.a.row), (b, comparison.b.row)])
    scores_a, scores_b = (side[comparison.ordering] for side in comparison.scores)
    gains = scores_b - scores_a
    ordered = np.argsort(-gains if winner is Side.B else gains, kind="stable")
    order = [int(row) for row in ordered if winner is None or _winner(gains[row]) is winner]
    page: ComparisonPage = {
        **_decided(comparison, answers, since, A_AND_B),
        "a": _outline(comparison.a, a),
        "b": _outline(comparison.b, b),
        "differences": [one.sentence for one in differences(comparison.a, comparison.b)]
        + of_judges
        + _recall_notes(comparison),
        "ordered_by": comparison.ordering,
        "wins": {
            "a": int(np.count_nonzero(gains < -ROUNDING)),
            "b": int(np.count_nonzero(gains > ROUNDING)),
            "ties": int(np.count_nonzero(np.abs(gains) <= ROUNDING)),
        },
        "answers": answers,
        "items": [_canary(comparison, row, float(gains[row])) for row in order[after : after + limit]],
        "next": str(after + limit) if len(order) > after + limit else None,
    }
    return page, comparison


def _decided(
    comparison: Comparison, answers: Sequence[ComparedAnswers], since: Sequence[ComparisonCaution], names: SideNames
) -> ComparisonDecision:
    """Return what is decided, with what to mind of what happened `since`, which comes first, and of the answers."""
    shape = decision_shape(comparison.outcome, comparison.pairing, comparison.depth, names)
    shape["cautions"] = [*since, *shape["cautions"], *answer_cautions(answers, names)]
    return shape


def _recall_notes(comparison: Comparison) -> list[str]:
    """Return what to know of the recall of each retriever whose own first hits are all that was judged."""
    # One run of a retriever alone may be self-judged, as where other judgments were adopted between the two.
    differs = comparison.a.outline["self_judged"] != comparison.b.outline["self_judged"]
    one_alone = differs and comparison.a.retriever == comparison.b.retriever
    notes = [
        line
        for run in (comparison.a, comparison.b)
        for line in (
            *(
                f"of run {run.row.id} alone, {line}" if one_alone else line
                for line in judgment_lines(
                    run.retriever,
                    self_judged=run.outline["self_judged"],
                    judged_before_edit=run.outline["judged_before_edit"],
                )
            ),
            *pooled_lines(run.retriever, comparison.depth.k, run.outline["pooled_recall"]),
        )
    ]
    sides = {run.retriever: run.outline["pooled_recall"] for run in (comparison.a, comparison.b)}
    of_what = (
        [f"pooled recall is {POOLED_FRAME}"]
        if any(pooled_at(f"@{comparison.depth.k}", one) for one in sides.values())
        else []
    )
    return [*dict.fromkeys(notes), *of_what, *unlike_tasks_lines(comparison.depth.k, sides)]


def _winner(difference: float) -> Side | None:
    if abs(difference) <= ROUNDING:
        return None
    return Side.B if difference > 0 else Side.A


def _outline(run: ComparedRun, reference: str) -> ComparedRunOutline:
    yardstick = run.inputs.yardstick
    return {**run.outline, "reference": reference, "k": yardstick.k, "fetch_k": yardstick.fetch_k}


def _canary(comparison: Comparison, row: int, difference: float) -> ComparedCanary:
    place_a, place_b = comparison.pairing.places[row]
    canary = comparison.b.canaries[place_b]
    a, b = (float(side[comparison.ordering][row]) for side in comparison.scores)
    return view_of(
        ComparedCanary,
        canary,
        {"a": a, "b": b, "difference": difference},
        rounding=True,
        winner=_winner(difference),
        rank_a=_rank(comparison.a.states[place_a]),
        rank_b=_rank(comparison.b.states[place_b]),
    )


def _rank(state: StateRow | None) -> int | None:
    """Return the rank of the first expected chunk; None = not found."""
    return None if state is None else Match.from_bytes(state.matched).first_relevant


class RankPair(Value):
    """A compared canary with the rank of its first expected chunk in both runs; None = not found."""

    key: str
    query: str
    a: int | None
    b: int | None


class SideBySide(Value):
    """Two runs as their page shows them: what is decided, every rank, and one page of canaries."""

    a: ComparedRunOutline
    b: ComparedRunOutline
    names: SideNames
    decision: ComparisonDecision
    comparable: bool
    """Whether the runs' own numbers may be compared as they are."""
    differences: Sequence[str]
    answers: Sequence[ComparedAnswers]
    ordered_by: str
    changes: Mapping[Change, int]
    """Number of canaries by change."""
    ranks: Sequence[RankPair]
    """Of the canaries that are compared."""
    items: Sequence[CanaryDifference]
    scores: Mapping[str, tuple[float, float]]
    """By the key of a compared canary: the measure that canaries are ordered by, in both runs."""
    following: int | None
    """Where the next page of canaries begins."""


def show_side_by_side(
    store: Store,
    a: str,
    b: str,
    *,
    changes: Collection[Change] = (),
    gains_first: bool = False,
    after: int = 0,
    limit: int = 50,
    version: str | None = None,
) -> SideBySide:
    """Compare two things for a page; raises as `compare_references` does, and for a version that is not there.

    Of one check, canaries changed as its rules say; of two, whose rules may differ, as their scores do.
    """
    with store.read() as connection:
        kept = _compare_ended(connection, find_run_ids(connection, a, b), version)
        comparison, pairs, names = kept.comparison, kept.pairs, kept.comparison.names
        first, second = comparison.a, comparison.b
        answers, of_judges = compare_answers(connection, first.row.id, second.row.id)
        since = cautions_since(connection, [(a, first.row), (b, second.row)])
        matching = [pair for pair in pairs if not changes or pair.change in changes]
        if gains_first:
            matching.reverse()
        items = _items(connection, first, second, matching[after : after + limit])
    found, counted = differences(first, second), Counter(pair.change for pair in pairs)
    columns = [side[comparison.ordering].tolist() for side in comparison.scores]
    return SideBySide(
        a=_outline(first, a),
        b=_outline(second, b),
        names=names,
        decision=_decided(comparison, answers, since, names),
        comparable=not any(one.strict for one in found),
        differences=[one.sentence for one in found] + of_judges + _recall_notes(comparison),
        answers=answers,
        ordered_by=comparison.ordering,
        changes={change: counted[change] for change in Change},
        ranks=kept.ranks,
        items=items,
        scores={one.key: (old, new) for one, old, new in zip(kept.ranks, *columns, strict=True)},
        following=after + limit if len(matching) > after + limit else None,
    )


_BY_K: Final = (COVERAGE, DEGRADED_SHARE)
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
) -> RunDiffPage:
    """Compare two runs, usually the older one first.

    Canaries come the worst first, only those with one of these `changes` where any is named. `version`: both by another
    measures version. Raises NotFoundError for a run that is not there, ConflictError for one that has not ended or was
    never carried out, InvalidInputError for a version that is not there.
    """
    with store.read() as connection:
        before, now = (read_run(connection, run_id, version) for run_id in (before_id, now_id))
        comparison = compare_runs(connection, before, now)
        pairs = _pairs(comparison)
        matching = [pair for pair in pairs if not changes or pair.change in changes]
        items = _items(connection, before, now, matching[after : after + limit])
    found, counted = differences(before, now), Counter(pair.change for pair in pairs)
    names = comparison.names
    return {
        "before": before.outline,
        "now": now.outline,
        "comparable": not any(one.strict for one in found),
        "differences": [one.sentence for one in found],
        "changes": {change: counted[change] for change in Change},
        "decision": decision_shape(comparison.outcome, comparison.pairing, comparison.depth, names),
        "measures": _measures(comparison),
        "categories": _categories(before.row, now.row),
        "ordered_by": comparison.ordering,
        "items": items,
        "next": str(after + limit) if len(matching) > after + limit else None,
    }


def _pairs(comparison: Comparison, *, by_scores: bool = False) -> list[Pair]:
    """Return every canary of the two runs, the worst first; `by_scores`: whatever the rules of their checks say."""
    scores = _ordering(comparison)
    sides = [
        _side(run, one, by_scores=by_scores) for run, one in zip((comparison.a, comparison.b), scores, strict=True)
    ]
    return pair_up(*sides, rejudged=comparison.pairing.excluded.get(Exclusion.OTHER_JUDGMENTS, ()))


def _side(run: ComparedRun, ordering: Floats, *, by_scores: bool) -> RunSide:
    verdicts = [_verdict(state) for state in run.states]
    if by_scores:
        verdicts = [one if one is Verdict.UNKNOWN else Verdict.HEALTHY for one in verdicts]
    return RunSide(
        keys=[canary.key for canary in run.canaries],
        queries=[canary.query for canary in run.canaries],
        verdicts=verdicts,
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


def _measures(comparison: Comparison) -> dict[str, MeasureDifference]:
    """Differences of measures: of the runs, and over the compared canaries with interval and p value.

    A measure that depends on how deep or how far down a run was judged has no difference where that differs: over the
    canaries it is there to the depth of both, if under another name.
    """
    before, now = comparison.a.row.aggregates, comparison.b.row.aggregates
    old, new = comparison.a.inputs.yardstick, comparison.b.inputs.yardstick
    unequal = set(_WHOLE if old.fetch_k != new.fetch_k else ()) | set(_BY_K if old.k != new.k else ())
    estimates = {one.estimate.measure: one.estimate for one in comparison.outcome.decisions}
    estimates |= {one.measure: one for one in comparison.outcome.exploratory}
    names = [name for name in dict.fromkeys([*now, *before, *estimates]) if "/" not in name]
    return {
        name: {
            **_sides(before.get(name), now.get(name), comparable=name not in unequal),
            "paired": None
            if (one := estimates.get(name)) is None
            else view_of(
                PairedSides,
                _sides(one.a, one.b),
                one,
                rounding=True,
                canaries=one.pairs,
                confidence=None if one.low is None else CONFIDENCE,
            ),
        }
        for name in names
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
    return {"before": rounded_or_none(before), "now": rounded_or_none(now), "difference": rounded_or_none(difference)}


def _items(
    connection: Connection, before: ComparedRun, now: ComparedRun, pairs: Sequence[Pair]
) -> list[CanaryDifference]:
    """Canaries of one page with their ranks and the overlap of their rankings."""
    olds = [None if pair.before is None else before.states[pair.before] for pair in pairs]
    news = [None if pair.now is None else now.states[pair.now] for pair in pairs]
    both = [(old, new) for old, new in zip(olds, news, strict=True) if old is not None and new is not None]
    differing = {state.ranking_id for old, new in both if old.ranking_id != new.ranking_id for state in (old, new)}
    rankings = ranking_rows.load_rankings(connection, sorted(differing))
    scores = _scores(connection, before, olds), _scores(connection, now, news)
    items: list[CanaryDifference] = []
    for pair, old, new, was, is_ in zip(pairs, olds, news, *scores, strict=True):
        run, place = (now, pair.now) if pair.now is not None else (before, pair.before)
        assert place is not None  # noqa: S101 - a pair is of one run at least
        alike: float | None = None
        if old is not None and new is not None:
            same = old.ranking_id == new.ranking_id
            alike = 1.0 if same else rbo(rankings[old.ranking_id].ids, rankings[new.ranking_id].ids)
        items.append(
            view_of(
                CanaryDifference,
                pair,
                run.canaries[place],
                rounding=True,
                rbo=rounded_or_none(alike),
                before=_result(before, pair.before, old, was),
                now=_result(now, pair.now, new, is_),
            )
        )
    return items


def _scores(
    connection: Connection, run: ComparedRun, states: Sequence[StateRow | None]
) -> list[dict[str, float | None]]:
    """Return the measures of single canaries by their own names, `RR` and not `MRR`; None = undefined, not measured."""
    columns = stored_columns(connection, states)
    blank = np.full(len(states), np.nan)
    names = [str(measure) for measure in run.inputs.yardstick.measures]
    return [
        {name: rounded_or_none(float(columns.get(name, blank)[row])) for name in names} for row in range(len(states))
    ]


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
        "rank": _rank(state),
        "top_score": None if state is None else rounded_or_none(state.top_score),
        "measures": measures,
    }
